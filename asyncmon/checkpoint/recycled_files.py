"""Files of deleted checkpoints, kept to be written over by the next save.

The pages of a new file cost the system much more than what is then written to them: they are found,
cleared and, on a virtual machine, asked of the host. All that work is taken from the steps beside it.
A save that follows another therefore writes over a file of the checkpoint that retention has deleted.

Nobody's data is written over: the file has no name any more by which it would be found, it has no
second one (a hard link), and the system itself says that nobody else has it open or mapped. It does so
by granting a lease, which is Linux's; elsewhere, and where it refuses, files are deleted as ever.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from typing import TYPE_CHECKING

from asyncmon.checkpoint.store import BESIDE
from asyncmon.portable import is_unshared

if TYPE_CHECKING:
    from pathlib import Path

    from asyncmon.files import FileCalls

_LEAST = 1 << 23
"""Smaller files are not worth it."""


class SpareFiles:
    """The spare files of one directory. Its methods block, and may be called from any thread."""

    def __init__(self) -> None:
        self._wanted = 0
        self._spares: list[tuple[Path, int]] = []
        self._lock = threading.Lock()

    def expect(self, nbytes: int) -> None:
        """Say that a save of this size goes on, and that there will be another; 0 for none."""
        self._wanted = nbytes

    def keep(self, path: Path, calls: FileCalls) -> bool:
        """Take a file out of its place. False where it is of no use: then it is to be deleted.

        Raises:
            OSError: as the system does.
        """
        with self._lock:
            size = os.stat(path).st_size
            if size < _LEAST or size + sum(size for _, size in self._spares) > self._wanted:
                return False
            spare = path.with_name(f"{BESIDE}{secrets.token_hex(4)}-spare")
            calls.replace(path, spare)
            self._spares.append((spare, size))
            return True

    def take(self, path: Path, nbytes: int, calls: FileCalls) -> int | None:
        """Move a spare file to a path, and return a descriptor to write over it; None without one."""
        if nbytes < _LEAST:
            return None
        with self._lock:
            if not self._spares:
                return None
            spare, _ = self._spares.pop()
        descriptor = None
        with contextlib.suppress(OSError):  # somebody has tidied up, or there are too many open files
            descriptor = calls.open(spare, os.O_WRONLY)
            if is_unshared(descriptor):
                calls.replace(spare, path)
                return descriptor
        if descriptor is not None:
            with contextlib.suppress(OSError):
                calls.close(descriptor)
        with contextlib.suppress(OSError):
            calls.unlink(spare)
        return None

    def drop(self, calls: FileCalls) -> None:
        """Delete them all. What a crash leaves is deleted by the next process that saves here."""
        with self._lock:
            spares, self._spares, self._wanted = self._spares, [], 0
        for spare, _ in spares:
            with contextlib.suppress(OSError):
                calls.unlink(spare)
