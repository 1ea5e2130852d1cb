"""The directory of a queue: those of its jobs, their deletion, and what a crash has left. Blocking.

::

    jobs.sqlite3      the table
    leases/<id>       locked while a process runs the job
    runs/<name>/      of one job, made at its first attempt; .asyncmon.job has the id
    .new-<id>         the same before it has its name
    .trash-<id>       a directory that is being deleted
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from asyncmon.system import portable

MARK = ".asyncmon.job"
"""The file in the directory of a job with its id: only what has it is deleted.

Its name must not begin as that of a temporary file (``files.BESIDE``), which savers delete.
"""

_TRASH = ".trash-"
_NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs",
    "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs",
}  # fmt: skip


class QueueDirectory:
    """The paths of a queue."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = root / "jobs.sqlite3"
        self.runs = root / "runs"
        self._leases = root / "leases"

    def open(self) -> None:
        """Make the directories that are missing, and delete what a crash has left.

        Raises:
            OSError: they cannot be made, or are on the disk of another host.
        """
        for path in (self.root, self._leases, self.runs):
            path.mkdir(parents=True, exist_ok=True)
        check_file_system(portable.file_system_of(self.root), self.root)
        for left in self.root.glob(f"{_TRASH}*"):
            _delete(left)

    def lease(self, job: str) -> Path:
        """Return the path of a lease."""
        return self._leases / job

    def run(self, name: str) -> Path:
        """Return the directory of a job."""
        return self.runs / name

    def prepare(self, job: str, name: str) -> Path:
        """Make the directory of a job that this process runs, if it is missing. Return its path.

        A directory that was there before, without a mark, is used and never deleted.

        Raises:
            FileExistsError: it belongs to another job.
            OSError: it cannot be made.
        """
        path = self.run(name)
        if os.path.lexists(path):
            owner = owner_of(path)
            if owner not in (None, job):
                raise FileExistsError(
                    f"{str(path)!r} belongs to the job {owner!r}: delete it, or use another name."
                )
            return path
        new = self.root / f".new-{job}"  # complete before it has its name
        new.mkdir(exist_ok=True)
        (new / MARK).write_text(job)
        os.rename(new, path)
        return path

    def discard(self, job: str, name: str) -> bool:
        """Rename the directory of a job, so that it is deleted in any case. False: not its own."""
        path = self.run(name)
        if owner_of(path) != job:
            return False
        os.rename(path, self._trash(job))
        return True

    def restore(self, job: str, name: str) -> None:
        """Undo :meth:`discard`."""
        os.rename(self._trash(job), self.run(name))

    def delete(self, job: str) -> None:
        """Delete what :meth:`discard` has renamed. An error leaves it for the next start."""
        _delete(self._trash(job))

    def _trash(self, job: str) -> Path:
        return self.root / f"{_TRASH}{job}"


def owner_of(path: Path) -> str | None:
    """Return the id of the job that a directory belongs to. Follows no symbolic link."""
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode) and stat.S_ISREG(os.lstat(path / MARK).st_mode):
            return (path / MARK).read_text()
    return None


def _delete(path: Path) -> None:
    # rmtree refuses a symbolic link, and follows none inside.
    shutil.rmtree(path, ignore_errors=True)


def check_file_system(kind: str | None, path: Path) -> None:
    """Refuse a network file system.

    Raises:
        OSError: it is one.
    """
    if kind in _NETWORK:
        raise OSError(
            f"{str(path)!r} is on a network file system ({kind}), whose locks are not those of one"
            " host: jobs would run twice. Put the queue on a local disk; checkpoints may be elsewhere."
        )
