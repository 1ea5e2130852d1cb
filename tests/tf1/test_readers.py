"""Readers give the records of files, lose none of a failed run, and name damaged ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import asyncmon.tf1 as tf
from asyncmon.errors import DataLossError, InvalidArgumentError, NotFoundError, OutOfRangeError

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def sess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tf.Session]:
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default() as graph:
        async with tf.Session(graph=graph) as session:
            yield session


def write(name: str, records: list[bytes], options: Any = None) -> str:
    with tf.python_io.TFRecordWriter(name, options) as writer:
        for record in records:
            writer.write(record)
    return name


def damage(name: str, found: bytes, instead: bytes) -> None:
    path = Path(name)
    path.write_bytes(path.read_bytes().replace(found, instead))


async def names(sess: tf.Session, *found: str) -> tf.FIFOQueue:
    """Return a closed queue of names."""
    queue = tf.FIFOQueue(-1, [tf.string], shapes=[[]])
    await sess.run(queue.enqueue_many([list(found)]))
    await sess.run(queue.close())
    return queue


async def all_of(sess: tf.Session, read: Any) -> list[Any]:
    """Return key and value of each read until the end of the data."""
    found = []
    while True:
        try:
            found.append(tuple(await sess.run(read)))
        except OutOfRangeError:
            return found


@pytest.mark.parametrize("kind", ["", "ZLIB", "GZIP"])
async def test_tfrecords(sess: tf.Session, kind: str) -> None:
    options = tf.python_io.TFRecordOptions(kind)
    big = os.urandom(600_000)
    write("a", [b"1", b"", big], options)
    write("empty", [], options)
    write("b", [b"2"], options)
    reader = tf.TFRecordReader(options=options)
    found = await all_of(sess, reader.read(await names(sess, "a", "empty", "b")))
    assert found == [(b"a:0", b"1"), (b"a:17", b""), (b"a:33", big), (b"b:0", b"2")]
    counts = [reader.num_records_produced(), reader.num_work_units_completed()]
    assert await sess.run(counts) == [4, 3]


async def test_lines(sess: tf.Session, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"head\nx\r\n\nlast")
    (tmp_path / "b").write_bytes(b"head\n" + b"y" * 300_000 + b"\n")
    (tmp_path / "c").write_bytes(b"only")
    reader = tf.TextLineReader(skip_header_lines=1)
    found = await all_of(sess, reader.read(await names(sess, "a", "b", "c")))
    assert found == [(b"a:2", b"x"), (b"a:3", b""), (b"a:4", b"last"), (b"b:2", b"y" * 300_000)]


async def test_whole_files_and_names(sess: tf.Session, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").write_bytes(b"")
    reader = tf.WholeFileReader()
    queue = await names(sess, "a", "b")
    assert tuple(await sess.run(reader.read_up_to(queue, 5).values)) == (b"content",)
    assert await all_of(sess, reader.read(queue)) == [(b"b", b"")]
    identity = tf.IdentityReader().read(await names(sess, "x"))
    assert await all_of(sess, identity) == [(b"x", b"x")]


async def test_records_of_one_length(sess: tf.Session, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"HH0123456789F")
    queue = await names(sess, "a")
    found = await all_of(sess, tf.FixedLengthRecordReader(4, 2, 1).read(queue))
    assert found == [(b"a:0", b"0123"), (b"a:1", b"4567")]
    reader = tf.FixedLengthRecordReader(2, 2, 1, hop_bytes=3)
    found = await all_of(sess, reader.read(await names(sess, "a")))
    assert [value for _key, value in found] == [b"01", b"34", b"67"]
    data = os.urandom(1_000_001)
    (tmp_path / "b").write_bytes(data)
    found = await all_of(sess, tf.FixedLengthRecordReader(1000).read(await names(sess, "b")))
    assert b"".join(value for _key, value in found) == data[:-1]
    with pytest.raises(ValueError, match="record_bytes must be positive"):
        tf.FixedLengthRecordReader(0)
    with pytest.raises(ValueError, match="Not a valid compression_type: 'LZ'"):
        tf.FixedLengthRecordReader(1, encoding="LZ")


async def test_up_to_so_many_records_of_a_file(sess: tf.Session) -> None:
    write("a", [b"1", b"2", b"3"])
    write("b", [b"4", b"5"])
    reader = tf.TFRecordReader()
    read = reader.read_up_to(await names(sess, "a", "b"), 2)
    assert read.values.shape.as_list() == [None]
    found = [list(values) for _keys, values in await all_of(sess, read)]
    assert found == [[b"1", b"2"], [b"3"], [b"4", b"5"]]
    with pytest.raises(InvalidArgumentError, match="num_records must be positive, got 0"):
        await sess.run(reader.read_up_to(await names(sess, "a"), 0))


async def test_a_missing_file_is_named_and_its_name_stays_in_the_queue(sess: tf.Session) -> None:
    queue = await names(sess, "absent", "a")
    write("a", [b"1"])
    reader = tf.TFRecordReader()
    for _ in range(2):
        with pytest.raises(NotFoundError, match="absent; No such file or directory"):
            await sess.run(reader.read(queue))
    assert await sess.run(queue.size()) == 2
    await sess.run(queue.dequeue())
    assert await all_of(sess, reader.read(queue)) == [(b"a:0", b"1")]


async def test_a_damaged_record_is_named_and_those_before_it_are_read(sess: tf.Session) -> None:
    damage(write("a", [b"1", b"2"]), b"2", b"?")
    reader = tf.TFRecordReader()
    read = reader.read(await names(sess, "a"))
    assert tuple(await sess.run(read)) == (b"a:0", b"1")
    for _ in range(2):
        with pytest.raises(DataLossError, match="Record 1 of 'a', at byte 17"):
            await sess.run(read)
    await sess.run(reader.reset())
    assert await all_of(sess, read) == []
    assert await sess.run(reader.num_records_produced()) == 0


async def test_a_run_that_fails_gives_its_record_back(sess: tf.Session) -> None:
    """The name goes back where no other run has read from the file, else the record is the next one."""
    write("a", [b"1", b"2", b"3"])
    queue = await names(sess, "a")
    reader = tf.TFRecordReader()
    key, value = reader.read(queue)
    with tf.control_dependencies([value]):
        fails = tf.check_numerics(tf.log(-1.0), "no")
    for _ in range(2):
        with pytest.raises(InvalidArgumentError):
            await sess.run([value, fails])
        assert await sess.run([queue.size(), reader.num_records_produced()]) == [1, 0]
    assert await sess.run(key) == b"a:0"
    with pytest.raises(InvalidArgumentError):
        await sess.run([value, fails])
    assert await sess.run([queue.size(), reader.num_records_produced()]) == [0, 1]
    assert await all_of(sess, [key]) == [(b"a:17",), (b"a:34",)]


async def test_a_run_that_is_cancelled_loses_no_record(sess: tf.Session) -> None:
    count = 400
    write("a", [b"%d" % i for i in range(count)])
    queue = await names(sess, "a")
    reader = tf.TFRecordReader()
    value = reader.read(queue).value
    target = tf.FIFOQueue(count, [tf.string], shapes=[[]])
    enqueue = target.enqueue(value)
    for i in range(count):
        tasks = [asyncio.create_task(sess.run(enqueue)) for _ in range(4)]
        for _ in range(i % 7):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        if any(isinstance(result, OutOfRangeError) for result in results):
            break
    found = await sess.run(target.dequeue_many(target.size()))
    rest = await all_of(sess, [value])
    assert sorted([int(one) for one in found] + [int(one) for (one,) in rest]) == list(range(count))


async def test_several_runs_share_a_reader(sess: tf.Session) -> None:
    write("a", [b"%d" % i for i in range(50)])
    write("b", [b"%d" % i for i in range(50, 100)])
    value = tf.TFRecordReader().read(await names(sess, "a", "b")).value
    results = await asyncio.gather(*[sess.run(value) for _ in range(104)], return_exceptions=True)
    values = [int(one) for one in results if isinstance(one, bytes)]
    assert sorted(values) == list(range(100))
    assert sum(isinstance(one, OutOfRangeError) for one in results) == 4


async def test_closing_the_session_ends_a_read_that_waits(sess: tf.Session) -> None:
    queue = tf.FIFOQueue(1, [tf.string], shapes=[[]])
    reading = asyncio.create_task(sess.run(tf.TFRecordReader().read(queue)))
    await asyncio.sleep(0)
    await sess.close()
    with pytest.raises(tf.errors.CancelledError):
        await reading


async def test_a_reader_refuses_what_is_no_queue_of_names(sess: tf.Session) -> None:
    with pytest.raises(TypeError, match="from a queue, got 'x'"):
        tf.TFRecordReader().read("x")  # type: ignore[arg-type]  # refused
    with pytest.raises(TypeError, match="one string component"):
        tf.TFRecordReader().read(tf.FIFOQueue(1, [tf.int32]))
    with pytest.raises(ValueError, match="integer scalar"):
        tf.TFRecordReader().read_up_to(tf.FIFOQueue(1, [tf.string]), 0.5)
    assert not tf.TFRecordReader().supports_serialize


async def test_whole_files_as_ops(sess: tf.Session, tmp_path: Path) -> None:
    (tmp_path / "new" / "dir").mkdir(parents=True)
    (tmp_path / "new" / "dir" / "a.txt").write_text("text")
    assert await sess.run(tf.read_file("new/dir/a.txt")) == b"text"
    with pytest.raises(NotFoundError, match="absent; No such file"):
        await sess.run(tf.read_file("absent"))
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).touch()
    found = await sess.run(tf.matching_files(["*.txt", "new/*/*.txt"]))
    assert found.tolist() == [b"./a.txt", b"./b.txt", b"new/dir/a.txt"]
    for nothing in ("none*", []):
        assert (await sess.run(tf.matching_files(nothing))).tolist() == []
    for build in (lambda: tf.read_file(["a"]), lambda: tf.matching_files(5)):
        with pytest.raises(ValueError, match="string"):
            build()
