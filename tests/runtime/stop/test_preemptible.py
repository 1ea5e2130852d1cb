"""Signals at any moment of a program: it ends in time, its status is true, its state is saved."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncmon.checkpoint import latest_checkpoint, load_checkpoint
from tests import forked

PROGRAM = Path(__file__).parent / "preemptible.py"
MOMENTS = ["warm-up", "step", "save", "evaluation", "data", "recovery", "close"]
GRACE = 4.0
SLACK_SECS = 20.0
"""What a busy machine may take to end a process: the statuses are compared, not the speed."""

HANGS = {
    "am.run": ["no", "no", "waits", "ignores", "blocks"],
    "asyncio.run": ["no", "waits"],
    "service": ["no"],
}
"""The ways in which the cleanup of a hook hangs, for each host. Only ``am.run`` ends any of them."""


@contextlib.contextmanager
def program(
    directory: Path, moment: str, host: str = "am.run", hang: str = "no"
) -> Iterator[forked.Process]:
    arguments = [str(directory), moment, str(GRACE), host, hang]
    process = forked.Process(PROGRAM, *arguments, cwd=directory)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def terminate(process: forked.Process) -> str:
    """Send SIGTERM; return the output up to an end in time, with the right status."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=10 * GRACE)
    assert time.monotonic() - began < GRACE, out
    assert process.returncode == (0 if "reached the last step" in out else 75), out + errors
    return out


def first_step(out: str) -> int | None:
    """Return the step at which the session began, if it came to that."""
    found = re.search(r"^began at (\d+)$", out, re.MULTILINE)
    return int(found[1]) if found else None


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_at_each_moment(tmp_path: Path, moment: str) -> None:
    with program(tmp_path, moment) as process:
        lines = []
        while f"{moment}\n" not in lines[-1:]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        log = "".join(lines) + terminate(process)
    step, saved = last_step(log), saved_step(tmp_path)
    assert step in (saved or 0, None)  # a new state that is not saved yet is no loss
    with program(tmp_path, "none") as process:
        out = "".join(iter(process.stdout.readline, "step\n"))
        terminate(process)
    assert first_step(out) == (saved or 0)


def last_step(out: str) -> int | None:
    """Return the step of the state that a session had last, if it had one."""
    found = re.findall(r"(?:^at|Session ended at step) (\d+|nothing)", out, re.MULTILINE)
    return int(found[-1]) if found and found[-1] != "nothing" else None


def saved_step(directory: Path) -> int | None:
    """Return the step of the newest checkpoint, whose state must be that of its step."""

    async def read() -> tuple[int, float] | None:
        path = await latest_checkpoint(directory)
        if path is None:
            return None
        async with await load_checkpoint(path) as reader:
            step, weight = [await reader.get_tensor(name) for name in ("global_step", "weight")]
        return int(step), float(weight)

    state = asyncio.run(read())
    assert state is None or state[0] == state[1]
    return None if state is None else state[0]


@pytest.mark.campaign("stops", short=6)
def test_random_stops_end_as_the_table_says(tmp_path: Path, seed: int) -> None:
    """Stop a program once or twice, and compare its status with the table."""
    directory = tmp_path
    chance = random.Random(seed)
    host = chance.choice(["am.run", "am.run", "asyncio.run", "service"])
    hang = chance.choice(HANGS[host])
    numbers = chance.choices([signal.SIGTERM, signal.SIGINT], k=chance.choice([1, 1, 2]))
    with program(directory, "any", host, hang) as process:
        head = process.stdout.readline()
        began = time.monotonic()
        for number, wait in zip(
            numbers, (chance.uniform(0, 2.5), chance.uniform(0, 0.7)), strict=False
        ):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait)
            if process.poll() is None:
                process.send_signal(number)
        out, errors = process.communicate(timeout=10 * GRACE)
        took = time.monotonic() - began
    out, status, case = head + out, process.returncode, (seed, host, hang, numbers)
    assert took < 3.2 + GRACE + SLACK_SECS, case
    is_done, received = out.endswith("done\n"), "log: Received SIG" in out
    expected = {0} if is_done else {1, 75} if host == "am.run" else set()
    if host == "am.run":
        expected |= {130} if numbers[1:] == [signal.SIGINT] else set()
    else:  # the second signal, and one that no session handles, have their default action
        late = numbers[1:] if received and host == "asyncio.run" else numbers
        expected |= {-number for number in late}
        expected |= {1} if re.search(r"CancelledError: .* a stop came|Not recovered", errors) else set()
    assert status in expected, (case, out, errors)
    memory, saved = last_step(out), saved_step(directory)
    is_saved = memory is None or (saved or 0) in (memory, memory + 1)  # 0: a new state is no loss
    if status in (0, 75):
        assert is_saved, (case, out, errors)
    if status == 1 and host == "am.run":
        assert not is_saved, (case, out, errors)
        assert "is not saved: the last saved state is" in errors, (case, out, errors)
