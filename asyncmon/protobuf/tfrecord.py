"""TFRecord, the format of event files and of examples: length and data, each with a masked CRC-32C.

A damaged or truncated record is an error; the records before it are valid.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from google_crc32c import value as crc32c

from asyncmon.errors import DataLossError
from asyncmon.protobuf.tf_types import masked

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")

CHUNK = 1 << 18
"""The number of bytes in one read."""

MOST_BYTES = 256 << 20
"""The largest record of a reader that cannot compare its length with the size of the file."""

WINDOW_BITS = {"": 0, "ZLIB": zlib.MAX_WBITS, "GZIP": zlib.MAX_WBITS | 16}
"""The ``wbits`` of zlib for each name of a compression."""


def frame(data: bytes) -> bytes:
    """Return a record with its frame: length, checksum, data, checksum."""
    return b"".join((_header(len(data)), data, _FOOTER.pack(masked(crc32c(data)))))


@lru_cache(1024)
def _header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + _FOOTER.pack(masked(crc32c(packed)))


@dataclass(slots=True, eq=False)
class RecordParser:
    """An incremental parser of records.

    Attributes:
        name: the file, for messages.
        most: the largest number of bytes of a record. A length is read before the record, and a damaged
            or hostile one must not be waited for.
        index: the number of the next record.
        offset: the byte at which the next record begins.
    """

    name: str
    most: int = MOST_BYTES
    index: int = 0
    offset: int = 0
    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and yield the records that are complete.

        Raises:
            DataLossError: a record does not match its checksum. Those before it have been yielded.
        """
        self._rest += data
        position = 0
        try:
            while (end := self._end_of_record(position)) is not None:
                record = bytes(self._rest[position + _HEADER.size : end - _FOOTER.size])
                if _FOOTER.unpack_from(self._rest, end - _FOOTER.size)[0] != masked(crc32c(record)):
                    raise self._loss("does not match its checksum")
                self.index += 1
                self.offset += end - position
                position = end
                yield record
        finally:
            del self._rest[:position]

    def check_end(self) -> None:
        """Raise DataLossError if there is a partial record."""
        if self._rest:
            raise self._loss("is cut off by the end of the file")

    def _end_of_record(self, position: int) -> int | None:
        if len(self._rest) - position < _HEADER.size:
            return None
        length, checksum = _HEADER.unpack_from(self._rest, position)
        if checksum != masked(crc32c(bytes(self._rest[position : position + 8]))):
            raise self._loss("has a length that does not match its checksum")
        if length > self.most:
            raise self._loss(f"claims {length:,} bytes, more than {self.most:,}")
        end = position + _HEADER.size + int(length) + _FOOTER.size
        return end if end <= len(self._rest) else None

    def _loss(self, what: str) -> DataLossError:
        return DataLossError(
            f"Record {self.index} of {self.name!r}, at byte {self.offset}, {what}. "
            f"The {self.index} records before it are whole."
        )


def read_chunks(path: str | os.PathLike[str], compression: str = "") -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed. Blocks.

    Raises:
        OSError: the file cannot be read.
        DataLossError: the compressed data is damaged or truncated. The data before it has been yielded.
    """
    with open(path, "rb", buffering=0) as file:
        if not compression:
            while data := file.read(CHUNK):
                yield data
            return
        inflate = zlib.decompressobj(WINDOW_BITS[compression])
        read = given = 0
        try:
            while data := file.read(CHUNK):
                while data:
                    if inflate.eof:  # compressed files may be concatenated
                        inflate = zlib.decompressobj(WINDOW_BITS[compression])
                    plain = inflate.decompress(data, CHUNK)
                    read += len(data) - len(inflate.unconsumed_tail) - len(inflate.unused_data)
                    data = inflate.unconsumed_tail or inflate.unused_data
                    given += len(plain)
                    yield plain
            if read:
                yield inflate.flush()
        except zlib.error as error:
            raise DataLossError(
                f"{str(path)!r} holds no {compression} data at {read}: {error}."
            ) from None
        if read and not inflate.eof:
            raise DataLossError(
                f"The {compression} data of {str(path)!r} is cut off at byte {read}, after {given} "
                "bytes of content."
            )


def read_records(
    path: str | os.PathLike[str], compression: str = ""
) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lists of records of a file, each with the byte at which it begins. Blocks.

    Positions are those in the decompressed data.

    Raises:
        OSError: the file cannot be read.
        DataLossError: a record is damaged or truncated. Those before it have been yielded.
    """
    # A record of an uncompressed file is at most as large as the file.
    most = MOST_BYTES if compression else max(MOST_BYTES, os.stat(path).st_size)
    parser = RecordParser(str(path), most)
    for chunk in read_chunks(path, compression):
        records: list[tuple[int, bytes]] = []
        offset = parser.offset
        try:
            for record in parser.feed(chunk):
                records.append((offset, record))
                offset = parser.offset
        except DataLossError:
            yield records
            raise
        yield records
    parser.check_end()
