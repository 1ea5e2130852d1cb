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


def terminate(process: subprocess.Popen[str]) -> str:
    """Send SIGTERM; return what is printed until an end in time, with the right status."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=10 * GRACE)
    assert time.monotonic() - began < GRACE, out
    assert process.returncode == (0 if "reached the last step" in out else 75), out + errors
    return out


def reported_step(out: str) -> int | None:
    """Return the step at which the session ended, if one was open."""
    found = re.search(r"Session ended at step (\d+): ", out)
    return int(found[1]) if found else None


def first_step(out: str) -> int | None:
    """Return the step at which the session began, if it came to that."""
    found = re.search(r"began at (\d+)", out)
    return int(found[1]) if found else None


def moment_of(out: str) -> str:
    """Return what the program was doing when the signal came."""
    before = out.partition("log: Received SIGTERM")[0].splitlines()
    return next((line for line in reversed(before) if line in MOMENTS), "warm-up")


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_at_each_moment(tmp_path: Path, moment: str) -> None:
    with program(tmp_path, moment) as process:
        assert process.stdout is not None
        assert any(line == f"{moment}\n" for line in process.stdout)
        log = terminate(process)
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
            out = terminate(process)
        kinds[moment_of(out)] += 1
        assert first_step(out) in (at, None), out
        at = reported_step(out) or at
    sys.stdout.write(f"{kinds}, {at} steps\n")
