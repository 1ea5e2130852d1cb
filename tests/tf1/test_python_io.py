"""TFRecord files outside a graph, exchanged with TensorFlow where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import DataLossError, FailedPreconditionError, NotFoundError

Options = tf.python_io.TFRecordOptions
Compression = tf.python_io.TFRecordCompressionType
KINDS = [None, Options(Compression.NONE), Options(Compression.ZLIB), Options(Compression.GZIP), "GZIP"]


@pytest.mark.parametrize("options", KINDS)
def test_records_survive_the_file(tmp_path: Path, options: Any) -> None:
    records = [b"", b"a", b"x" * 700_000, os.urandom(300_000), b"z" * 10] * 2
    with tf.python_io.TFRecordWriter(tmp_path / "x", options) as writer:
        for record in records:
            writer.write(record)
    assert list(tf.python_io.tf_record_iterator(tmp_path / "x", options)) == records


def test_what_was_flushed_can_be_read(tmp_path: Path) -> None:
    writer = tf.python_io.TFRecordWriter(str(tmp_path / "x"))
    writer.write(b"one")
    writer.flush()
    assert list(tf.python_io.tf_record_iterator(str(tmp_path / "x"))) == [b"one"]
    writer.close()
    writer.close()
    with pytest.raises(FailedPreconditionError, match="Writer is closed"):
        writer.write(b"two")


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="absent; No such file"):
        list(tf.python_io.tf_record_iterator(tmp_path / "absent"))
    with pytest.raises(NotFoundError, match="none/x; No such file"):
        tf.python_io.TFRecordWriter(tmp_path / "none" / "x")
    with tf.python_io.TFRecordWriter(tmp_path / "x") as writer:
        with pytest.raises(TypeError, match="A record is bytes, got str"):
            writer.write("text")
        writer.write(b"one")
        writer.write(b"two")
    whole = (tmp_path / "x").read_bytes()
    for name, data, where in [("flip", whole[:-5] + b"?" + whole[-4:], 19), ("cut", whole[:-1], 19)]:
        (tmp_path / name).write_bytes(data)
        records = tf.python_io.tf_record_iterator(tmp_path / name)
        assert next(records) == b"one"
        with pytest.raises(DataLossError, match=rf"{name}'?, at byte {where}"):
            next(records)


def test_compressed_data_that_is_damaged_is_a_loss(tmp_path: Path) -> None:
    with tf.python_io.TFRecordWriter(tmp_path / "x", "GZIP") as writer:
        for i in range(100):
            writer.write(os.urandom(i))
    data = (tmp_path / "x").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-20])
    (tmp_path / "plain").write_bytes(b"no gzip")
    for name, match in [("cut", "cut off"), ("plain", "holds no GZIP data")]:
        with pytest.raises(DataLossError, match=rf"{match}.*|{name}.*{match}"):
            list(tf.python_io.tf_record_iterator(tmp_path / name, "GZIP"))


def test_options_say_what_they_cannot_do() -> None:
    assert Options.get_compression_type_string(Options("ZLIB")) == "ZLIB"
    assert Options.get_compression_type_string(Compression.NONE) == ""
    with pytest.raises(ValueError, match="Not a valid compression_type: 'LZ'"):
        Options("LZ")
    with pytest.raises(TypeError, match="window_bits"):
        Options("ZLIB", window_bits=9)  # type: ignore[call-arg]  # refused
    with pytest.raises(AttributeError, match="did you mean 'TFRecordWriter'"):
        _ = tf.python_io.TFRecordWritr


THEIRS = """
import json, sys
import tensorflow.compat.v1 as tf
folder = sys.argv[1]
example = tf.train.Example()
example.features.feature["i"].int64_list.value.extend([1, -2, 1 << 40])
example.features.feature["f"].float_list.value.extend([0.5, 1e20])
example.features.feature["s"].bytes_list.value.extend([b"", bytes([0, 255])])
for kind in ("", "ZLIB", "GZIP"):
    options = tf.python_io.TFRecordOptions(kind)
    with tf.python_io.TFRecordWriter(f"{folder}/theirs{kind}", options) as writer:
        writer.write(example.SerializeToString())
        writer.write(b"x" * 600_000)
    for record in tf.python_io.tf_record_iterator(f"{folder}/ours{kind}", options):
        assert tf.train.Example.FromString(record) == example
print(json.dumps(str(example)))
"""


def test_tensorflow_reads_what_asyncmon_writes_and_the_other_way_round(tmp_path: Path) -> None:
    python = os.environ.get("ASYNCMON_PEER_PYTHON")
    if python is None and importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed, and ASYNCMON_PEER_PYTHON names no Python that has it")
    example = tf.train.Example()
    example.features.feature["i"].int64_list.value.extend([1, -2, 1 << 40])
    example.features.feature["f"].float_list.value.extend([0.5, 1e20])
    example.features.feature["s"].bytes_list.value.extend([b"", bytes([0, 255])])
    for kind in ("", "ZLIB", "GZIP"):
        with tf.python_io.TFRecordWriter(tmp_path / f"ours{kind}", kind) as writer:
            writer.write(example.SerializeToString())
    command = [python or sys.executable, "-c", THEIRS, str(tmp_path)]
    answer = subprocess.run(command, check=True, capture_output=True, timeout=120)
    text = json.loads(answer.stdout.splitlines()[-1])
    assert sorted(text.splitlines()) == sorted(str(example).splitlines())  # maps have no order
    for kind in ("", "ZLIB", "GZIP"):
        first, second = tf.python_io.tf_record_iterator(tmp_path / f"theirs{kind}", kind)
        assert tf.train.Example.FromString(first) == example
        assert second == b"x" * 600_000


@pytest.mark.parametrize("options", KINDS)
def test_a_closed_writer_refuses_records(tmp_path: Path, options: Any) -> None:
    writer = tf.python_io.TFRecordWriter(tmp_path / "x", options)
    writer.close()
    for use in (lambda: writer.write(b"a"), writer.flush):
        with pytest.raises(FailedPreconditionError, match="Writer is closed"):
            use()


def test_options_are_made_from_options() -> None:
    assert Options(Options(Compression.GZIP)).compression_type == Compression.GZIP
