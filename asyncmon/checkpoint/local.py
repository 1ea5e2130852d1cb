"""Checkpoints in a local directory: how they get there whole, and leave it whole.

A save writes every file beside its place, under a name that begins with ``.asyncmon-`` and a token, and
flushes it to the disk; then the manifest and the new state file likewise; only then are the tensor
files renamed into their places, after them the manifest, which is the commit, and last the state file.
Then the directory is flushed. The manifest beside its place is thus also the journal of a commit:
whoever finds one knows which tensor files were on their way and deletes those that no committed
manifest names; whoever finds only the state file of a save puts it into its place. A deletion goes the
same way back: the manifest is renamed to such a journal first.

What is relied on: a rename within a directory is atomic, and what was flushed (file and directory) is
there after a crash of the machine. POSIX local file systems promise both.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c

from asyncmon import portable
from asyncmon.checkpoint import tensor_file
from asyncmon.checkpoint.directory_lock import LOCK_NAME, DirectoryLock
from asyncmon.checkpoint.dtypes import byte_chunks
from asyncmon.checkpoint.manifest import Manifest, TensorFile
from asyncmon.checkpoint.mapped_file import MappedFile
from asyncmon.checkpoint.os_errors import describe, op_errors
from asyncmon.checkpoint.store import BESIDE, Draft
from asyncmon.checkpoint.throttle import Control, Pace, each_in_thread
from asyncmon.errors import DataLossError
from asyncmon.files import FileCalls, in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_CHUNK = 1 << 20
_NEXT = ".next"
"""How the name of a state file ends that waits for the commit of its checkpoint."""
_GRAPH_BESIDE = ".graph.pbtxt."
"""How the name of a graph's text begins that is not in its place yet (:mod:`asyncmon.files`)."""

logger = logging.getLogger(__name__)


class LocalStore:
    """A directory of this machine as a :class:`~asyncmon.checkpoint.store.Store`."""

    def __init__(self, directory: str, calls: FileCalls) -> None:
        self.directory = directory
        self._path = Path(directory)
        self._calls = calls
        self._lock: DirectoryLock | None = None

    async def claim(self) -> None:
        await in_thread(self._claim)

    def release_nowait(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def names(self) -> list[str]:
        return await in_thread(self._names)

    async def mtime(self, name: str) -> float:
        return (await in_thread(os.stat, self._path / name)).st_mtime

    async def read(self, name: str) -> bytes:
        try:
            return await in_thread((self._path / name).read_bytes)
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error

    async def replace(self, name: str, data: bytes) -> None:
        await in_thread(self._replace, name, data)

    async def write(self, draft: Draft) -> Manifest:
        with op_errors(
            f"Checkpoint {str(self._path / draft.basename)!r} was not saved", self._describe
        ):
            token = secrets.token_hex(4)
            try:
                parts = await in_thread(
                    tensor_file.plan, draft.arrays, draft.basename, draft.shard_bytes
                )
                draft.control.left = sum(part.nbytes for part in parts)
                writes = [
                    partial(self._write_part, part, self._beside(token, str(number)), draft.control)
                    for number, part in enumerate(parts)
                ]
                checksums = await each_in_thread(writes, draft.control)
                return await in_thread(self._commit, draft, token, parts, checksums)
            except BaseException:
                await in_thread(self._discard, token)
                raise

    async def open(self, name: str) -> MappedFile:
        return await in_thread(MappedFile, self._path / name, lost=MappedFile.close_nowait)

    async def delete(self, name: str) -> None:
        await in_thread(self._unlink_unread, [name])

    async def remove(self, basename: str) -> bool:
        return await in_thread(self._remove, basename)

    async def fingerprint(self, names: Sequence[str]) -> Any:
        return await in_thread(self._fingerprint, names)

    # Everything below blocks, and runs in worker threads.

    def _claim(self) -> None:
        with op_errors(f"Checkpoints cannot be saved into {self.directory!r}", self._describe):
            self._calls.make_dirs(self._path)
            lock = DirectoryLock.of(self._path, self._calls)
            first = lock.acquire()
            if self._lock is not None:
                self._lock.release()  # ours from before: the share is a new one now
            self._lock = lock
            if first:
                self._clean_up()

    def _describe(self) -> str:
        return describe(self._path)

    def _names(self) -> list[str]:
        try:
            return sorted(self._calls.listdir(self._path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _beside(self, token: str, name: str) -> Path:
        return self._path / f"{BESIDE}{token}-{name}"

    def _write_part(self, part: tensor_file.Part, path: Path, control: Control) -> dict[str, int]:
        checksums = {}
        pace = Pace(control)
        with self._file_for(path) as descriptor:
            self._write_all(descriptor, part.header)
            for name, array in part.arrays.items():
                checksum = 0
                for chunk in byte_chunks(array, _CHUNK):
                    control.check("The save")
                    checksum = google_crc32c.extend(checksum, chunk)
                    self._write_all(descriptor, chunk.data)
                    pace.did(chunk.nbytes)
                checksums[name] = checksum
        return checksums

    @contextlib.contextmanager
    def _file_for(self, path: Path) -> Iterator[int]:
        """Open a new file for writing; flush it on success."""
        descriptor = self._calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            yield descriptor
            self._calls.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                self._calls.close(descriptor)
            raise
        self._calls.close(descriptor)  # may report a write error too

    def _write_all(self, descriptor: int, data: bytes | memoryview) -> None:
        written = self._calls.write(descriptor, data)
        while written < len(data):
            more = self._calls.write(descriptor, data[written:])
            if more == 0:
                raise OSError(f"the file takes no more than {written} of {len(data)} bytes")
            written += more

    def _commit(
        self, draft: Draft, token: str, parts: list[tensor_file.Part], checksums: list[dict[str, int]]
    ) -> Manifest:
        with self._shared().turn:  # another saver of this process may be about to take the same names
            name = f"{draft.basename}.json"
            old = self._manifest(name)
            names = tensor_file.file_names(draft.basename, len(parts), self._calls.listdir(self._path))
            manifest = draft.complete(parts, checksums, names, old)
            moves = [(str(number), file) for number, file in enumerate(names)]
            moves.append((name, name))
            before: dict[str, bytes | None] = {name: None if old is None else old.encode()}
            self._write_beside(token, name, manifest.encode())
            if draft.state is not None:  # half of it is never taken for all: its journal is there
                self._write_beside(token, draft.state.name + _NEXT, draft.state.data)
                moves.append((draft.state.name + _NEXT, draft.state.name))
                before[draft.state.name] = self._content(draft.state.name)
            placed: list[str] = []
            try:
                for beside, file in moves:
                    if file == name:
                        self._sync_directory()  # the manifest is there only where its tensors are
                    self._calls.replace(self._beside(token, beside), self._path / file)
                    placed.append(file)
                self._sync_directory()
            except BaseException:
                self._take_back(token, placed, before)
                raise
            self._unlink_unread(manifest.replaces)
            return manifest

    def _write_beside(self, token: str, name: str, data: bytes) -> None:
        with self._file_for(self._beside(token, name)) as descriptor:
            self._write_all(descriptor, data)

    def _shared(self) -> DirectoryLock:
        """Return what all savers of this process have in common that save here."""
        return DirectoryLock.of(self._path, self._calls)

    def _take_back(self, token: str, placed: Sequence[str], before: Mapping[str, bytes | None]) -> None:
        """Undo what a commit did before it failed, backwards: no file goes before what names it.

        Args:
            token: the save's.
            placed: the files that are in their places, in order.
            before: what those of them that took the place of others were.
        """
        with contextlib.suppress(OSError):
            self._discard(token)
            for file in reversed(placed):
                content = before.get(file)
                if content is None:
                    self._calls.unlink(self._path / file)
                else:
                    self._put(file, content)

    def _discard(self, token: str) -> None:
        """Delete what a save has beside; the state file first, which counts where it is alone."""
        with contextlib.suppress(OSError):
            found = [name for name in self._calls.listdir(self._path) if _token(name) == token]
            for name in sorted(found, key=lambda name: not name.endswith(_NEXT)):
                with contextlib.suppress(OSError):
                    self._calls.unlink(self._path / name)

    def _replace(self, name: str, data: bytes) -> None:
        with op_errors(f"{str(self._path / name)!r} was not written", self._describe):
            old = self._content(name)
            try:
                self._put(name, data)
            except BaseException:
                if self._content(name) != old:  # it is in its place, but the directory was not flushed
                    with contextlib.suppress(OSError):
                        if old is None:
                            self._calls.unlink(self._path / name)
                        else:
                            self._put(name, old)
                raise

    def _put(self, name: str, data: bytes) -> None:
        token = secrets.token_hex(4)
        try:
            self._write_beside(token, name, data)
            self._calls.replace(self._beside(token, name), self._path / name)
            self._sync_directory()
        except BaseException:
            with contextlib.suppress(OSError):
                self._calls.unlink(self._beside(token, name))
            raise

    def _content(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except OSError:
            return None

    def _sync_directory(self) -> None:
        self._calls.sync_directory(self._path)

    def _manifest(self, name: str) -> Manifest | None:
        data = self._content(name)
        with contextlib.suppress(DataLossError):
            return None if data is None else Manifest.decode(data, str(self._path / name))
        return None

    def _files(self, name: str) -> Sequence[TensorFile]:
        manifest = self._manifest(name)
        return () if manifest is None else manifest.files

    def _remove(self, basename: str) -> bool:
        name = f"{basename}.json"
        with self._shared().turn:
            files = [file.name for file in self._files(name)]
            if any(self._is_read(file) for file in files):
                return False
            journal = self._beside(secrets.token_hex(4), name)
            with contextlib.suppress(FileNotFoundError):
                self._calls.replace(self._path / name, journal)
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    self._calls.unlink(self._path / file)
            with contextlib.suppress(FileNotFoundError):
                self._calls.unlink(journal)
            return True

    def _unlink_unread(self, names: Sequence[str]) -> list[str]:
        """Delete files, and return the names of those that are left."""
        left = []
        for name in names:
            try:
                if self._is_read(name):
                    left.append(name)
                else:
                    self._calls.unlink(self._path / name)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.warning("Ignoring: %s", error)
                left.append(name)
        return left

    def _is_read(self, name: str) -> bool:
        """Return true when a reader, in whatever process, holds its shared lock on a file."""
        try:
            descriptor = portable.open_file(self._path / name, os.O_RDONLY)
        except OSError:
            return False
        try:
            portable.lock(descriptor)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks: an unlinked file stays readable where it is open
            return False
        finally:
            os.close(descriptor)
        return False

    def _clean_up(self) -> None:
        """Delete what saves and deletions left that did not come to their end."""
        names = self._calls.listdir(self._path)
        self._complete_commits(names)
        journals = [name for name in names if name.startswith(BESIDE) and name.endswith(".json")]
        manifests = [name for name in names if name.endswith(".json") and name not in journals]
        committed = [manifest for name in manifests if (manifest := self._manifest(name)) is not None]
        in_use = {file.name for manifest in committed for file in manifest.files}
        replaced = {name for manifest in committed for name in manifest.replaces}
        self._unlink_unread([name for name in names if name in replaced - in_use])
        for journal in journals:
            begun = {file.name for file in self._files(journal)} - in_use
            if self._unlink_unread([name for name in names if name in begun]):
                names.remove(journal)  # a reader still has one of its files: the next start sees to it
        beside = [name for name in names if name.startswith((BESIDE, _GRAPH_BESIDE))]
        self._unlink_unread([name for name in beside if name != LOCK_NAME])

    def _complete_commits(self, names: Sequence[str]) -> None:
        """Put state files into their places where nothing else is missing of a save."""
        unfinished = {_token(name) for name in names if name.endswith(".json")}
        for name in names:
            token = _token(name)
            if token is None or token in unfinished or not name.endswith(_NEXT):
                continue
            state = self._path / name.removeprefix(f"{BESIDE}{token}-").removesuffix(_NEXT)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self._path / name).st_mtime_ns < os.stat(state).st_mtime_ns:
                    continue  # somebody has changed the state file since: that counts
            self._calls.replace(self._path / name, state)
            self._sync_directory()

    def _fingerprint(self, names: Sequence[str]) -> Any:
        try:
            found = [os.stat(self._path / name) for name in names]
        except OSError:
            return None
        return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found)


def _token(name: str) -> str | None:
    """Return the token of the save that a file beside its place is of; None of another file."""
    rest = name.removeprefix(BESIDE)
    return rest.partition("-")[0] if rest != name else None
