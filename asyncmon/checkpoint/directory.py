"""Find the checkpoints of a directory: all of them, or the newest one that verifies."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.manifest import OPENING, Manifest, manifest_name
from asyncmon.checkpoint.os_errors import read_errors
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.retention import Kept
from asyncmon.checkpoint.safetensors_file import is_plain
from asyncmon.checkpoint.state_file import STATE_NAME, read_state
from asyncmon.checkpoint.store import Store
from asyncmon.checkpoint.tf_checkpoint import index_name
from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.system.files import BESIDE, in_thread, system_calls

logger = logging.getLogger(__name__)


async def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """Return the prefix of the newest checkpoint that verifies, or None. TF1: same name.

    The state file names the newest one. If that is missing or damaged, the reason is logged and the
    next older one is tried. Without a state file the result is None. If the state file is damaged, all
    checkpoints in the directory are tried.

    Args:
        checkpoint_dir: a path or URL. If there is no such directory, the result is None.
        latest_filename: the name of the state file, ``checkpoint`` by default.
    """
    return await Finder(os.fspath(checkpoint_dir), latest_filename).newest()


class Finder:
    """Finds the newest checkpoint of a directory that verifies, again and again.

    A checkpoint is read again only if its files have changed. The reason to skip one is logged once.
    """

    def __init__(self, directory: str, latest_filename: str | None) -> None:
        self.directory = directory
        self._latest_filename = latest_filename
        self._read: dict[str, tuple[tuple[str, ...], Any, Exception | None]] = {}
        self._logged: set[str] = set()

    async def newest(self) -> str | None:
        """Return the prefix of the newest checkpoint that verifies, or None."""
        before, self._read = self._read, {}
        async for path in candidates(self.directory, self._latest_filename):
            error = await self._examine(path, *before.get(path, ((), None, None)))
            if error is None:
                return path
            text = skip_message(path, error)
            if text not in self._logged:
                self._logged.add(text)
                logger.log(logging.ERROR if isinstance(error, NotFoundError) else logging.WARNING, text)
        return None

    async def _examine(
        self, path: str, names: tuple[str, ...], fingerprint: Any, error: Exception | None
    ) -> Exception | None:
        """Return the error of reading a checkpoint, or None if all checksums match."""
        store = locations.open_store(locations.split(path)[0])
        if not names or fingerprint != await in_thread(store.fingerprint, names):
            error = fingerprint = None
            try:
                async with await CheckpointReader.open(path) as reader:
                    names = reader.facts.file_names
                    fingerprint = await in_thread(store.fingerprint, names)
                    await reader.verify()
            except (NotFoundError, DataLossError) as found:
                error = found
        if fingerprint is not None:
            self._read[path] = names, fingerprint, error
        return error


def skip_message(path: str, error: Exception) -> str:
    """Return the log line for a checkpoint that cannot be used."""
    if isinstance(error, NotFoundError):
        return f"Couldn't match files for checkpoint {path}"
    return f"Skipping checkpoint {path}: {error}"


async def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Open a checkpoint, or the newest one of a directory that verifies. TF1: same name.

    The path of any safetensors file, ``weights.safetensors``, works too. Use the reader with
    ``async with``, or close it.

    Raises:
        ValueError: the directory has no checkpoint.
        NotFoundError: there is no checkpoint of this prefix.
        DataLossError: its manifest is damaged, or a file is missing or of another size.
    """
    path = os.fspath(ckpt_dir_or_file)
    if not is_plain(path) and not await checkpoint_exists(path):
        newest = await latest_checkpoint(path)
        if newest is None and await in_thread(_is_directory, path):
            raise ValueError(
                f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}"
            )
        path = newest or path
    return await CheckpointReader.open(path)


def _is_directory(path: str) -> bool:
    if locations.is_url(path):
        return bool(locations.open_store(path).names())
    calls, place = system_calls.get(), Path(path)
    return calls.exists(place) and stat.S_ISDIR(calls.stat(place).st_mode)


async def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Return whether there is such a checkpoint, asyncmon's or TensorFlow's. TF1: same name."""
    return await in_thread(main_file, *located(checkpoint_prefix)) is not None


def located(prefix: str | os.PathLike[str]) -> tuple[Store, str]:
    """Return the store and the base name of a checkpoint."""
    directory, basename = locations.split(prefix)
    return locations.open_store(directory), basename


def main_file(store: Store, basename: str) -> str | None:
    """Return the name of the file that makes a checkpoint exist, if there is one. Blocking."""
    names = store.names()
    mains = manifest_name(basename), index_name(basename)
    return next((name for name in mains if name in names), None)


def main_files(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the names of manifests and TensorFlow's indexes, each with its base name.

    Other JSON files are yielded, too: only the content shows that a file is no manifest.
    """
    for name in names:
        basename, _, ending = name.rpartition(".")
        if ending in {"json", "index"} and not name.startswith(BESIDE):
            yield name, basename


def read_entry(store: Store, basename: str, path: str) -> Kept:
    """Return path, time and metrics of a checkpoint. Blocking. Raises as :func:`read_manifest`."""
    manifest = read_manifest(store, basename, path)
    return Kept(path, manifest.wall_time, manifest.metrics)


def read_manifest(store: Store, basename: str, path: str) -> Manifest:
    """Return the manifest of a checkpoint. Blocking.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        DataLossError: the manifest is damaged.
        OpError: it cannot be read in this environment.
    """
    with read_errors(f"Checkpoint {path!r}"):
        try:
            return Manifest.decode(store.content(manifest_name(basename), OPENING), path)
        except FileNotFoundError as error:
            missing = error
    raise missing


async def candidates(
    directory: str,
    latest_filename: str | None = None,
    *,
    everything: bool = False,
    for_restore: bool = False,
) -> AsyncIterator[str]:
    """Yield the checkpoints of a directory, the newest first, without verifying them.

    The checkpoints in the state file come first, then others of the same prefix in the directory. If
    the state file is damaged, all checkpoints in the directory are yielded; without one, none.

    Args:
        directory: a path or URL.
        latest_filename: the name of the state file, ``checkpoint`` by default.
        everything: yield checkpoints of any prefix, even without a state file.
        for_restore: if the default state file is lost, log a warning and yield all checkpoints in the
            directory, as a training must not silently start from the beginning.
    """
    store = locations.open_store(directory)
    name = latest_filename or STATE_NAME
    state = await in_thread(read_state, store, name)
    if state is not None and not state.model_checkpoint_path:
        logger.warning("%s names no checkpoint: ignored", locations.join(directory, name))
        state = None
    listed: dict[str, None] = {}
    prefix = None
    if state is not None:
        newest = state.model_checkpoint_path
        listed = dict.fromkeys((newest, *reversed(state.all_model_checkpoint_paths)))
        prefix = _prefix(locations.split(newest)[1])
    elif for_restore and latest_filename is None:
        everything = True
    elif not everything and name not in await in_thread(store.names):
        return
    for path in listed:
        yield path
    with read_errors(f"The directory {directory!r}"):
        found = await in_thread(_present, store, None if everything else prefix)
    known = await in_thread(lambda: {locations.own_path(store.directory, path) for path in listed})
    if state is None and for_restore and found:
        logger.warning(
            "The state file %s is missing, damaged or empty, but %d checkpoints are in the directory, "
            "the newest is %s. Restoring the newest valid one. To start from the beginning, remove the "
            "checkpoints or use another directory.",
            locations.join(directory, name),
            len(found),
            found[0],
        )
    for path in found:
        if path not in known:
            yield path


def _present(store: Store, prefix: str | None) -> list[str]:
    """Return the checkpoints in a directory, the newest first, of one prefix or all. Blocking."""
    found: list[tuple[float, str]] = []
    for name, basename in main_files(store.names()):
        if prefix not in {None, _prefix(basename)}:
            continue
        path = locations.join(store.directory, basename)
        is_manifest = name == manifest_name(basename)
        with contextlib.suppress(OSError):  # deleted, or unreadable: read_entry raises what matters
            try:
                time = read_entry(store, basename, path).time if is_manifest else store.mtime(name)
            except DataLossError:
                if not store.content(name, OPENING).startswith(OPENING):
                    continue  # some other JSON file
                time = store.mtime(name)
            found.append((time, path))
    return [path for _, path in sorted(found, reverse=True)]


def _prefix(basename: str) -> str:
    return re.sub(r"-\d+$", "", basename)
