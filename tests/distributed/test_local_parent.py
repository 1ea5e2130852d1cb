"""The child of a program that is killed, interrupted or ends without closing its session."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncmon import graph
from tests import forked

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes by pidfd_open"),
]

TRAINING = """
import asyncio, os, sys
import asyncmon as am
from asyncmon import graph

os.setsid()

async def main():
    step = am.get_or_create_global_step()
    w = graph.get_variable("w", [1 << 18], initializer=graph.zeros_initializer())
    train = graph.group(step.assign_add(1), w.assign_add(graph.ones([1 << 18])))
    async with am.MonitoredTrainingSession("local", checkpoint_dir=sys.argv[1]) as sess:
        process = sess.raw_session().backend.channel.process
        print(process.pid, flush=True)
        while not sess.should_stop():
            await sess.run(train)
            await sess.run(w)
    print(sess.stop_reason, flush=True)

asyncio.run(main())
"""


def test_a_program_on_uvloop_has_a_child_too() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

    async def main() -> float:
        async with graph.Session("local") as sess:
            found: float = await sess.run(graph.constant(2.0) + 1.0)
            return found

    assert uvloop.run(main()) == 3.0


@pytest.fixture
def training(tmp_path: Path) -> Iterator[tuple[forked.Process, int]]:
    """A program that trains in a session of its own, and a descriptor of the child of that."""
    with forked.Process("-c", TRAINING, str(tmp_path)) as program:
        pid = int(program.stdout.readline())
        child = os.pidfd_open(pid)
        try:
            yield program, child
        finally:
            program.kill()
            os.close(child)


def has_ended(process: int, secs: float = 20.0) -> bool:
    """Wait for the end of a process."""
    return bool(select.select([process], [], [], secs)[0])


def test_the_child_of_a_program_that_is_killed_ends(
    training: tuple[forked.Process, int],
) -> None:
    program, child = training
    program.kill()
    assert has_ended(child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process that is stopped")
def test_the_child_ends_with_a_killed_program_even_if_it_is_stopped(
    training: tuple[forked.Process, int],
) -> None:
    program, child = training
    signal.pidfd_send_signal(child, signal.SIGSTOP)
    program.kill()
    assert has_ended(child)


def test_ctrl_c_ends_training_in_order_and_the_child_after_the_last_save(
    training: tuple[forked.Process, int], tmp_path: Path
) -> None:
    program, child = training
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does
    output, _ = program.communicate(timeout=60)
    assert "SIGINT" in output
    assert has_ended(child)
    assert (tmp_path / "checkpoint").exists()


def test_a_program_that_drops_its_session_leaves_no_child(tmp_path: Path) -> None:
    program = """
import asyncio
from asyncmon import graph

async def main():
    sess = graph.Session("local")
    await sess.run(graph.constant(1.0))
    print(sess.backend.channel.process.pid, flush=True)
    input()

asyncio.run(main())
"""
    with forked.Process("-c", program) as done:
        child = os.pidfd_open(int(done.stdout.readline()))
        done.communicate("\n", timeout=60)
        assert done.returncode == 0
        assert has_ended(child)
        os.close(child)
