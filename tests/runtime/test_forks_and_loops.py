"""A session that its process has forked, or whose event loop has ended without it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.programs import FunctionProgram
from tests import forked

PROGRAM = """
import asyncio, os, sys
import asyncmon as am
from asyncmon.programs import FunctionProgram

program = FunctionProgram({"n": 0})

@program.step
def train(state):
    state["n"] += 1

async def main():
    options = {"save_checkpoint_steps": 1_000_000, "summary_dir": "d"}
    async with am.MonitoredTrainingSession(program=program, checkpoint_dir="d", **options) as sess:
        await sess.run("train")
        pid = os.fork()
        if pid == 0:
            if sys.argv[1] == "exit":
                raise SystemExit(3)
            if sys.argv[1] == "raise":
                raise ValueError("of the child")
            if sys.argv[1] == "close":
                await sess.close()
            return
        os.waitpid(pid, 0)
        print(sorted(name for name in os.listdir("d") if name.endswith("-1.json")))
        await sess.run("train")
        print(await asyncio.to_thread(lambda: "a thread"), await sess.save())
    print("ended", sess.stop_reason)

parent = os.getpid()
try:
    asyncio.run(main())
except ValueError:
    pass
"""


@pytest.mark.parametrize("end", ["exit", "raise", "return", "close"])
def test_a_forked_child_leaves_the_session_to_its_parent(end: str, tmp_path: Path) -> None:
    done = forked.run("-c", PROGRAM, end, cwd=tmp_path, timeout=60)
    assert done.stdout.splitlines() == ["[]", "a thread d/model.ckpt-2", "ended the body ended"]
    assert done.returncode == 0, done.stderr


def session(directory: Path) -> Any:
    program = FunctionProgram({"n": 0})

    @program.step
    def train(state: Any) -> None:
        state["n"] += 1

    return am.MonitoredTrainingSession(program=program, checkpoint_dir=directory)


LEFT = (
    PROGRAM.partition("async def main")[0]
    + "from asyncmon.runtime import run_names\n"
    + """
def session():
    return am.MonitoredTrainingSession(program=program, checkpoint_dir="d")

left = session()

async def leave():
    await left.start()
    await left.run("train")

async def second():
    async with session() as sess:
        await sess.run("train")
    print("second", sess.global_step)

async def close():
    try:
        await asyncio.wait_for(left.close(), 10)
    except RuntimeError as error:
        print(error)
    await left.close()  # the second time it does nothing
    print(left.state.value, len(run_names._open))

asyncio.run(leave())
asyncio.run(second())
asyncio.run(close())
"""
)


def test_a_session_of_an_ended_loop_frees_its_directory_and_refuses_its_close(tmp_path: Path) -> None:
    done = forked.run("-c", LEFT, cwd=tmp_path, timeout=60)
    second, refusal, state = done.stdout.splitlines()
    assert second == "second 1"
    assert "is closed" in refusal
    assert "its directory is free" in refusal
    assert state == "closed 0"  # its name is free in the log, too


async def close_elsewhere(sess: Any) -> None:
    await asyncio.wait_for(sess.close(), 10)


@pytest.mark.asyncio
async def test_a_close_in_another_loop_is_refused(tmp_path: Path) -> None:
    async with session(tmp_path) as sess:
        with pytest.raises(RuntimeError, match="another one"):
            await asyncio.to_thread(lambda: asyncio.run(close_elsewhere(sess)))
        await sess.run("train")
