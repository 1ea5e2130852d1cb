"""TF1's readers: ``tf.TFRecordReader``, ``tf.TextLineReader`` and kin.

A reader dequeues file names and returns the records of the files one by one::

    names = tf.train.string_input_producer(["a.tfrecord", "b.tfrecord"], num_epochs=1)
    key, serialized = tf.TFRecordReader().read(names)

:class:`~asyncmon.tf1.ops.readers.ReaderBase` has the methods. Values and keys are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from asyncmon.protobuf.tfrecord import read_chunks, read_records
from asyncmon.tf1.file_ops import file_errors
from asyncmon.tf1.ops.readers import ReaderBase, Record, register_reader
from asyncmon.tf1.python_io import TFRecordOptions


class TFRecordReader(ReaderBase):
    """The records of TFRecord files; keys are ``file:byte``. TF1: same name.

    ``options`` set the compression.
    """

    def __init__(self, name: str | None = None, options: TFRecordOptions | None = None) -> None:
        super().__init__("TFRecord", name, TFRecordOptions.get_compression_type_string(options))


class TextLineReader(ReaderBase):
    r"""The lines of text files without their ends (``\n`` or ``\r\n``); keys are ``file:number``.

    TF1: same name. The first ``skip_header_lines`` of each file are skipped. Numbers begin with 1 and
    include the skipped lines.
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__("TextLine", name, int(skip_header_lines or 0))


class WholeFileReader(ReaderBase):
    """The contents of whole files; keys are their names. TF1: same name."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__("WholeFile", name)


class IdentityReader(ReaderBase):
    """The elements of the queue themselves, as keys and values. TF1: same name."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__("Identity", name)


class FixedLengthRecordReader(ReaderBase):
    """Records of ``record_bytes``; keys are ``file:number``. TF1: same name.

    The header and the footer of each file are skipped. ``hop_bytes`` is the distance between the starts
    of two records, by default their length. ``encoding`` is "ZLIB" or "GZIP" for compressed files;
    sizes are those of the decompressed data.

    Raises:
        ValueError: a negative size, a record length of 0, or an unknown encoding.
    """

    def __init__(
        self,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        hop_bytes: int | None = None,
        name: str | None = None,
        encoding: str | None = None,
    ) -> None:
        length, header, footer = int(record_bytes), int(header_bytes or 0), int(footer_bytes or 0)
        hop = int(hop_bytes or 0) or length
        compression = TFRecordOptions.get_compression_type_string(encoding)
        if length < 1 or min(header, footer, hop) < 0:
            raise ValueError(
                "record_bytes must be positive and header_bytes, footer_bytes, hop_bytes not negative, "
                f"got {record_bytes}, {header_bytes}, {footer_bytes}, {hop_bytes}."
            )
        super().__init__("FixedLengthRecord", name, length, header, footer, hop, compression)


# --- functions that read a file -------------------------------------------------------------------
def _tfrecords(path: str, compression: str) -> Iterator[Sequence[Record]]:
    with file_errors(path):
        for records in read_records(path, compression):
            yield [(b"%s:%d" % (path.encode(), offset), record) for offset, record in records]


def _lines(path: str, skipped: int) -> Iterator[Sequence[Record]]:
    rest, number = b"", 0
    with file_errors(path):
        for chunk in read_chunks(path):
            *lines, rest = (rest + chunk).split(b"\n")
            yield _numbered(path, skipped, number, lines)
            number += len(lines)
        if rest:
            yield _numbered(path, skipped, number, [rest])


def _numbered(path: str, skipped: int, before: int, lines: list[bytes]) -> list[Record]:
    first = max(skipped - before, 0)
    return [
        (b"%s:%d" % (path.encode(), number), line.removesuffix(b"\r"))
        for number, line in enumerate(lines[first:], before + first + 1)
    ]


def _whole(path: str) -> Iterator[Sequence[Record]]:
    with file_errors(path):
        yield [(path.encode(), Path(path).read_bytes())]


def _name(path: str) -> Iterator[Sequence[Record]]:
    yield [(path.encode(), path.encode())]


def _fixed(
    path: str, length: int, header: int, footer: int, hop: int, compression: str
) -> Iterator[Sequence[Record]]:
    rest, skipped, number = b"", header, 0
    with file_errors(path):
        for chunk in read_chunks(path, compression):
            rest += chunk
            skipped, rest = skipped - len(rest[:skipped]), rest[skipped:]
            last = len(rest) - footer - length
            starts = range(0, last + 1, hop)
            yield [
                (b"%s:%d" % (path.encode(), i), rest[start : start + length])
                for i, start in enumerate(starts, number)
            ]
            number += len(starts)
            taken = len(starts) * hop
            skipped, rest = max(taken - len(rest), 0), rest[taken:]


register_reader("TFRecord", _tfrecords)
register_reader("TextLine", _lines)
register_reader("WholeFile", _whole, one_each=True)
register_reader("Identity", _name, one_each=True)
register_reader("FixedLengthRecord", _fixed)
