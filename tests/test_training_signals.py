"""Signals to a real process that trains: it saves, cleans up and says so with its exit status."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import latest_checkpoint, load_checkpoint, verify
from tests import forked

pytestmark = pytest.mark.asyncio

PROGRAM = """
import asyncio, sys
import asyncmon as am

program = am.programs.FunctionProgram(state={"weight": 0.0})

@program.step
async def train(state):
    await asyncio.sleep(0.001)
    state["weight"] += 1
    if sys.argv[2] == "stuck" and state["weight"] > 5:
        await ask_a_dead_server()

async def ask_a_dead_server():
    print("ready", flush=True)
    await asyncio.Event().wait()

async def main(directory, how):
    saves = am.CheckpointSaverHook(directory, save_secs=3600, saver=am.Saver(), save_on_cancel=True)
    async with am.MonitoredTrainingSession(
        checkpoint_dir=directory, program=program, hooks=[saves],
        stop_grace_period_secs=2 if how == "stuck" else 5,
        save_checkpoint_secs=None, save_checkpoint_steps=None,
        signals="auto" if how in ("stop", "hang", "stuck") else None,
    ) as sess:
        if how == "cancel":
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            loop.add_signal_handler(15, task.cancel)
        while not sess.should_stop():
            await sess.run("train")
            if sess.global_step == 5 and how != "stuck":
                print("ready", flush=True)
        if how == "hang":
            print("stopping", flush=True)
            await asyncio.sleep(3600)
    print(sess.global_step, sess.stop_reason, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


class Child:
    def __init__(self, process: forked.Process) -> None:
        self.process = process

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, out, err


@contextlib.contextmanager
def training(directory: Path, how: str) -> Iterator[Child]:
    """A process that trains, from the moment on at which five steps are done."""
    process = forked.Process("-c", PROGRAM, str(directory), how)
    child = Child(process)
    try:
        assert child.line() == "ready"
        yield child
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


async def last_step(directory: Path) -> int:
    """Return the step of the newest checkpoint, whose state must be whole."""
    assert [one.problem for one in await verify(directory)] == [None] * len(await verify(directory))
    path: Any = await latest_checkpoint(directory)
    async with await load_checkpoint(path) as reader:
        step = int(await reader.get_tensor("global_step"))
        assert float(await reader.get_tensor("weight")) == step
    return step


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_training_as_a_stop_does(tmp_path: Path, number: signal.Signals) -> None:
    """AX-18: the last state is saved, the process ends with status 0 and can say why."""
    with training(tmp_path, "stop") as child:
        child.process.send_signal(number)
        status, out, err = child.end()
    step = await last_step(tmp_path)
    assert step >= 5
    assert (status, out) == (0, f"{step} signal {number.name}\n"), err


async def test_a_cancellation_by_a_signal_saves_and_continues_ax_27(tmp_path: Path) -> None:
    """AX-27: save_on_cancel writes a last checkpoint, then the cancellation leaves the program."""
    with training(tmp_path, "cancel") as child:
        child.process.send_signal(signal.SIGTERM)
        status, out, err = child.end()
    assert (status, out) == (1, "")
    assert "CancelledError" in err
    assert await last_step(tmp_path) >= 5


async def test_ctrl_c_without_signals_saves_and_leaves_as_an_interrupt(tmp_path: Path) -> None:
    """AX-4, AX-27: asyncio.run turns Ctrl-C into a cancellation, and that into KeyboardInterrupt."""
    with training(tmp_path, "interrupt") as child:
        child.process.send_signal(signal.SIGINT)
        status, out, err = child.end()
    assert (status, out) == (-signal.SIGINT, "")
    assert "KeyboardInterrupt" in err
    assert await last_step(tmp_path) >= 5


async def test_a_second_signal_does_what_it_does_by_default(tmp_path: Path) -> None:
    with training(tmp_path, "hang") as child:
        child.process.send_signal(signal.SIGTERM)
        assert child.line() == "stopping"
        child.process.send_signal(signal.SIGTERM)
        status, _, _ = child.end()
    assert status == -signal.SIGTERM
    assert await last_step(tmp_path) == 0


async def test_a_signal_ends_a_step_that_waits_for_ever_kc_1(tmp_path: Path) -> None:
    """The session ends in order, saves the last whole step, and logs its waits."""
    with training(tmp_path, "stuck") as child:
        child.process.send_signal(signal.SIGTERM)
        status, out, err = child.end()
    assert (status, out) == (0, f"{await last_step(tmp_path)} signal SIGTERM\n"), err
    assert "after a stop (signal SIGTERM): it waits in Event.wait" in err
    assert "called from ask_a_dead_server (<string>:" in err
    assert await last_step(tmp_path) == 5


async def test_a_second_ctrl_c_leaves_without_saving(tmp_path: Path) -> None:
    with training(tmp_path, "hang") as child:
        child.process.send_signal(signal.SIGINT)
        assert child.line() == "stopping"
        child.process.send_signal(signal.SIGINT)
        status, _, err = child.end()
    assert status == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    assert await last_step(tmp_path) == 0
