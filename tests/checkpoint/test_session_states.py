"""The states of hooks and data in a checkpoint are restored together in a later session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph as g
from tests import forked


def elements() -> am.data.Dataset:
    return am.data.from_iterable(np.arange(10, dtype=np.float32)).shuffle(4, seed=1)


async def train_until_stopped(directory: Path, last_step: int) -> tuple[list[float], str | None]:
    """Train in a graph of its own; return the elements of the steps, and why the session stopped."""
    with g.Graph().as_default():
        x = g.placeholder(g.float32, [], name="x")
        weight = g.get_variable("weight", initializer=1.0)
        train = g.group(weight.assign_add(x), am.get_or_create_global_step().assign_add(1))
        evaluation = am.EvalHook(
            {"loss": g.constant(1.0)}, lambda: [{}], every_steps=1, concurrent=False
        )
        stop = am.stop_if(evaluation, "loss", no_decrease_in=6)
        hooks = [evaluation, stop, am.StopAtStepHook(last_step=last_step)]
        seen = []
        async with am.MonitoredTrainingSession(checkpoint_dir=str(directory), hooks=hooks) as sess:
            async for value in sess.iterate(elements()):
                seen.append(float(value))
                await sess.run(train, {x: value})
    return seen, sess.stop_reason


@pytest.mark.asyncio
async def test_hooks_and_data_continue_together_after_a_restore(tmp_path: Path) -> None:
    all_elements = [float(x) async for x in elements()]
    assert (await train_until_stopped(tmp_path, 4))[0] == all_elements[:4]
    seen, reason = await train_until_stopped(tmp_path, 100)
    assert seen == all_elements[4:7]  # the position; and 3 evaluations without a decrease came before
    assert reason is not None
    assert "no decrease of 'loss' in 6 evaluations up to step 7" in reason
    manifest: Any = json.loads((tmp_path / "model.ckpt-7.json").read_bytes())
    assert manifest["stateful"]["hooks/EarlyStoppingHook"]["rule"]["without_progress"] == 6
    assert any(name.startswith("__stateful__/data/") for name in manifest["tensors"])


RESTORE = """
import asyncio, sys
import numpy as np
import asyncmon as am

program = am.programs.FunctionProgram({"w": np.zeros(2), "text": "a", "nested": {"flag": True}})

@program.step
def train(state, x):
    state["w"] += x

async def main():
    data = am.data.from_iterable(range(10)).shuffle(4, seed=1)
    async with am.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], program=program) as sess:
        async for x in sess.iterate(data):
            await sess.run("train", {"x": x})
            if sess.global_step % 4 == 0:
                break
        print(sess.global_step)

loaded = []
sys.addaudithook(lambda event, arguments: loaded.append(event) if "pickle" in event else None)
asyncio.run(main())
print(loaded)
"""


def test_nothing_of_a_checkpoint_is_unpickled(tmp_path: Path) -> None:
    outputs = [forked.run("-c", RESTORE, str(tmp_path), check=True).stdout for _ in range(2)]
    assert outputs == ["4\n[]\n", "8\n[]\n"]
