"""Files read back: whole, damaged, and while they are written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncmon import errors
from asyncmon.protobuf import varint
from asyncmon.protobuf.tfrecord import frame
from asyncmon.summary import Event, FileWriter, Summary, follow, summary_iterator
from asyncmon.testing.pytest_plugin import VirtualTime

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def record(step: int, size: int = 0) -> bytes:
    summary = Summary([Summary.Value("loss" + "x" * size, 0.5)])
    return frame(Event(step=step, summary=summary).SerializeToString())


async def test_for_and_async_for_give_the_same_events_fw_11(tmp_path: Path) -> None:
    """FW-11."""
    path = tmp_path / "events"
    path.write_bytes(b"".join(record(step) for step in range(100)))
    events = [event async for event in summary_iterator(path)]
    assert [event.step for event in events] == list(range(100))
    assert events == list(summary_iterator(str(path)))
    assert events[0].summary.value[0].tag == "loss"


async def test_it_is_an_iterator_that_goes_through_the_file_once_fw_11(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"".join(record(step) for step in range(4)))
    events = summary_iterator(path)
    assert isinstance(events, Iterator)
    assert next(events).step == 0
    assert [event.step for event in events] == [1, 2, 3]
    with pytest.raises(StopIteration):
        next(events)
    assert [event.step async for event in events] == [0, 1, 2, 3]


async def test_a_file_of_many_pieces_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"".join(record(step, 300_000) for step in range(10)))
    assert [event.step async for event in summary_iterator(path)] == list(range(10))
    assert [event.step for event in summary_iterator(path)] == list(range(10))


async def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=r"There is no event file '.*missing'"):
        next(iter(summary_iterator(tmp_path / "missing")))
    with pytest.raises(errors.NotFoundError):
        await anext(aiter(summary_iterator(tmp_path / "missing")))
    with pytest.raises(errors.NotFoundError):
        await anext(follow(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (record(3)[:-1] + b"\0", "Record 2 of .* does not match its checksum"),
        (frame(b"\xff\xff"), "Record 2 of .* matches its checksum and is no Event"),
    ],
)
async def test_damage_is_reported_after_all_that_is_before_it_fw_11(
    tmp_path: Path, tail: bytes, message: str
) -> None:
    """FW-11: a DataLossError at the record."""
    path = tmp_path / "events"
    path.write_bytes(record(1) + record(2) + tail)
    reader = iter(summary_iterator(path))
    assert [next(reader).step, next(reader).step] == [1, 2]
    with pytest.raises(errors.DataLossError, match=message):
        next(reader)
    events = aiter(summary_iterator(path))
    assert [(await anext(events)).step, (await anext(events)).step] == [1, 2]
    with pytest.raises(errors.DataLossError, match=message):
        await anext(events)


@pytest.mark.parametrize("cut", [1, 5, 13, -1])
async def test_a_partial_last_record_ends_the_events_quietly_fw_11(tmp_path: Path, cut: int) -> None:
    """FW-11: a file that is being written has one."""
    path = tmp_path / "events"
    path.write_bytes(record(1) + record(2) + record(3)[:cut])
    assert [event.step for event in summary_iterator(path)] == [1, 2]
    assert [event.step async for event in summary_iterator(path)] == [1, 2]


async def test_follow_gives_events_as_they_are_written_and_ends_with_the_session(
    tmp_path: Path, virtual_time: VirtualTime
) -> None:
    seen = []

    async def read(path: str) -> None:
        async for event in follow(path, poll_secs=1):
            seen.append((event.step, virtual_time.now()))  # noqa: PERF401 -- seen while it runs

    async with FileWriter(tmp_path, flush_secs=0) as writer:
        assert writer.path is not None
        writer.start(0)
        await writer.flush()
        reading = asyncio.create_task(read(writer.path))
        await asyncio.sleep(0.5)
        assert seen == [(0, 0.0), (1, 0.0)]
        writer.add_scalar("loss", 1.0, 1)
        await writer.flush()
        await asyncio.sleep(1)
        assert seen[2:] == [(1, 1.0)]
    await reading
    assert seen[3:] == [(0, 2.0)]


async def test_follow_waits_for_the_rest_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(record(1) + record(2)[:10])
    events = follow(path, poll_secs=1)
    assert (await anext(events)).step == 1
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(10)
    assert not waiting.done()
    with path.open("ab") as file:
        file.write(record(2)[10:])
    assert (await waiting).step == 2
    await events.aclose()


async def test_follow_reports_damage_at_the_record(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(record(1) + record(2)[:-1] + b"\0")
    events = follow(path)
    assert (await anext(events)).step == 1
    with pytest.raises(errors.DataLossError, match="Record 1"):
        await anext(events)


@pytest.mark.parametrize("inside", ["values", "texts"])
async def test_a_summary_that_would_fill_the_memory_is_damaged(tmp_path: Path, inside: str) -> None:
    content = (b"\x0a\x00" if inside == "values" else b"\x42\x00") * 600_000  # empty ones
    for number in (8, 8, 1) if inside == "texts" else ():
        content = bytes([number << 3 | 2]) + varint(len(content)) + content
    large = b"\x2a" + varint(len(content)) + content
    path = tmp_path / "events"
    path.write_bytes(record(1) + frame(large) + record(2))
    events = summary_iterator(path)
    assert next(events).step == 1
    with pytest.raises(errors.DataLossError, match="more than 200,000 values and texts"):
        next(events)
