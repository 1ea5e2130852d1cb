"""A tensor file of this machine, mapped into memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import numpy as np

from asyncmon.checkpoint.store import Piece
from asyncmon.system import portable
from asyncmon.system.files import in_thread

_CHUNK = 1 << 20


class MappedFile:
    """A file that is read without being copied: arrays are views of the page cache.

    A shared ``flock`` keeps the retention of any process from deleting it while it is open. Arrays stay
    valid after :meth:`close`.

    Raises:
        FileNotFoundError: it is not there, or is just being deleted.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path
        self._descriptor = -1
        self._descriptor = portable.open_file(path, os.O_RDONLY)
        try:
            self._share()
            self.size = os.fstat(self._descriptor).st_size
            self._bytes = np.empty(0, np.uint8)
            if self.size:
                self._bytes = np.frombuffer(portable.map_file(self._descriptor), np.uint8)
        except BaseException:
            self.close()
            raise

    async def read(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        return await in_thread(lambda: [self._piece(start, end) for start, end in ranges])

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._bytes = np.empty(0, np.uint8)
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # else the mapping of arrays in use would keep the lock
                portable.unlock(descriptor)
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def _share(self) -> None:
        try:
            portable.lock(self._descriptor, shared=True)
        except BlockingIOError:
            raise FileNotFoundError(f"{str(self._path)!r} is being deleted") from None
        except OSError:
            return  # a file system without locks: an open file stays readable

    def _piece(self, start: int, end: int) -> Piece:
        # The checksum is taken of a copy, piece by piece: reading lets go of the interpreter while it
        # waits for the disk, where touching a page that is not there yet would hold all threads.
        scratch = np.empty(min(_CHUNK, max(end - start, 1)), np.uint8)
        checksum = 0
        position = start
        while position < end:
            count = portable.read_at(self._descriptor, scratch[: end - position].data, position)
            if count == 0:
                break  # the file was cut off: its checksum will not match
            checksum = google_crc32c.extend(checksum, scratch[:count])
            position += count
        return Piece(self._bytes[start:end], f"{checksum:08x}")
