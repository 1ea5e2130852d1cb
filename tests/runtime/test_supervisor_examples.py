"""The documented examples of the original's supervisor, with only ``await`` and ``async`` added."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph as tf
from asyncmon.errors import AbortedError
from asyncmon.graph.session.session import Session
from asyncmon.runtime import Recovery, Supervisor, basic_train_loop
from asyncmon.runtime import Session as AnySession
from asyncmon.runtime.graph_program import GraphProgram
from asyncmon.summary import scalar, summary_iterator
from asyncmon.testing import assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest.fixture
def my_train_op() -> Iterator[Any]:
    with tf.Graph().as_default():
        step = tf.create_global_step()
        loss = tf.Variable(np.float32(16), name="loss")
        with tf.control_dependencies([tf.assign(loss, loss / 2)]):
            train_op = tf.assign_add(step, 1)
        yield train_op


async def tags(folder: Path) -> list[tuple[str, int]]:
    found = []
    for path in sorted(folder.glob("events.*")):  # noqa: ASYNC240 -- a test
        async for event in summary_iterator(path):
            found += [(value.tag, event.step) for value in event.summary.value]
    return found


async def test_use_for_a_single_program(my_train_op: Any, tmp_path: Path) -> None:
    # Create a Supervisor that will checkpoint the model in a directory.
    sv = Supervisor(logdir=tmp_path)
    # Get a session managed by the supervisor.
    async with sv.managed_session("") as sess:
        # Use the session to train the graph.
        while not sv.should_stop():
            if await sess.run(my_train_op) == 10:
                sv.request_stop()


class Shared(GraphProgram):
    """A graph whose sessions are all one, as those of replicas with one master."""

    def __init__(self, graph: tf.Graph) -> None:
        super().__init__(graph)
        self.master = Session(graph=graph)

    def create_session(self, target: str = "", config: Any = None) -> Any:
        return Replica(self.master)


class Replica:
    """One client of the shared session."""

    def __init__(self, master: Session) -> None:
        self._master = master

    def __getattr__(self, name: str) -> Any:
        return getattr(self._master, name)

    async def close(self) -> None:
        pass


async def test_use_for_multiple_replicas(my_train_op: Any, tmp_path: Path) -> None:
    program = Shared(my_train_op.graph)
    done: dict[int, int] = {}

    async def replica(task_index: int) -> None:
        # Choose a task as the chief. This could be based on server_def.task_index, for example.
        is_chief = task_index == 0
        sv = Supervisor(program, logdir=tmp_path, is_chief=is_chief, recovery_wait_secs=1)
        async with sv.managed_session("") as sess:
            while not sv.should_stop():
                await sess.run(my_train_op)
                await asyncio.sleep(0.1)
                done[task_index] = done.get(task_index, 0) + 1
                if done[task_index] == 5:
                    break

    async with assert_nothing_left_behind():
        others = [asyncio.create_task(replica(number)) for number in (1, 2)]
        await asyncio.sleep(1)
        assert done == {}  # they wait for the chief to initialise
        await asyncio.gather(replica(0), *others)
        assert done == {0: 5, 1: 5, 2: 5}
        assert program.master.global_step == 15
        await program.master.close()  # a step that took long on a busy machine has started its threads
    assert await am.latest_checkpoint(tmp_path) is not None


async def test_launching_additional_services(my_train_op: Any, tmp_path: Path) -> None:
    loss = my_train_op.graph.get_tensor_by_name("loss:0")
    printed: list[float] = []

    async def print_loss(sess: AnySession) -> None:
        printed.append(float(await sess.run(loss)))

    sv = Supervisor(logdir=tmp_path)
    async with sv.managed_session("") as sess:
        # Call print_loss() every 60s, with the argument (sess,)
        sv.loop(60, print_loss, (sess,))
        while not sv.should_stop():
            if await sess.run(my_train_op) == 4:
                sv.request_stop()
            await asyncio.sleep(50)
    assert printed == [8, 4, 2]  # at 0, 60 and 120 s


async def test_launching_fewer_services(my_train_op: Any, tmp_path: Path) -> None:
    my_summary_op = scalar("cost", my_train_op.graph.get_tensor_by_name("loss:0"))
    # Create a Supervisor with no automatic summaries.
    sv = Supervisor(logdir=tmp_path, is_chief=True, summary_op=None)
    # As summary_op was None, managed_session() does not start the summary thread.
    async with sv.managed_session("") as sess:
        for step in range(250):
            if sv.should_stop():
                break
            if step % 100 == 0:
                # Create the summary every 100 chief steps.
                _, summ = await sess.run([my_train_op, my_summary_op])
                await sv.summary_computed(sess, summ)
            else:
                # Train normally
                await sess.run(my_train_op)
    assert [what for what in await tags(tmp_path) if what[0] == "cost"] == [
        ("cost", 1), ("cost", 101), ("cost", 201),
    ]  # fmt: skip


async def test_launching_no_saver(my_train_op: Any, tmp_path: Path) -> None:
    sv = Supervisor(logdir=tmp_path, saver=None)
    async with sv.managed_session("") as sess:
        await sess.run(my_train_op)
    assert await am.latest_checkpoint(tmp_path) is None


async def test_custom_model_initialization(my_train_op: Any, tmp_path: Path) -> None:
    loss = my_train_op.graph.get_tensor_by_name("loss:0")

    async def load_pretrain(sess: AnySession) -> None:
        await sess.load({"loss": np.float32(3)})

    sv = Supervisor(logdir=tmp_path, init_fn=load_pretrain)
    async with sv.managed_session("") as sess:
        assert await sess.run(loss) == 3


async def test_basic_train_loop_bl_1(my_train_op: Any, tmp_path: Path) -> None:
    """After an AbortedError, a whole new session, restored; for ever by default."""
    sv = Supervisor(logdir=tmp_path, save_model_secs=1, save_summaries_secs=0)
    sessions, steps = [], []

    async def train_step(sess: AnySession, last: int, *, fail_at: tuple[int, ...]) -> None:
        if sess not in sessions:
            sessions.append(sess)
        steps.append(int(await sess.run(my_train_op)))
        await asyncio.sleep(1)
        if len(steps) in fail_at:
            raise AbortedError("preempted")
        if steps[-1] >= last:
            sv.request_stop()

    async with assert_nothing_left_behind():
        await basic_train_loop(sv, train_step, (10,), {"fail_at": (3, 6, 7)})
    assert len(sessions) == 4
    assert steps[-1] == 10
    assert steps[:3] == [1, 2, 3]


async def test_other_errors_leave_and_a_policy_can_be_given_bl_1(my_train_op: Any) -> None:
    sv = Supervisor()
    calls = 0

    def fail(_sess: AnySession, error: Exception) -> None:
        nonlocal calls
        calls += 1
        raise error

    with pytest.raises(ValueError, match="broken"):
        await basic_train_loop(sv, fail, (ValueError("broken"),))
    assert calls == 1
    policy = Recovery(errors=(ValueError,), max_attempts=3)
    with pytest.raises(ValueError, match="broken"):
        await basic_train_loop(sv, fail, (ValueError("broken"),), recovery=policy)
    assert calls == 5
