"""TF1: ``tf.python_io``: TFRecord files outside a graph.

The calls block, as in TF1: use them before the event loop runs, or in a thread.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from asyncmon.errors import FailedPreconditionError
from asyncmon.protobuf.tfrecord import WINDOW_BITS, frame, read_records
from asyncmon.tf1.file_ops import file_errors

__all__ = ["TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter", "tf_record_iterator"]


class TFRecordCompressionType:
    """The kinds of compression. TF1: same name."""

    NONE, ZLIB, GZIP = 0, 1, 2


class TFRecordOptions:
    """The compression of a TFRecord file. TF1: same name; other settings of zlib are fixed.

    ``compression_type`` is a :class:`TFRecordCompressionType`, or "", "ZLIB" or "GZIP", else
    ValueError; ``compression_level`` is 0 to 9, by default 6.
    """

    compression_type_map: ClassVar[dict[int, str]] = {0: "", 1: "ZLIB", 2: "GZIP"}

    def __init__(self, compression_type: Any = None, *, compression_level: int | None = None) -> None:
        self.get_compression_type_string(compression_type)
        if isinstance(compression_type, TFRecordOptions):
            compression_type = compression_type.compression_type
        self.compression_type: Any = compression_type
        self.compression_level = compression_level

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """Return "", "ZLIB" or "GZIP" for options, a type, a name or None; else ValueError."""
        if isinstance(options, TFRecordOptions):
            options = options.compression_type
        name = cls.compression_type_map.get(options, options) if options else ""
        if name not in WINDOW_BITS:
            raise ValueError(f"Not a valid compression_type: {options!r}; give '', 'ZLIB' or 'GZIP'.")
        return str(name)

    def _compressor(self) -> Any:
        name = self.get_compression_type_string(self)
        level = -1 if self.compression_level is None else self.compression_level
        return zlib.compressobj(level, wbits=WINDOW_BITS[name]) if name else None


class TFRecordWriter:
    """Writes records to a new file, replacing an existing one. TF1: ``tf.python_io.TFRecordWriter``.

    Calls block. ``options`` are a :class:`TFRecordOptions`, or its first argument.

    Raises:
        NotFoundError: the directory does not exist.
        FailedPreconditionError: a method is called after the writer is closed.

    Example::

        with tf.python_io.TFRecordWriter("train.tfrecord") as writer:
            writer.write(example.SerializeToString())
    """

    def __init__(self, path: str | os.PathLike[str], options: Any = None) -> None:
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(options)
        self._compressor = options._compressor()
        self._path = os.fspath(path)
        with file_errors(self._path):
            self._file: IO[bytes] | None = Path(self._path).open("wb")  # noqa: SIM115 -- close() does

    def write(self, record: bytes) -> None:
        """Append a record. TypeError for a record that is not bytes."""
        if not isinstance(record, bytes):
            raise TypeError(f"A record is bytes, got {type(record).__name__}; encode text first.")
        self._open()  # before the compressor, which refuses data after its end
        framed = frame(record)
        self._put(framed if self._compressor is None else self._compressor.compress(framed))

    def flush(self) -> None:
        """Flush the buffers to the system. Compressed data is readable up to here."""
        self._open()
        file = self._put(b"" if self._compressor is None else self._compressor.flush(zlib.Z_SYNC_FLUSH))
        with file_errors(self._path):
            file.flush()

    def close(self) -> None:
        """Flush and close the file. A second call does nothing."""
        if self._file is None:
            return
        file = self._put(b"" if self._compressor is None else self._compressor.flush())
        self._file = None
        with file_errors(self._path):
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _put(self, data: bytes) -> IO[bytes]:
        file = self._open()
        with file_errors(self._path):
            file.write(data)
        return file

    def _open(self) -> IO[bytes]:
        if self._file is None:
            raise FailedPreconditionError(f"Writer is closed. It wrote {self._path!r}.")
        return self._file


def tf_record_iterator(path: str | os.PathLike[str], options: Any = None) -> Iterator[bytes]:
    """Yield the records of a file. TF1: same name. Blocks. ``options`` are those of a writer.

    Raises:
        NotFoundError: the file does not exist.
        DataLossError: a record is damaged or truncated; the error has the file and the byte. All
            records before it have been yielded.
    """
    compression = TFRecordOptions.get_compression_type_string(options)
    with file_errors(os.fspath(path)):
        for records in read_records(path, compression):
            for _offset, record in records:
                yield record
