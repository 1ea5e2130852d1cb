"""A directory of checkpoints: its lock, its list of checkpoints, commits and deletions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from asyncmon.checkpoint import commit as commits
from asyncmon.checkpoint import locations
from asyncmon.checkpoint.checkpoint_list import CheckpointList
from asyncmon.checkpoint.directory_lock import DirectoryLock
from asyncmon.checkpoint.manifest import Manifest, manifest_name
from asyncmon.checkpoint.manifest_reader import read_manifest
from asyncmon.checkpoint.os_errors import op_errors
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.retention import Kept, Retention
from asyncmon.checkpoint.state_file import (
    STATE_NAME,
    StateText,
    encode_state,
    read_text,
    state_of,
    write_state,
)
from asyncmon.checkpoint.store import Store
from asyncmon.errors import DataLossError, OpError
from asyncmon.system import portable
from asyncmon.system.files import FileCalls, in_thread, system_calls
from asyncmon.system.process_local import ProcessLocal
from asyncmon.system.urls import is_url

logger = logging.getLogger(__name__)


class Directory:
    """A directory, or a URL, of checkpoints. There is one object per process and directory.

    The path is resolved once: neither ``chdir`` nor a changed link moves an open directory. Manifests
    are the truth. The state file, written after each commit, selects the newest checkpoint and names
    the checkpoints of the retention. Each manifest has the marks and pending deletions of its commit.

    The list of checkpoints is read at the first save after the lock was acquired, and is then kept in
    memory. What the restore before has read is not read again, unless a file has changed since.

    Methods block, unless they are async.

    Attributes:
        path: the absolute path, or the URL.
        given: the path by which the session in use has named it, for :func:`shown`.
    """

    _known: ClassVar[ProcessLocal[dict[str, Directory]]] = ProcessLocal(dict)
    _registry: ClassVar[threading.Lock] = threading.Lock()
    _forgets_at_fork: ClassVar[bool] = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.given: str | None = None
        self._lock = DirectoryLock(path)
        self._lists: dict[str, CheckpointList] = {}  # by the name of the state file
        self._contents: dict[str, bytes | None] = {}  # of the state files, for the next journal
        # What the last restore has read, with the fingerprint before it, until the next commit.
        self._texts: dict[str, tuple[Any, StateText]] = {}
        self._entries: dict[str, tuple[Any, Entry]] = {}

    @classmethod
    def of(cls, directory: str | os.PathLike[str]) -> Directory:
        """Return the object of a directory or URL."""
        path = os.fspath(directory)
        known = cls._known.get()
        if path in known:  # resolved before
            return known[path]
        key = locations.resolved(path)
        with cls._registry:
            if not cls._forgets_at_fork:
                # A forked child shares the open file and its lock, but does not own it.
                portable.after_fork_in_child(cls._forget)
                cls._forgets_at_fork = True
            return known.setdefault(key, cls(key))

    @classmethod
    def _forget(cls) -> None:
        for directory in cls._known.get().values():
            directory._lock.forget()
        cls._known.set({})
        cls._registry = threading.Lock()

    @classmethod
    def bind(cls, directory: str | os.PathLike[str]) -> Directory:
        """Return the object of a directory that a session names so."""
        place = cls.of(directory)
        place.given = os.fspath(directory)
        return place

    @classmethod
    def shown(cls, path: str) -> str:
        """Return the path of a checkpoint by the name that a session has given to its directory.

        For log lines and results. The path itself, if that name is of another place now. Does not
        block.
        """
        directory, basename = locations.split(path)
        place = cls._known.get().get(directory)
        given = None if place is None else place.given
        if given is None or locations.absolute(given) != directory:
            return path
        return locations.join(given, basename)

    def open(self, calls: FileCalls | None = None) -> Store:
        """Return the store, for the system calls given or those of this process."""
        return locations.open_store(self.path, calls)

    # --- the saving process

    def claim(
        self, holder: object, calls: FileCalls, loop: asyncio.AbstractEventLoop | None = None
    ) -> Store:
        """Make and lock the directory, and clean up after a crash. Raises OpError.

        With a ``loop``, raises ValueError if another session trains here, see :class:`DirectoryLock`.
        """
        store = self.open(calls)
        with op_errors(f"Checkpoints cannot be saved into {self.path!r}", store.describe):
            store.make()
            self._lock.acquire(holder, calls, lambda: self._take(store), loop)
        return store

    def release(self, holder: object) -> None:
        """Undo :meth:`claim`. After the last holder, other processes can lock the directory."""
        self._lock.release(holder)

    def _take(self, store: Store) -> None:
        commits.clean_up(store)
        self._lists.clear()  # another process may have saved since

    # --- reading

    def entry(self, store: Store, basename: str, path: str) -> Entry:
        """Return what the list needs to know of a checkpoint. Raises as :func:`read_manifest`."""
        found = store.fingerprint([manifest_name(basename)])
        known, entry = self._entries.get(basename, (None, None))
        if entry is None or found is None or found != known:
            entry = Entry.of(path, read_manifest(store, basename, path))
            self._entries[basename] = found, entry
        return entry._replace(kept=entry.kept._replace(path=path))

    def look(self, store: Store, name: str) -> tuple[Any, StateText]:
        """Read the state file. Return a value that changes with it, and its text."""
        found = store.fingerprint([name]), read_text(store, name)
        self._texts[name] = found
        return found

    async def open_checkpoint(self, store: Store, path: str) -> CheckpointReader:
        """Open a checkpoint, and keep what the list needs to know of it. Raises as the reader does."""
        directory, basename = locations.split(path)
        is_own = directory == store.directory
        names = [manifest_name(basename)]
        found = await in_thread(store.fingerprint, names) if is_own else None
        reader = await CheckpointReader.open(path)
        if found is not None and reader.manifest is not None:
            self._entries[basename] = found, Entry.of(path, reader.manifest)
        return reader

    # --- the list and commits

    def checkpoints(self, name: str, store: Store) -> CheckpointList:
        """Return the list of a state file, which is read unless the directory is locked and it was."""
        with self._lock.mutex:
            if name not in self._lists:
                self._lists[name] = self._read_list(name, store)
            return self._lists[name]

    def peek(self, name: str) -> CheckpointList:
        """Return the list after a restore, which the first save after the lock reads again."""
        return self._read_list(name, self.open())

    def _read_list(self, name: str, store: Store) -> CheckpointList:
        fingerprint, text = self._texts.get(name, (None, StateText(None, None)))
        if fingerprint is None or fingerprint != store.fingerprint([name]):
            _, text = self.look(store, name)
        self._contents[name] = text.data
        if text.state is None:
            return CheckpointList()
        listed = self._existing(store, text.state.all_model_checkpoint_paths)
        last = listed[-1] if listed else Entry(Kept("", 0.0))
        names = {one.kept.path for one in listed}
        excess = [
            one
            for one in self._existing(store, [locations.join(self.path, name) for name in last.excess])
            if one.kept.path not in names
        ]
        preserved = last.preserved
        if preserved is None:  # TensorFlow has saved here
            preserved = text.state.last_preserved_timestamp
        return CheckpointList([one.kept for one in (*excess, *listed)], preserved)

    def _existing(self, store: Store, paths: Iterable[str]) -> list[Entry]:
        """Return those of the checkpoints that are in this directory."""
        found = []
        for path in paths:
            own = locations.own_path(self.path, path)
            if own is not None:
                with contextlib.suppress(FileNotFoundError):
                    found.append(existing(self, store, own))
        return found

    def commit(
        self,
        store: Store,
        draft: commits.Draft,
        number: int,
        name: str,
        retention: Retention,
        checkpoints: CheckpointList,
        relative: bool,
    ) -> Manifest | None:
        """Write a checkpoint and the state file, and delete old checkpoints.

        Returns None without a checkpoint: it would be deleted at once, as newer ones exist.

        Args:
            store: of this directory.
            draft: the checkpoint.
            number: orders the captured states of this process.
            name: of the state file.
            retention: decides which checkpoints stay.
            checkpoints: the list that it applies to.
            relative: whether the state file has relative paths.
        """
        manifest = draft.manifest
        path = locations.join(self.path, draft.basename)
        new = Kept(path, manifest.wall_time, manifest.metrics, number, manifest.step)
        with checkpoints.saving:
            decision = checkpoints.plan(new, retention)
            if new in decision.excess:  # newer checkpoints exist, and better ones
                return None
            listed, preserved = decision.listed, decision.after.last_preserved
            state = state_of(listed[-1].path, listed, preserved)
            content = encode_state(self.path, state, name, relative=relative)
            manifest = msgspec.structs.replace(
                manifest,
                preserved=preserved if math.isfinite(preserved) else None,
                excess=tuple(locations.split(one.path)[1] for one in decision.excess),
            )
            before = {name: self._contents.get(name)}
            draft = draft._replace(manifest=manifest, state={name: content}, before=before)
            manifest = commits.write(store, self._lock, draft)
            self._contents[name] = content
            self._texts.clear()
            self._entries.clear()
            checkpoints.settle(decision, self._delete(store, decision.excess))
        return manifest

    def write(self, store: Store, draft: commits.Draft) -> Manifest:
        """Write a checkpoint that no state file lists."""
        return commits.write(store, self._lock, draft)

    def keep_only(self, store: Store, stay: Sequence[Kept], preserved: float | None) -> None:
        """Set the list and the state file to some checkpoints, before the others are removed."""
        listed = self.checkpoints(STATE_NAME, store)
        with listed.saving:  # a saver of this process may have the directory, too
            kept = CheckpointList(stay).spelled(self.path)
            state = state_of(kept[-1].path, kept, preserved)
            self._contents[STATE_NAME] = write_state(store, state, STATE_NAME)
            listed.kept = kept

    def remove(self, store: Store, basename: str) -> bool:
        """Delete a checkpoint. Return False if a reader has it open."""
        return commits.remove(store, self._lock, basename)

    def _delete(self, store: Store, excess: Sequence[Kept]) -> list[Kept]:
        """Delete checkpoints. Return failed ones, whose deletion the next save retries."""
        left = []
        for one in excess:
            parent, basename = locations.split(one.path)
            place, there = self, store
            if parent != self.path:  # of a list that the user has set
                place = Directory.of(parent)
                there = place.open()
            try:
                if not place.remove(there, basename):
                    left.append(one)
            except (OSError, OpError) as error:
                logger.warning("Ignoring: %s", error)
                left.append(one)
        return left


class Entry(NamedTuple):
    """What the list of a directory needs to know of a checkpoint, from its manifest."""

    kept: Kept
    preserved: float | None = None
    excess: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: str, manifest: Manifest) -> Entry:
        """Return the entry of a manifest."""
        kept = Kept(path, manifest.wall_time, manifest.metrics, 0, manifest.step)
        return cls(kept, manifest.preserved, manifest.excess)


def existing(directory: Directory, store: Store, path: str) -> Entry:
    """Return the entry of a checkpoint; damaged ones count, too. Raises FileNotFoundError."""
    basename = locations.split(path)[1]
    try:
        return directory.entry(store, basename, path)
    except DataLossError:
        return Entry(Kept(path, store.mtime(manifest_name(basename)), step=step_of(path)))


def existing_checkpoints(paths: Iterable[str]) -> list[Kept]:
    """Return the existing ones of checkpoints in any directories. Blocking."""
    found = []
    for path in paths:
        directory = Directory.of(locations.split(path)[0])
        with contextlib.suppress(FileNotFoundError):
            found.append(existing(directory, directory.open(), path).kept)
    return found


def step_of(path: str) -> int | None:
    """Return the step in the name of a checkpoint, if it has one."""
    digits = re.search(r"-(\d+)$", path)
    return None if digits is None else int(digits[1])


class Claims:
    """The directories that a saver has locked, until it is closed or collected.

    Args:
        calls: the system calls to write with; None for those of the system.
    """

    def __init__(self, calls: FileCalls | None) -> None:
        self._calls = calls or system_calls.get()
        self._directories: set[Directory] = set()
        self._holder = object()
        weakref.finalize(self, _release, self._directories, self._holder)

    def has_plain_files(self, directory: str) -> bool:
        """Return whether other local processes can write the files of a directory, too."""
        return not is_url(directory) and type(self._calls) is FileCalls

    def claim(self, directory: Directory, loop: asyncio.AbstractEventLoop | None = None) -> Store:
        """Make and lock a directory, see :meth:`Directory.claim`. Blocking."""
        store = directory.claim(self._holder, self._calls, loop)
        self._directories.add(directory)
        return store

    def release(self) -> None:
        """Unlock all directories."""
        _release(self._directories, self._holder)


def _release(directories: set[Directory], holder: object) -> None:
    while directories:
        directories.pop().release(holder)
