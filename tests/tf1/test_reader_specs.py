"""What the ops of readers carry is plain data: a copy of it stands for the same reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError
from tests.graph.queues.test_specs import copy_attrs

pytestmark = pytest.mark.asyncio


async def test_readers_of_all_kinds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ab\n")
    with tf.Graph().as_default() as graph:
        names = tf.FIFOQueue(9, [tf.string], shapes=[[]])
        put = names.enqueue(str(path))
        readers = [
            tf.TextLineReader(skip_header_lines=0),
            tf.WholeFileReader(),
            tf.IdentityReader(),
            tf.FixedLengthRecordReader(1, header_bytes=1, footer_bytes=1, encoding=""),
            tf.TFRecordReader(),
        ]
        reads = [reader.read(names).value for reader in readers]
        counts = [reader.num_records_produced() for reader in readers]
        copy_attrs(graph)
        async with tf.Session() as sess:
            found = []
            for read in reads[:4]:
                await sess.run(put)
                found.append(await sess.run(read))
            assert await sess.run(counts) == [1, 1, 1, 1, 0]
    assert found == [b"ab", b"ab\n", str(path).encode(), b"b"]


async def test_reader_of_an_unknown_kind() -> None:
    with tf.Graph().as_default() as graph:
        count = tf.IdentityReader().num_records_produced()
        count.op.attrs["reader"] = replace(count.op.attrs["reader"], kind="Cube")
        async with tf.Session(graph=graph) as sess:
            with pytest.raises(InvalidArgumentError, match="Reader kind 'Cube' is not one of"):
                await sess.run(count)
