"""TF1's readers: ``tf.TFRecordReader``, ``tf.TextLineReader`` and kin.

A reader takes the names of files from a queue and gives their records one by one::

    names = tf.train.string_input_producer(["a.tfrecord", "b.tfrecord"], num_epochs=1)
    key, serialized = tf.TFRecordReader().read(names)

:class:`~asyncmon.graph.queues.readers.ReaderBase` has the methods. Values and keys are bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from asyncmon.graph.queues.readers import ReaderBase, Record
from asyncmon.tf1.file_ops import file_errors
from asyncmon.tf1.python_io import TFRecordOptions
from asyncmon.tfrecord import WINDOW_BITS, read_chunks, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class TFRecordReader(ReaderBase):
    """The records of TFRecord files; keys are ``file:byte``. TF1: same name.

    Args:
        name: of the reader's node.
        options: the compression.
    """

    def __init__(self, name: str | None = None, options: TFRecordOptions | None = None) -> None:
        self._compression = TFRecordOptions.get_compression_type_string(options)
        super().__init__(name or "TFRecordReaderV2")

    def _records(self, path: str) -> Iterator[Sequence[Record]]:
        with file_errors(path):
            for records in read_records(path, self._compression):
                yield [(b"%s:%d" % (path.encode(), offset), record) for offset, record in records]


class TextLineReader(ReaderBase):
    r"""The lines of text files without their ends (``\n`` or ``\r\n``); keys are ``file:number``.

    TF1: same name. Numbers begin at 1 and count the header, too.

    Args:
        skip_header_lines: how many lines of each file are left out.
        name: of the reader's node.
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        self._skipped = int(skip_header_lines or 0)
        super().__init__(name or "TextLineReaderV2")

    def _records(self, path: str) -> Iterator[Sequence[Record]]:
        rest, number = b"", 0
        with file_errors(path):
            for chunk in read_chunks(path):
                *lines, rest = (rest + chunk).split(b"\n")
                yield self._lines(path, number, lines)
                number += len(lines)
            if rest:
                yield self._lines(path, number, [rest])

    def _lines(self, path: str, before: int, lines: list[bytes]) -> list[Record]:
        first = max(self._skipped - before, 0)
        return [
            (b"%s:%d" % (path.encode(), number), line.removesuffix(b"\r"))
            for number, line in enumerate(lines[first:], before + first + 1)
        ]


class WholeFileReader(ReaderBase):
    """Whole files; keys are their names. TF1: same name."""

    _one_each = True

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name or "WholeFileReaderV2")

    def _records(self, path: str) -> Iterator[Sequence[Record]]:
        with file_errors(path):
            yield [(path.encode(), Path(path).read_bytes())]


class IdentityReader(ReaderBase):
    """The elements of the queue themselves, as keys and values. TF1: same name."""

    _one_each = True

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name or "IdentityReaderV2")

    def _records(self, path: str) -> Iterator[Sequence[Record]]:
        yield [(path.encode(), path.encode())]


class FixedLengthRecordReader(ReaderBase):
    """Records of one length; keys are ``file:number``. TF1: same name.

    Args:
        record_bytes: the length of each.
        header_bytes: left out at the beginning of each file.
        footer_bytes: left out at its end.
        hop_bytes: from the beginning of a record to that of the next one; by default its length.
        name: of the reader's node.
        encoding: a compression, ``"ZLIB"`` or ``"GZIP"``; counts are of decompressed bytes.

    Raises:
        ValueError: a count that is negative, or a length of 0.
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
        self._length, self._header = int(record_bytes), int(header_bytes or 0)
        self._footer, self._hop = int(footer_bytes or 0), int(hop_bytes or 0) or int(record_bytes)
        if self._length < 1 or min(self._header, self._footer, self._hop) < 0:
            raise ValueError(
                "record_bytes must be positive and header_bytes, footer_bytes, hop_bytes not negative, "
                f"got {record_bytes}, {header_bytes}, {footer_bytes}, {hop_bytes}."
            )
        self._compression = encoding or ""
        if self._compression not in WINDOW_BITS:
            raise ValueError(f"encoding must be one of {list(WINDOW_BITS)}, got {encoding!r}.")
        super().__init__(name or "FixedLengthRecordReaderV2")

    def _records(self, path: str) -> Iterator[Sequence[Record]]:
        rest, skipped, number = b"", self._header, 0
        with file_errors(path):
            for chunk in read_chunks(path, self._compression):
                rest += chunk
                skipped, rest = skipped - len(rest[:skipped]), rest[skipped:]
                last = len(rest) - self._footer - self._length
                starts = range(0, last + 1, self._hop)
                yield [
                    (b"%s:%d" % (path.encode(), i), rest[start : start + self._length])
                    for i, start in enumerate(starts, number)
                ]
                number += len(starts)
                taken = len(starts) * self._hop
                skipped, rest = max(taken - len(rest), 0), rest[taken:]
