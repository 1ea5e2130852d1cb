"""The checkpoints of a directory, and the newest one that verifies."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.state_file import STATE_NAME, read_state
from asyncmon.checkpoint.store import Store
from asyncmon.checkpoint.tf_checkpoint import index_name
from asyncmon.errors import DataLossError, NotFoundError, OpError
from asyncmon.system.files import BESIDE, in_thread

logger = logging.getLogger(__name__)


async def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """Return the prefix of the newest checkpoint whose bytes are all there, or None.

    TF1: same name. The state file names the newest; where that one is missing or damaged, the reason
    is logged and the next older one is tried. Without a state file there is no checkpoint; with a
    damaged one, every checkpoint in the directory is tried.

    Args:
        checkpoint_dir: a directory or the URL of one; None is returned where it is missing.
        latest_filename: the name of the state file, ``checkpoint`` by default.
    """
    return await Finder(os.fspath(checkpoint_dir), latest_filename).newest()


class Finder:
    """Finds the newest checkpoint of a directory that verifies, as often as it is called.

    A checkpoint is read again only if its files have changed. The reason to skip one is logged once.
    """

    def __init__(self, directory: str, latest_filename: str | None) -> None:
        self.directory = directory
        self._latest_filename = latest_filename
        self._read: dict[str, tuple[tuple[str, ...], Any, Exception | None]] = {}
        self._logged: set[str] = set()

    async def newest(self) -> str | None:
        """Return the prefix of the newest whole checkpoint, or None."""
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
        """Return the error of reading a checkpoint, or None where every byte is as it was saved."""
        store = locations.open_store(locations.split(path)[0])
        if not names or fingerprint != await in_thread(store.fingerprint, names):
            error = fingerprint = None
            try:
                async with await CheckpointReader.open(path) as reader:
                    names = reader.facts.file_names
                    fingerprint = await in_thread(store.fingerprint, names)
                    await reader.verify()
            except (NotFoundError, DataLossError, OSError) as found:
                error = found
        if fingerprint is not None:
            self._read[path] = names, fingerprint, error
        return error


def skip_message(path: str, error: Exception) -> str:
    """Return the log line for a checkpoint that cannot be used."""
    if isinstance(error, NotFoundError):
        return f"Couldn't match files for checkpoint {path}"
    return f"Skipping checkpoint {path}: {error}"


async def candidates(
    directory: str,
    latest_filename: str | None = None,
    *,
    everything: bool = False,
    for_restore: bool = False,
) -> AsyncIterator[str]:
    """Yield the checkpoints of a directory, the newest first, whether they are whole or not.

    First come those that the state file lists, then others of the same prefix in the directory. With a
    damaged state file these are all in the directory, without a state file there are none.

    Args:
        directory: a path or URL.
        latest_filename: the name of the state file, ``checkpoint`` by default.
        everything: yield all in the directory, of any prefix, also without a state file.
        for_restore: yield all in the directory, with a warning, where the default state file is lost:
            training must not begin anew in silence.
    """
    store = locations.open_store(directory)
    name = latest_filename or STATE_NAME
    state = await read_state(store, name)
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
    found = await in_thread(_present, store, None if everything else prefix)
    others = await in_thread(_unlisted, found, listed)
    if state is None and for_restore and found:
        logger.warning(
            "The state file %s is missing, damaged or empty, but %d checkpoints are in the directory, "
            "the newest is %s. Restoring the newest whole one. To begin anew, remove the checkpoints "
            "or use another directory.",
            locations.join(directory, name),
            len(found),
            found[0],
        )
    for path in others:
        yield path


def _unlisted(found: Iterable[str], listed: Iterable[str]) -> list[str]:
    """Return the checkpoints that are not listed, which may be by other paths. Blocking."""
    known = set(map(locations.identity, listed))
    return [path for path in found if locations.identity(path) not in known]


def _present(store: Store, prefix: str | None) -> list[str]:
    """Return the checkpoints in a directory, the newest first, of one prefix or all. Blocking."""
    found: list[tuple[float, str]] = []
    for name in store.names():
        basename, _, ending = name.rpartition(".")
        if name.startswith(BESIDE) or prefix not in {None, _prefix(basename)}:
            continue
        path = locations.join(store.directory, basename)
        with contextlib.suppress(OpError, OSError):
            if name == index_name(basename):
                found.append((store.mtime(name), path))
            elif ending == "json":
                found.append((Manifest.decode(store.content(name), path).wall_time, path))
    return [path for _, path in sorted(found, reverse=True)]


def _prefix(basename: str) -> str:
    return re.sub(r"-\d+$", "", basename)
