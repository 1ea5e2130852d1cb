"""An example of rollouts in processes that are killed and stopped, and their output."""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path
from typing import Any

from asyncmon.checkpoint import load_checkpoint
from tests import forked

EXAMPLES = Path(__file__).parents[1] / "examples"
GRACE_SECS = 120.0
"""The default of ``MonitoredTrainingSession``."""


class Rollouts:
    """The lives of one training.

    Attributes:
        batches: by the step of the first run with a batch, the version of each element of it. These
            are the batches of the surviving history.
        ends: the number of kills and of stops.
    """

    def __init__(self, example: str, directory: Path, last_step: int, *arguments: str) -> None:
        options = ("--steps", str(last_step), "--run-dir", "run")
        self.command = (EXAMPLES / example, *options, *arguments)
        self.directory, self.last_step = directory, last_step
        self.batches: dict[int, dict[int, int]] = {}
        self.ends = {signal.SIGKILL: 0, signal.SIGTERM: 0}

    def live(self, dice: random.Random | None = None, lines: int = 0) -> list[str]:
        """Run the example to its end, or end it at a random moment before a number of lines."""
        options = ("-W", "error", "-u")
        with forked.Process(*self.command, cwd=self.directory, options=options, merged=True) as process:
            said = []
            if dice is not None:
                said = [process.stdout.readline() for _ in range(dice.randint(0, lines))]
                time.sleep(dice.random() * 0.1)  # the moment between two lines
                number = dice.choice([signal.SIGKILL, signal.SIGTERM])
                self.ends[number] += process.poll() is None
                process.send_signal(number)
            said += process.stdout.read().splitlines(keepends=True)
            process.wait(GRACE_SECS)
        allowed = {0} if dice is None else {0, -signal.SIGKILL}
        is_over = any((self.directory / "run").glob(f"model.ckpt-{self.last_step}*"))
        if dice is not None and (not said or is_over):  # no session was open, to stop
            allowed.add(-signal.SIGTERM)
        assert process.returncode in allowed, "".join(said)
        self._follow(said)
        return [line.rstrip("\n") for line in said]

    def _follow(self, lines: list[str]) -> None:
        """Follow a life: it continues the batches before the step that it has restored."""
        for line in lines:
            if begun := re.match(r"begins at step (\d+)", line):
                kept = {step: batch for step, batch in self.batches.items() if step < int(begun[1])}
                self.batches = kept
            elif found := re.match(r"step (\d+): .*versions=\{(.*)\}\n", line):
                pairs = [pair.split(": ") for pair in found[2].split(", ")]
                self.batches[int(found[1])] = {int(element): int(version) for element, version in pairs}

    async def check(self, name: str, max_age: int) -> None:
        """Check the history of a training that has ended at its last step."""
        async with await load_checkpoint(str(self.directory / "run")) as reader:
            assert int(await reader.get_tensor("global_step")) == self.last_step
            state: dict[str, Any] = (await reader.states())[f"pipelines/{name}"]
        assert max(self.batches) < self.last_step
        used = [element for batch in self.batches.values() for element in batch]
        outstanding = [n for first, end in state["outstanding"] for n in range(first, end)]
        assert sorted([*used, *outstanding]) == list(range(state["taken"]))
        ages = [step - version for step, batch in self.batches.items() for version in batch.values()]
        assert min(ages) >= 0
        assert max(ages) <= max_age
