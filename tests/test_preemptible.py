"""SIGTERM at any moment of a program: it ends with 75 in time, and goes on at the step it reported."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "preemptible.py"
MOMENTS = ["warm-up", "step", "save", "evaluation", "data", "close"]
GRACE = 4.0


@contextlib.contextmanager
def program(directory: Path, moment: str) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, str(PROGRAM), str(directory), moment, str(GRACE)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def terminate(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Send SIGTERM; return the output and the log of an end in time, with the right status."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, log = process.communicate(timeout=3 * GRACE)
    assert time.monotonic() - began < GRACE, log
    assert process.returncode == (0 if "reached the last step" in log else 75), log
    return out, log


def reported_step(log: str) -> int | None:
    """Return the step at which the session ended, if one was open."""
    found = re.search(r"Session ended at step (\d+): ", log)
    return int(found[1]) if found else None


def first_step(out: str) -> int | None:
    """Return the step at which the session began, if it came to that."""
    found = re.search(r"began at (\d+)", out)
    return int(found[1]) if found else None


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_at_each_moment(tmp_path: Path, moment: str) -> None:
    with program(tmp_path, moment) as process:
        assert process.stdout is not None
        assert any(line == f"{moment}\n" for line in process.stdout)
        _, log = terminate(process)
    with program(tmp_path, "none") as process:
        assert process.stdout is not None
        out = "".join(iter(process.stdout.readline, "step\n"))
        terminate(process)
    assert first_step(out) == (reported_step(log) or 0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sigterm_at_50_random_moments(tmp_path: Path) -> None:
    """Each process goes on where the one before ended."""
    chance, at, kinds = random.Random(20), 0, dict.fromkeys(MOMENTS, 0)
    for _ in range(50):
        with program(tmp_path, "none") as process:
            assert process.stdout is not None
            process.stdout.readline()  # it warms up
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, 1.5))
            out, log = terminate(process)
        seen = [line for line in out.split() if line in kinds]
        kinds[seen[-1] if seen else "warm-up"] += 1
        begun = first_step(out)
        assert begun in (at, None), log
        at = reported_step(log) or at
    sys.stdout.write(f"last words: {kinds}, {at} steps\n")
