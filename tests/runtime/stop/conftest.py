"""Programs that train in a process of their own, and get signals."""

from __future__ import annotations

import contextlib
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests import forked

BEFORE = """
import asyncio, sys, threading, time
import asyncmon as am

program = am.programs.FunctionProgram(state={"weight": 0.0})

@program.step
async def train(state):
    await asyncio.sleep(0.001)
    state["weight"] += 1

def session(**kwargs):
    return am.MonitoredTrainingSession(program=program, **kwargs)

async def train_on(sess):
    while not sess.should_stop():
        await sess.run("train")
        if sess.global_step == 5:
            print("ready", flush=True)
"""


class Child:
    """A process, and its output."""

    def __init__(self, code: str, directory: Path, *options: str) -> None:
        path = directory / "program.py"
        path.write_text(BEFORE + textwrap.dedent(code))
        self.process = forked.Process(path, cwd=directory, options=options)

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def signal(self, *numbers: int) -> None:
        for number in numbers:
            self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=40)
        return self.process.returncode, out, err


@contextlib.contextmanager
def running(code: str, directory: Path, *options: str) -> Iterator[Child]:
    """A process from the moment on at which it says that it is ready."""
    child = Child(code, directory, *options)
    try:
        assert child.line() == "ready", child.end()
        yield child
    finally:
        child.process.kill()
        child.process.communicate()


def stopped(code: str, directory: Path, number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Return the exit status, the output and the errors of a program that gets a signal."""
    with running(code, directory) as child:
        child.signal(number)
        return child.end()
