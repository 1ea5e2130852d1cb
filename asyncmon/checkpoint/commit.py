"""Commit and delete checkpoints atomically, in any store.

A save has these steps:

1. Write a journal, ``.asyncmon-<token>-<checkpoint>.json``, with the names of the tensor files, the
   new content of the state file and the checksum of its present one.
2. Write the tensor files under unused names.
3. Write the manifest. This commits the checkpoint.
4. Write the state file, and delete the journal.

A deletion first renames the manifest to such a journal.

The first saver that claims a directory cleans up after a crash. It deletes tensor files that are named
by a journal but by no manifest. If the manifest of a journal was committed, and the state file is still
the one that the save was to replace, it writes the state file. Times play no part in it: clocks are set
back, and those of an object store have whole seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import google_crc32c
import msgspec
import numpy as np

from asyncmon.checkpoint import tensor_file
from asyncmon.checkpoint.directory_lock import DirectoryLock
from asyncmon.checkpoint.dtypes import Array, byte_chunks
from asyncmon.checkpoint.manifest import (
    RECORD_NAME,
    SHARED,
    Manifest,
    TensorEntry,
    TensorFile,
    manifest_name,
)
from asyncmon.checkpoint.os_errors import describe, op_errors
from asyncmon.checkpoint.shared_files import Adopted, adopt
from asyncmon.checkpoint.state_file import is_state
from asyncmon.checkpoint.store import Store, replace_files
from asyncmon.checkpoint.throttle import Control, Pace, each
from asyncmon.errors import DataLossError, FailedPreconditionError
from asyncmon.system.files import (
    BESIDE,
    FileCalls,
    NotRegularFileError,
    beside,
    is_file_name,
)
from asyncmon.system.snapshot import FixedArray, Holder

logger = logging.getLogger(__name__)

_CHUNK = 1 << 20
_STATE = "asyncmon.state_file"
_BEFORE = "asyncmon.state_file_before"


class Draft(NamedTuple):
    """A checkpoint to write: its arrays, and a manifest without files and tensors."""

    path: str
    basename: str
    arrays: Mapping[str, Array]
    manifest: Manifest
    control: Control
    state: Mapping[str, bytes] = MappingProxyType({})  # name and content of the state file, if any
    before: Mapping[str, bytes | None] = MappingProxyType({})  # its present content
    holder: Holder | None = None  # writes the files with arrays of other processes


def write(store: Store, lock: DirectoryLock, draft: Draft) -> Manifest:
    """Write and commit a checkpoint and its state file durably. Blocking.

    After an error or a stop by ``draft.control``, no file of it is left, and an earlier checkpoint of
    the same name and the state file are unchanged.

    Raises:
        OpError: the store fails.
        FailedPreconditionError: another process claimed the directory.
        CancelledError: the save was stopped.
    """
    name = manifest_name(draft.basename)
    if name == RECORD_NAME:
        raise RuntimeError(
            f"Save path '{draft.path}' conflicts with path used for the run record. "
            "Please use a different save path."
        )
    journal = beside(name)
    parts = tensor_file.plan(draft.arrays, draft.basename)
    adopted = Adopted({}, ())
    names: list[str] = []
    written: dict[str, Mapping[str, int]] = {}

    def write_one(file: str, part: tensor_file.Part) -> None:
        checksums: dict[str, int] = {}
        if draft.holder is None or not part.is_held:
            store.write(file, chunks(part, draft.control, checksums))
        else:
            path = os.path.abspath(os.path.join(store.directory, file))
            try:
                checksums = draft.holder.write_file(path, part.header, part.arrays, draft.control)
            except BaseException:
                store.delete(file)  # that process may have been killed
                raise
        written[file] = checksums

    with op_errors(f"Checkpoint {draft.path!r} was not saved", store.describe):
        try:
            with lock.mutex:
                if any(part.shared for part in parts):
                    adopted = adopt(store, lock.shared.in_use(store, _manifest), parts)
                    parts = [part for part in parts if part.shared not in adopted.files]
                taken = {*store.names(), *lock.reserved}
                names = tensor_file.names_of(parts, draft.basename, taken)
                lock.reserved.update(names)
            draft.control.left = sum(part.nbytes for part in parts if not part.is_held)
            store.write(journal, _journal(names, draft.state, draft.before))
            writes = [partial(write_one, *one) for one in zip(names, parts, strict=True)]
            each(writes, draft.control)
            with lock.mutex:  # another saver of this process may commit the same checkpoint
                old = _content(store, name)
                replaced = None if old is None else _decoded(old, name)
                manifest = _complete(draft, parts, written, names, adopted)
                free = _files(replaced) - _files(manifest)
                if any(file.startswith(SHARED) for file in free):
                    free -= lock.shared.in_use(store, _manifest, without=name).keys()
                manifest = msgspec.structs.replace(manifest, replaces=tuple(sorted(free)))
                lock.check()
                _check_is_there(store, journal)
                files = {name: manifest.encode(), **draft.state}
                replace_files(store, files, {name: old, **draft.before})
        except BaseException:
            with contextlib.suppress(OSError):  # else the next saver cleans up by the journal
                if written.keys().isdisjoint(_files(_manifest(store, name))):
                    _delete(store, [*written, journal])
            raise
        finally:
            adopted.close()
            with lock.mutex:
                lock.reserved.difference_update(names)
    _finish(store, journal, manifest.replaces)
    return manifest


def remove(store: Store, lock: DirectoryLock, basename: str) -> bool:
    """Delete a checkpoint. Return False if a reader has it open. Blocking."""
    name = manifest_name(basename)
    with lock.mutex:
        files = _files(_manifest(store, name))
        if any(file.startswith(SHARED) for file in files):
            files -= lock.shared.in_use(store, _manifest, without=name).keys()
        if any(store.is_read(file) for file in files):
            return False
        journal = beside(name)
        with contextlib.suppress(FileNotFoundError):  # there is no manifest any more
            store.rename(name, journal)
        _delete(store, [*sorted(files), journal])
    return True


def clean_up(store: Store) -> None:
    """Complete or delete the incomplete saves that a crash has left. Blocking."""
    names = store.names()
    remains = [name for name in names if name.startswith(BESIDE)]
    journals = [name for name in remains if name.endswith(".json")]
    ours = [name for name in names if name.endswith(".json") and name not in journals]
    manifests = {name: _manifest(store, name) for name in ours} if journals else {}
    in_use = set().union(*map(_files, manifests.values()))
    for journal in journals:
        begun, name = _manifest(store, journal), journal.removeprefix(BESIDE).partition("-")[2]
        files, manifest = _files(begun), manifests.get(name)
        if begun is not None and manifest is not None and files <= _files(manifest):
            _complete_state(store, begun)
            files.update(manifest.replaces)
        _finish(store, journal, sorted(files - in_use))
    _delete_unread(store, set(remains) - set(journals))


def _journal(
    names: Sequence[str],
    state: Mapping[str, bytes],
    before: Mapping[str, bytes | None] = MappingProxyType({}),
) -> bytes:
    files = tuple(TensorFile(name, 0, "") for name in names)
    program = {
        _STATE: {name: data.decode() for name, data in state.items()},
        _BEFORE: {name: _checksum(before.get(name)) for name in state},
    }
    return Manifest(files=files, program=program).encode()


def _checksum(content: bytes | None) -> int | None:
    return None if content is None else google_crc32c.value(content)


def _complete_state(store: Store, journal: Manifest) -> None:
    """Write the state file of a committed save, unless it is written or was changed later."""
    program = journal.program
    if not isinstance(program, dict) or program.keys() != {_STATE, _BEFORE}:
        return  # the journal of a deletion
    for name, text in program[_STATE].items():
        if not is_file_name(name) or not is_state(text.encode()):
            continue
        with contextlib.suppress(NotRegularFileError):  # a directory or a pipe is in its place
            if _checksum(_content(store, name)) == program[_BEFORE].get(name):
                logger.warning("A save of %r was interrupted: completing it.", store.directory)
                store.put({name: text.encode()})


def chunks(
    part: tensor_file.Part, control: Control, checksums: dict[str, int]
) -> Iterator[bytes | memoryview]:
    """Yield the content of a tensor file, and store the checksums of its arrays."""
    pace = Pace(control)
    yield part.header
    for name, array in part.arrays.items():
        checksums[name] = 0
        content: Any = array
        if isinstance(content, FixedArray):
            content = np.asarray(content)  # of this process, and only now
        for chunk in byte_chunks(content, _CHUNK):
            control.check()
            checksums[name] = google_crc32c.extend(checksums[name], chunk)
            yield chunk.data
            pace.did(chunk.nbytes)


def write_part(path: str, part: tensor_file.Part, control: Control) -> dict[str, int]:
    """Write a tensor file for a saver in another process; return the checksums of its arrays."""
    checksums: dict[str, int] = {}
    control.left = part.nbytes
    with op_errors(f"{path!r} was not written", lambda: describe(Path(path).parent)):
        FileCalls().write_file(Path(path), chunks(part, control, checksums))
    return checksums


def _complete(
    draft: Draft,
    parts: Sequence[tensor_file.Part],
    checksums: Mapping[str, Mapping[str, int]],
    names: Sequence[str],
    adopted: Adopted,
) -> Manifest:
    """Return the manifest of a checkpoint with its files, written ones and adopted ones."""
    entries: dict[str, TensorEntry] = {}
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        entries.update(part.entries(number, checksums[name]))
    for number, shared in enumerate(adopted.files.values(), len(parts)):
        for name, entry in shared.entries.items():
            entries[name] = msgspec.structs.replace(entry, file=number)
    written = (part.describe(name) for part, name in zip(parts, names, strict=True))
    return msgspec.structs.replace(
        draft.manifest,
        files=(*written, *(shared.file for shared in adopted.files.values())),
        tensors={name: entries[name] for name in draft.arrays},
    )


def _check_is_there(store: Store, journal: str) -> None:
    try:
        store.mtime(journal)
    except FileNotFoundError as error:
        raise FailedPreconditionError(
            f"Another process claimed {store.directory!r} and deleted this save: save into another"
            " directory, or stop that process."
        ) from error


def _manifest(store: Store, name: str) -> Manifest | None:
    # Other errors are raised: if the disk or the network fails, the manifest may exist.
    with contextlib.suppress(NotRegularFileError):
        content = _content(store, name)
        return None if content is None else _decoded(content, name)
    return None


def _decoded(content: bytes, name: str) -> Manifest | None:
    file = name.removeprefix(BESIDE).partition("-")[2] if name.startswith(BESIDE) else name
    with contextlib.suppress(DataLossError):  # damaged: it names no files
        return Manifest.decode(content, file.removesuffix(".json"))
    return None


def _content(store: Store, name: str) -> bytes | None:
    try:
        return store.content(name)
    except FileNotFoundError:
        return None


def _files(manifest: Manifest | None) -> set[str]:
    return set() if manifest is None else {file.name for file in manifest.files}


def _delete(store: Store, names: Iterable[str]) -> None:
    for name in names:
        store.delete(name)


def _finish(store: Store, journal: str, files: Iterable[str]) -> None:
    """Delete files and then the journal, or rewrite it with the files that could not be deleted."""
    left = _delete_unread(store, files)
    if not left:
        _delete_unread(store, [journal])
    else:
        with contextlib.suppress(OSError):  # the journal stays as it is, for the next saver
            store.put({journal: _journal(left, {})})


def _delete_unread(store: Store, names: Iterable[str]) -> list[str]:
    """Delete files. Return the ones that a reader has open, or whose deletion failed."""
    left = []
    for name in names:
        try:
            if store.is_read(name):
                left.append(name)
            else:
                store.delete(name)
        except OSError as error:
            logger.warning("Ignoring: %s", error)
            left.append(name)
    return left
