"""Checkpoints of sessions in a child process, which writes the tensor files itself."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.system.files import FileCalls
from tests.distributed.test_local import pid_of

pytestmark = pytest.mark.asyncio

SIZE = 1 << 20  # elements: 4 MB


def variables() -> tuple[Any, Any]:
    step = am.get_or_create_global_step()
    w = graph.get_variable("w", initializer=np.arange(SIZE, dtype=np.float32))
    graph.get_variable("b", initializer=np.ones(3, np.float32))
    graph.get_variable("word", initializer=np.array(b"text"), dtype=graph.string)
    return step, w


class Received:
    """Bytes of shared memory that this process is given."""

    def __init__(self, sess: graph.Session) -> None:
        backend: Any = sess.backend
        self.nbytes = 0
        self._inbox = backend.channel.stream._inbox
        self._take = self._inbox.take
        self._inbox.take = self._counted

    def _counted(self, start: int, size: int, nbytes: int) -> memoryview:
        self.nbytes += nbytes
        return self._take(start, size, nbytes)


async def contents(path: str) -> dict[str, Any]:
    reader = await am.load_checkpoint(path)
    return {name: await reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


async def test_a_save_leaves_the_tensors_in_the_child(tmp_path: Path) -> None:
    step, w = variables()
    saver = am.Saver()
    async with graph.Session("local") as sess:
        await sess.run(graph.global_variables_initializer())
        received = Received(sess)
        handle = saver.start_save(sess, tmp_path / "m", global_step=step)
        await sess.run(w.assign(graph.zeros([SIZE])).op)  # after the snapshot
        path = await handle
        assert received.nbytes == 0
        await sess.run(w.assign(graph.ones([SIZE])).op)
        await saver.restore(sess, path)
        np.testing.assert_array_equal(await sess.run(w), np.arange(SIZE, dtype=np.float32))
    async with graph.Session() as here:
        await saver.restore(here, path)
        again = await saver.save(here, tmp_path / "here", global_step=0)
    await saver.close()
    assert {key: one.tolist() for key, one in (await contents(path)).items()} == {
        key: one.tolist() for key, one in (await contents(again)).items()
    }
    names = [f"{prefix}-0.safetensors" for prefix in ("m", "here")]
    sizes = {(tmp_path / name).stat().st_size for name in names}
    assert len(sizes) == 1
    assert handle.nbytes == sizes.pop()


async def test_a_hooks_save_between_two_steps_leaves_them_there_too(tmp_path: Path) -> None:
    step, w = variables()
    train = graph.group(step.assign_add(1), w.assign_add(graph.ones([SIZE])))
    async with am.MonitoredTrainingSession("local", checkpoint_dir=tmp_path) as sess:
        received = Received(sess.raw_session())
        await sess.run(train)
        path = await sess.save()
        assert received.nbytes == 0
    np.testing.assert_array_equal((await contents(path))["w"], np.arange(1, SIZE + 1, dtype=np.float32))


async def test_stateful_objects_travel_with_what_the_child_writes(tmp_path: Path) -> None:
    class Position:
        def __init__(self) -> None:
            self.seen = np.arange(40_000)

        def state_dict(self) -> dict[str, Any]:
            return {"seen": self.seen}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.seen = state["seen"]

    variables()
    saver, position = am.Saver(), Position()
    saver.add_stateful("position", position)
    async with graph.Session("local") as sess:
        await sess.run(graph.global_variables_initializer())
        path = await saver.save(sess, tmp_path / "m")
        position.seen = np.zeros(1)
        await saver.restore(sess, path)
    await saver.close()
    np.testing.assert_array_equal(position.seen, np.arange(40_000))


async def test_savers_with_system_calls_of_their_own_get_the_tensors(tmp_path: Path) -> None:
    class Counted(FileCalls):
        written = 0

        def write(self, descriptor: int, data: bytes | memoryview) -> int:
            Counted.written += len(data)
            return super().write(descriptor, data)

    _, w = variables()
    saver = am.Saver(calls=Counted())
    async with graph.Session("local") as sess:
        await sess.run(graph.global_variables_initializer())
        received = Received(sess)
        path = await saver.save(sess, tmp_path / "m")
        assert received.nbytes == 4 * SIZE
        await saver.restore(sess, path)
        assert (await sess.run(w))[-1] == SIZE - 1
    await saver.close()
    assert Counted.written > 4 * SIZE


def tensor_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.safetensors"))


async def test_a_child_killed_in_a_save_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    step = am.get_or_create_global_step()
    graph.get_variable("w", [1 << 26], initializer=graph.zeros_initializer())  # 268 MB
    saver = am.Saver()
    async with graph.Session("local") as sess:
        await sess.run(graph.global_variables_initializer())
        path = await saver.save(sess, tmp_path / "m", global_step=step)
        before = sorted(os.listdir(tmp_path))
        await sess.run(step.assign_add(1))
        handle = saver.start_save(sess, tmp_path / "m", global_step=step)
        while len(tensor_files(tmp_path)) < 2:
            await sess.peek(step)
        os.kill(pid_of(sess), signal.SIGKILL)
        with pytest.raises(errors.AbortedError, match="SIGKILL"):
            await handle
    assert sorted(os.listdir(tmp_path)) == before
    assert await am.latest_checkpoint(str(tmp_path)) == path
    async with graph.Session("local") as sess:
        await saver.restore(sess, path)
        assert await sess.run(step) == 0
    await saver.close()


async def test_a_save_whose_session_is_closed_is_aborted(tmp_path: Path) -> None:
    variables()
    saver = am.Saver()
    sess = graph.Session("local")
    await sess.run(graph.global_variables_initializer())
    ordered = saver.start_save(sess, tmp_path / "m", global_step=1)
    await sess.close()
    with pytest.raises(errors.AbortedError, match="closed before its snapshot"):
        await ordered
    assert not tensor_files(tmp_path)
    await saver.close()


async def test_a_save_that_is_cancelled_is_cancelled_in_the_child(tmp_path: Path) -> None:
    one = graph.constant(1.0) + 0.0
    graph.get_variable("w", [1 << 26], initializer=graph.zeros_initializer())
    saver = am.Saver()
    async with graph.Session("local") as sess:
        await sess.run(graph.global_variables_initializer())
        save = asyncio.create_task(saver.save(sess, tmp_path / "m"))
        while not tensor_files(tmp_path):
            await sess.peek(one)
        save.cancel()
        with pytest.raises(asyncio.CancelledError):
            await save
        assert not tensor_files(tmp_path)
        assert await sess.run(one) == 1.0
    await saver.close()


async def test_a_save_whose_session_is_closed_while_it_is_written_is_aborted(tmp_path: Path) -> None:
    one = graph.constant(1.0) + 0.0
    graph.get_variable("w", [1 << 26], initializer=graph.zeros_initializer())  # 268 MB
    saver = am.Saver()
    sess = graph.Session("local")
    await sess.run(graph.global_variables_initializer())
    ordered = saver.start_save(sess, tmp_path / "m", global_step=1)
    while not tensor_files(tmp_path):
        await sess.peek(one)
    await sess.close()
    with pytest.raises(errors.AbortedError, match="closed before its snapshot"):
        await ordered
    assert not tensor_files(tmp_path)
    await saver.close()


@pytest.mark.parametrize(
    ("number", "secs"),
    [(signal.SIGKILL, 60.0), pytest.param(signal.SIGSTOP, 2.0, marks=pytest.mark.slow)],
)
async def test_a_save_that_is_lost_with_its_child_does_not_stop_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: signal.Signals, secs: float
) -> None:
    step, _ = variables()
    train = step.assign_add(1)
    config = am.SessionConfig()
    config.rpc_options.timeout_secs = secs
    async with am.MonitoredTrainingSession(
        "local", checkpoint_dir=str(tmp_path), config=config,
        hooks=[am.StopAtStepHook(last_step=5)], save_checkpoint_steps=2, save_checkpoint_secs=None,
    ) as sess:  # fmt: skip
        await sess.run(train)
        assert await sess.run(train) == 2  # the save of this step is running
        os.kill(pid_of(sess.raw_session()), number)
        assert await sess.run(train) == 1
        while not sess.should_stop():
            await sess.run(train)
    assert (await am.latest_checkpoint(str(tmp_path))).endswith("model.ckpt-5")
    assert sum("Recovered from" in one.getMessage() for one in caplog.records) == 1
