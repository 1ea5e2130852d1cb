"""A training with a pipeline in one directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.checkpoint import load_checkpoint
from asyncmon.programs import FunctionProgram


class Bench:
    """Sessions in one directory. Steps take 0.1 s."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.used: list[Any] = []
        self.calls: list[Any] = []
        """The elements of the calls of :meth:`make`, in their order."""

    def program(self) -> FunctionProgram:
        made = FunctionProgram({"weight": 0.0})

        @made.step
        async def use(state: Any, batch: Any) -> None:
            await asyncio.sleep(0.1)
            state["weight"] += 1
            self.used.extend(batch)

        return made

    async def make(self, element: Any) -> Any:
        self.calls.append(element)
        await asyncio.sleep(0.05)
        return element

    @asynccontextmanager
    async def session(
        self,
        last: int = 1000,
        *hooks: Any,
        save_steps: int | None = 1,
        repeat_runs: bool = True,
        **more: Any,
    ) -> AsyncIterator[am.MonitoredSession]:
        async with am.MonitoredTrainingSession(
            program=self.program(), checkpoint_dir=self.directory, signals=None,
            hooks=[am.StopAtStepHook(last_step=last), *hooks], save_checkpoint_steps=save_steps,
            save_checkpoint_secs=None, save_summaries_steps=0, log_step_count_steps=0,
            recovery=am.Recovery(first_delay_secs=0, repeat_runs=repeat_runs), **more,
        ) as sess:  # fmt: skip
            yield sess

    async def train(self, sess: Any, pipeline: Any, size: int = 4) -> None:
        """Use all batches of a pipeline."""
        async for batch in pipeline.batches(size):
            await sess.run("use", {"batch": [item.value for item in batch]})

    async def state(self, name: str = "make") -> dict[str, Any]:
        """Return the state of a pipeline in the newest checkpoint."""
        async with await load_checkpoint(str(self.directory)) as reader:
            states = await reader.states()
        found: dict[str, Any] = states[f"pipelines/{name}"]
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
