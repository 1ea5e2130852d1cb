"""The framing of event files: TFRecord, length and data each with a masked CRC-32C.

No event loop, no clock: bytes to bytes. A record is whole or it is reported;
what lies before it counts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from google_crc32c import value as crc32c

from asyncmon.errors import DataLossError
from asyncmon.tf_types import masked

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")


def frame(data: bytes) -> bytes:
    """Return one record: length, its checksum, the data, its checksum."""
    return b"".join((_header(len(data)), data, _FOOTER.pack(masked(crc32c(data)))))


@lru_cache(1024)
def _header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + _FOOTER.pack(masked(crc32c(packed)))


@dataclass(slots=True, eq=False)
class RecordParser:
    """Takes the bytes of a file as they come and gives the records they hold.

    Attributes:
        name: the file, for messages.
        index: how many records have been given; the number of the next one.
        offset: the byte at which the next one begins.
    """

    name: str
    index: int = 0
    offset: int = 0
    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the records that are complete now; what is left over waits for more bytes.

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

    def _end_of_record(self, position: int) -> int | None:
        if len(self._rest) - position < _HEADER.size:
            return None
        length, checksum = _HEADER.unpack_from(self._rest, position)
        if checksum != masked(crc32c(bytes(self._rest[position : position + 8]))):
            raise self._loss("has a length that does not match its checksum")
        end = position + _HEADER.size + int(length) + _FOOTER.size
        return end if end <= len(self._rest) else None

    def _loss(self, what: str) -> DataLossError:
        return DataLossError(
            f"Record {self.index} of {self.name!r}, at byte {self.offset}, {what}. "
            f"The {self.index} records before it are whole."
        )
