"""One file per directory: writers of a hook, a session, a thread, another loop, a child process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import asyncmon as am
from asyncmon.summary import Event, FileWriter, SessionLog, summary_iterator
from asyncmon.testing import ScriptedCreator, ScriptedSession
from tests import forked

Scalars = list[tuple[int, str, float]]
virtual = pytest.mark.virtual_time


def shown(directory: Path, tag: str) -> list[int]:
    """Return the steps that TensorBoard displays."""
    read = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    return [event.step for event in read.Scalars(tag)]


class Writes(am.SessionRunHook):
    """Writes to a directory with a writer of its own."""

    def __init__(self, directory: Path, before: int = 0, close: bool = True) -> None:
        self._directory = directory
        self._before = before
        self._close = close

    async def begin(self) -> None:
        self.writer = FileWriter(self._directory)
        for step in range(self._before):
            self.writer.add_scalar("hook", 1.0, step)
        if self._before:
            await self.writer.flush()

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.writer.add_scalar("hook", 1.0, run_values.step)

    async def end(self, session: Any) -> None:
        if self._close:
            await self.writer.close()


def trained(*hooks: Any) -> am.MonitoredSession:
    return am.MonitoredSession(ScriptedCreator(ScriptedSession()), hooks)


@pytest.mark.asyncio
@virtual
@pytest.mark.parametrize("close", [True, False])
async def test_a_start_hides_no_point_of_a_hooks_writer(
    tmp_path: Path, event_files: Callable[[], list[Path]], close: bool
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    sess = trained(
        Writes(tmp_path / "link", close=close),
        am.StepCounterHook(every_n_steps=100, output_dir=tmp_path),
    )
    async with sess:
        for _ in range(1200):
            await sess.run("a")
            await asyncio.sleep(0.01)
    assert len(event_files()) == 1
    assert shown(tmp_path, "hook") == list(range(1, 1201))
    assert len(shown(tmp_path, "global_step/sec")) == 11
    logs = [event.session_log.status for event in summary_iterator(event_files()[0])]
    assert logs.count(SessionLog.START) == logs.count(SessionLog.STOP) == 1


@pytest.mark.asyncio
@virtual
@pytest.mark.parametrize("closed", [True, False])
async def test_a_start_hides_no_point_that_was_written_before_the_session(
    tmp_path: Path, closed: bool
) -> None:
    hook = Writes(tmp_path, before=1200)
    sess = trained(hook, am.StepCounterHook(every_n_steps=1, output_dir=tmp_path))
    if closed:
        await hook.begin()
        await hook.writer.close()
    async with sess:
        await sess.run("a")
    assert set(shown(tmp_path, "hook")) == set(range(1200))


@pytest.mark.asyncio
@virtual
async def test_a_start_of_a_supervisor_hides_no_earlier_point(tmp_path: Path) -> None:
    async with FileWriter(tmp_path) as writer:
        for step in range(20):
            writer.add_scalar("a", 1.0, step)
        writer.add_session_log(SessionLog(status=SessionLog.START), 0)
        writer.add_scalar("b", 1.0, 1)
    assert (shown(tmp_path, "a"), shown(tmp_path, "b")) == (list(range(20)), [1])


@pytest.mark.asyncio
@virtual
async def test_a_start_after_a_recovery_hides_the_lost_steps_of_all_writers(tmp_path: Path) -> None:
    session, own = FileWriter(tmp_path), FileWriter(tmp_path)
    session.start(0)
    for step in (1, 2, 3):
        own.add_scalar("own", 1.0, step)
    session.start(1)
    for step in (2, 3, 4):
        own.add_scalar("own", 2.0, step)
    await session.close()
    await own.close()
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in read.Scalars("own")] == [(1, 1.0), (2, 2.0), (3, 2.0), (4, 2.0)]


@pytest.mark.asyncio
async def test_a_start_of_a_new_process_hides_the_steps_that_are_repeated(tmp_path: Path) -> None:
    """Two processes in turn: the second one has no memory of the first."""
    code = (
        "import asyncio, sys\nfrom asyncmon.summary import FileWriter\n"
        "async def main():\n"
        "    async with FileWriter(sys.argv[1]) as writer:\n"
        "        writer.start(0)\n"
        "        for step in range(1, 11): writer.add_scalar('a', 1.0, step)\n"
        "asyncio.run(main())\n"
    )
    forked.run("-c", code, str(tmp_path), check=True)
    async with FileWriter(tmp_path) as writer:
        writer.start(5)
        writer.add_scalar("a", 2.0, 6)
    assert shown(tmp_path, "a") == [1, 2, 3, 4, 5, 6]


@pytest.mark.asyncio
@virtual
async def test_a_closed_writer_leaves_the_file_to_the_others(
    tmp_path: Path, event_files: Callable[[], list[Path]], scalars: Callable[[], Scalars]
) -> None:
    first, second = FileWriter(tmp_path, filename_suffix=".a"), FileWriter(f"{tmp_path}/x/..")
    first.add_scalar("a", 1.0, 1)
    second.add_scalar("b", 1.0, 2)
    await first.close()
    assert scalars() == [(1, "a", 1.0), (2, "b", 1.0)]  # close has flushed
    with pytest.warns(UserWarning, match="closed FileWriter"):
        first.add_scalar("a", 1.0, 3)
    with pytest.warns(UserWarning, match="closed FileWriter"):
        await first.flush()
    await first.reopen()
    first.add_scalar("a", 1.0, 4)
    await second.close()
    await first.close()
    assert [step for step, _, _ in scalars()] == [1, 2, 4]
    (path,) = event_files()
    assert path.name.endswith(".a")
    assert (first.closed, second.closed) == (True, True)


@pytest.mark.asyncio
@virtual
async def test_tags_of_runs_and_graphs_are_those_of_the_file(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    graph = am.graph.Graph()
    async with FileWriter(tmp_path, graph) as first, FileWriter(tmp_path, graph) as second:
        first.add_run_metadata(b"m", "step_1", 1)
        with pytest.raises(ValueError, match="already used"):
            second.add_run_metadata(b"m", "step_1", 1)
    assert len([event for event in events() if event.WhichOneof("what") == "graph_def"]) == 1


@pytest.mark.asyncio
async def test_writers_of_other_threads_and_loops_share_the_file(
    tmp_path: Path, event_files: Callable[[], list[Path]], scalars: Callable[[], Scalars]
) -> None:
    async def other() -> None:
        async with FileWriter(tmp_path) as writer:
            writer.add_scalar("other", 1.0, 2)
            await writer.flush()
            assert (2, "other", 1.0) in scalars()
            await writer.drain()

    async with FileWriter(tmp_path) as writer:
        writer.add_scalar("here", 1.0, 1)
        await asyncio.to_thread(asyncio.run, other())
        await asyncio.to_thread(lambda: FileWriter(tmp_path).add_scalar("thread", 1.0, 3))
    assert scalars() == [(1, "here", 1.0), (2, "other", 1.0), (3, "thread", 1.0)]
    assert len(event_files()) == 1


def test_a_writer_continues_when_the_loop_of_its_file_has_ended(
    tmp_path: Path, scalars: Callable[[], Scalars]
) -> None:
    first, second = FileWriter(tmp_path), FileWriter(tmp_path)

    async def open_only() -> None:
        await first.open()

    stopped = asyncio.new_event_loop()
    stopped.run_until_complete(open_only())

    async def use() -> None:
        second.add_scalar("a", 1.0, 1)
        await second.flush()
        assert scalars() == [(1, "a", 1.0)]
        second.add_scalar("a", 1.0, 2)
        await second.close()
        await first.close()

    asyncio.run(use())
    stopped.run_until_complete(asyncio.sleep(0.01))
    stopped.close()
    assert [step for step, _, _ in scalars()] == [1, 2]


def test_a_flush_survives_the_end_of_the_other_loop(
    tmp_path: Path, scalars: Callable[[], Scalars]
) -> None:
    opened, flushing, ended = threading.Event(), threading.Event(), threading.Event()

    async def owner() -> None:
        await FileWriter(tmp_path).open()
        opened.set()
        await asyncio.to_thread(flushing.wait, 10)

    def run() -> None:
        asyncio.run(owner())
        ended.set()

    async def use() -> None:
        writer = FileWriter(tmp_path)
        writer.add_scalar("a", 1.0, 1)
        flushing.set()
        while not ended.is_set():
            await writer.flush()
        writer.add_scalar("a", 1.0, 2)
        await writer.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert opened.wait(10)
    asyncio.run(use())
    thread.join()
    assert [step for step, _, _ in scalars()] == [1, 2]


@pytest.mark.asyncio
async def test_a_second_process_is_warned(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom asyncmon.summary import FileWriter\n"
        "async def main():\n"
        "    async with FileWriter(sys.argv[1]) as writer: writer.add_scalar('a', 1.0, 1)\n"
        "asyncio.run(main())\n"
    )

    def second() -> str:
        return forked.run("-c", code, str(tmp_path), check=True).stderr

    async with FileWriter(tmp_path):
        (tmp_path / "a.tfevents.link").symlink_to("nowhere")
        os.mkfifo(tmp_path / "b.tfevents.fifo")
        warned = await asyncio.to_thread(second)
        assert f"Another process writes events to '{tmp_path}'" in warned
    assert await asyncio.to_thread(second) == ""  # the first one has ended


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_writes_a_file_of_its_own(
    tmp_path: Path, event_files: Callable[[], list[Path]]
) -> None:
    code = (
        "import asyncio, os, sys\nfrom asyncmon.summary import FileWriter\n"
        "writer = FileWriter(sys.argv[1])\n"
        "async def use(step):\n"
        "    writer.add_scalar('a', 1.0, step)\n"
        "    await writer.flush()\n"
        "async def main():\n"
        "    await use(1)\n"
        "    writer.add_scalar('a', 1.0, 2)\n"
        "    if os.fork() == 0:\n"
        "        asyncio.events._set_running_loop(None)\n"
        "        asyncio.run(use(10))\n"
        "        os._exit(0)\n"
        "    await asyncio.to_thread(os.wait)\n"
        "    await writer.close()\n"
        "asyncio.run(main())\n"
    )
    done = forked.run("-c", code, str(tmp_path), check=True)
    steps = [[event.step for event in summary_iterator(path)][1:] for path in event_files()]
    assert sorted(steps) == [[1, 2], [10]]
    assert "Another process writes events" in done.stderr
