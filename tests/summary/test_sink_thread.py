"""The queue and the thread of a sink: batches, delays, bounds, retries, closes and forks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from asyncmon.summary.sink_thread import SinkThread
from asyncmon.system.background_worker import BackgroundWorker, new_worker


class Place:
    """A target that keeps the batches, and refuses them while ``refuses``."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.kept: list[int] = []
        self.synced = self.closed = 0
        self.refuses = False
        self.written = threading.Event()

    @property
    def unwritten(self) -> int:
        return len(self.kept)

    def write(self, records: list[int], sync: bool) -> None:
        self.kept += records
        if self.refuses:
            raise OSError("the place is full")
        if self.kept:
            self.batches.append(self.kept)
        self.kept, self.synced = [], self.synced + sync
        self.written.set()

    def close(self) -> None:
        self.closed += 1

    def forget(self) -> None:
        self.kept = []


class ManualWorker:
    """A worker that a test runs."""

    def __init__(self, _name: str) -> None:
        self.delays: list[float] = []
        self.hurried = 0
        self.fn: Callable[[], object] | None = None
        workers.append(self)

    def call_later(self, secs: float, fn: Callable[[], object]) -> None:
        assert self.fn is None, "one function at a time"
        self.delays.append(secs)
        self.fn = fn

    def hurry(self) -> None:
        self.hurried += 1

    def run(self) -> None:
        fn, self.fn = self.fn, None
        assert fn is not None
        fn()

    async def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        return fn(*args)

    def submit(self, fn: Callable[..., object], *args: Any) -> Any:
        raise NotImplementedError

    def shutdown(self) -> None: ...


workers: list[ManualWorker] = []


@pytest.fixture
def manual() -> Iterator[list[ManualWorker]]:
    workers.clear()
    new_worker.set(ManualWorker)
    yield workers
    new_worker.set(BackgroundWorker)


def test_records_are_written_together_after_the_delay(manual: list[ManualWorker]) -> None:
    place = Place()
    sink = SinkThread[int]("a place", place, secs=2.0, batch=100)
    for record in range(3):
        sink.put(record)
    (worker,) = manual
    assert (worker.delays, worker.hurried, len(sink)) == ([2.0], 0, 3)
    worker.run()
    assert place.batches == [[0, 1, 2]]
    assert worker.fn is None  # idle until the next record
    sink.put(3)
    assert worker.delays == [2.0, 2.0]


def test_a_full_batch_is_written_at_once_but_at_most_once_a_second(manual: list[ManualWorker]) -> None:
    sink = SinkThread[int]("a place", Place(), secs=2.0, batch=2)
    for record in range(5):
        sink.put(record)
    assert manual[0].hurried == 1


def test_a_refused_write_is_repeated_and_logged_once(
    manual: list[ManualWorker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    place = Place()
    sink = SinkThread[int]("a place", place, secs=0.1, batch=100)
    place.refuses = True
    sink.put(1)
    manual[0].run()
    sink.put(2)
    manual[0].run()  # the first batch again; what follows stays in the queue, which is bounded
    assert (place.unwritten, len(sink)) == (1, 1)
    assert manual[0].delays == [0.1, 1.0, 1.0]
    place.refuses = False
    manual[0].run()
    assert place.batches == [[1], [2]]
    assert manual[0].fn is None
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_a_full_queue_drops_the_oldest_record_that_may_be_dropped(manual: list[ManualWorker]) -> None:
    place = Place()
    sink = SinkThread[int]("a place", place, secs=1.0, most=3, may_drop=lambda record: record > 0)
    for record in (0, 1, 2, 3, 4):
        sink.put(record)
    assert sink.dropped == 2
    manual[0].run()
    assert place.batches == [[0, 3, 4]]


def test_a_signal_handler_that_interrupts_a_put_may_put(manual: list[ManualWorker]) -> None:
    """The handler runs in the thread that holds the lock: another lock would hang the training."""

    def interrupted(record: int) -> bool:
        if not interrupts:
            interrupts.append(record)
            sink.put(9, drops=False)
        return True

    interrupts: list[int] = []
    place = Place()
    sink = SinkThread[int]("a place", place, secs=1.0, most=1, may_drop=interrupted)
    sink.put(1)
    sink.put(2)
    manual[0].run()
    assert place.batches == [[9, 2]]


def test_a_target_that_fails_otherwise_loses_the_batch_and_no_later_one(
    manual: list[ManualWorker], caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Place):
        def write(self, records: list[int], sync: bool) -> None:
            if 1 in records:
                raise ZeroDivisionError
            super().write(records, sync)

    place = Faulty()
    sink = SinkThread[int]("a place", place, secs=1.0)
    sink.put(1)
    manual[0].run()
    sink.put(2)
    manual[0].run()
    assert place.batches == [[2]]
    assert "Records for a place are lost." in caplog.text


def test_no_snapshot_while_records_are_written(manual: list[ManualWorker]) -> None:
    found: list[Any] = []

    class Looked(Place):
        def write(self, records: list[int], sync: bool) -> None:
            found.append(sink.snapshot(lambda: "progress"))
            super().write(records, sync)

    sink = SinkThread[int]("a place", Looked(), secs=1.0)
    sink.put(1)
    assert sink.snapshot(lambda: "progress") == ("progress", [1])
    manual[0].run()
    assert found == [None]
    assert sink.snapshot(lambda: "progress") == ("progress", [])


async def _flushed(sink: SinkThread[int]) -> None:
    sink.put(2)
    await sink.flush()


def test_one_sink_works_before_in_between_and_after_loops_and_after_a_close() -> None:
    place = Place()
    sink = SinkThread[int]("a place", place, secs=60.0, batch=100)
    sink.put(1)
    asyncio.run(_flushed(sink))
    sink.put(3)
    asyncio.run(_flushed(sink))
    asyncio.run(sink.close())
    assert [record for batch in place.batches for record in batch] == [1, 2, 3, 2]
    assert (place.synced, place.closed) == (3, 1)
    sink.put(4)
    asyncio.run(sink.close())
    assert place.batches[-1] == [4]


def test_the_thread_writes_without_a_loop() -> None:
    place = Place()
    sink = SinkThread[int]("a place", place, secs=0.0)
    threading.Thread(target=sink.put, args=(1,)).start()
    assert place.written.wait(10)


AT_EXIT = """
import sys
from asyncmon.summary import FileWriter

FileWriter(sys.argv[1]).add_scalar("loss", 1.0, 1)
"""


def test_what_is_pending_at_the_exit_of_the_program_is_written(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", AT_EXIT, tmp_path], check=True, timeout=60)
    from asyncmon.summary import find_event_files, read_scalars

    (paths,) = find_event_files(tmp_path).values()
    assert [point.value for point in read_scalars(paths)["loss"]] == [1.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_has_none_of_the_pending_records() -> None:
    place = Place()
    sink = SinkThread[int]("a place", place, secs=60.0, batch=100)
    sink.put(1)
    child = os.fork()
    if not child:
        os._exit(len(sink))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(sink) == 1
    asyncio.run(sink.close())
