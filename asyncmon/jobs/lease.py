"""Leases: file locks that live as long as the processes that run a job.

A lease has no clock, no process id and no time limit: the system drops it with the last process that
holds its descriptor. A stopped owner (``SIGSTOP``, a laptop's sleep) keeps it, a dead one does not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from asyncmon.system import portable


class Lease:
    """A held lease. Made by :meth:`take`, or by :meth:`inherited` in the child of an attempt."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        _held[descriptor] = self

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Take a lease, whose file is made if it is missing. None: it is held. Never waits.

        Raises:
            OSError: the file cannot be opened, or the file system has no locks.
        """
        flags = os.O_RDWR | os.O_CREAT | portable.NO_FOLLOW | portable.NO_WAIT
        descriptor = portable.open_file(path, flags)
        try:
            portable.lock(descriptor)
            # The holder of an ended job removes the file: a lock on a removed file excludes no process.
            is_current = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except (BlockingIOError, FileNotFoundError):
            is_current = False
        except BaseException:
            os.close(descriptor)
            raise
        if is_current:
            return cls(path, descriptor)
        os.close(descriptor)
        return None

    @classmethod
    def inherited(cls, descriptor: int) -> Self:
        """Hold the lease of the parent process, also after its death."""
        os.set_inheritable(descriptor, False)  # programs that the job starts do not hold it
        return cls(Path(), descriptor)

    def release(self, *, remove: bool = False) -> None:
        """Close the descriptor, and remove the file before. A second call does nothing.

        Other processes of the attempt, if any, hold the lease on.
        """
        if _held.pop(self.descriptor, None) is not self:
            return
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self.descriptor)  # not LOCK_UN, which would unlock it for a child process, too


_held: dict[int, Lease] = {}


def _forked() -> None:
    # A forked worker, of a DataLoader for example, can outlive the process that runs the job.
    for lease in list(_held.values()):
        lease.release()


portable.after_fork_in_child(_forked)
