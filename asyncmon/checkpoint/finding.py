"""Find the checkpoints of a directory: all of them, or the newest one that verifies."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.directory import Directory, step_of
from asyncmon.checkpoint.manifest import OPENING, manifest_name
from asyncmon.checkpoint.os_errors import read_errors
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.safetensors_file import PlainFiles, is_plain, main_plain_files
from asyncmon.checkpoint.state_file import STATE_NAME, StateText
from asyncmon.checkpoint.store import Store
from asyncmon.checkpoint.tf_checkpoint import index_name
from asyncmon.errors import DataLossError, NotFoundError, OpError, UnavailableError
from asyncmon.system.files import BESIDE, in_thread, system_calls
from asyncmon.system.urls import is_url

logger = logging.getLogger(__name__)

_LOOKS = 100  # at a directory whose checkpoints are replaced while they are opened


async def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """Return the prefix of the newest checkpoint that verifies, or None. TF1: same name.

    It is the one that the state file names, if that is whole. Otherwise the reason is logged and the
    others are tried, in the order of their steps. Without a state file the result is None. If the state
    file is damaged, all checkpoints in the directory are tried.

    Args:
        checkpoint_dir: a path or URL. If there is no such directory, the result is None.
        latest_filename: the name of the state file, ``checkpoint`` by default.
    """
    return await Finder(os.fspath(checkpoint_dir), latest_filename).newest()


T = TypeVar("T")


class Skip(Exception):
    """A checkpoint is missing or damaged: the next older one is tried."""

    def __init__(self, path: str, error: OpError) -> None:
        super().__init__(path, error)
        self.path = path
        self.error = error

    @property
    def line(self) -> str:
        """The text of the log line."""
        if isinstance(self.error, NotFoundError):
            return f"Couldn't match files for checkpoint {Directory.shown(self.path)}"
        return f"Skipping checkpoint {Directory.shown(self.path)}: {self.error}"


@contextlib.contextmanager
def skipping(path: str, *errors: type[OpError]) -> Iterator[None]:
    """Raise :class:`Skip` for some errors of the block, which reads a checkpoint."""
    try:
        yield
    except errors as error:
        raise Skip(path, error) from error


async def first_whole(
    checkpoint_dir: str | os.PathLike[str],
    latest_filename: str | None,
    attempt: Callable[[Directory, Store, str], Awaitable[T]],
    *,
    for_restore: bool = False,
    is_logged: Callable[[str], bool] = lambda _: True,
) -> tuple[str, T] | None:
    """Try the checkpoints of a directory, the newest first; return the first path and its result.

    Args:
        checkpoint_dir: a path or URL.
        latest_filename: the name of the state file, ``checkpoint`` by default.
        attempt: raises :class:`Skip` for a checkpoint that cannot be used.
        for_restore: see :func:`candidates`.
        is_logged: returns whether to log a text for a skipped checkpoint.
    """
    directory = os.fspath(checkpoint_dir)
    place, store = await in_thread(Directory.of, directory), locations.open_store(directory)
    name = latest_filename or STATE_NAME
    # Another process may delete a checkpoint before it is opened. It has then replaced the state file
    # before, which is read again.
    for _ in range(_LOOKS):
        before, text = await in_thread(place.look, store, name)
        everything = for_restore and latest_filename is None
        found = candidates(place, store, name, text, everything=everything, warn=for_restore)
        async for path in found:
            try:
                return path, await attempt(place, store, path)
            except Skip as skip:
                if await in_thread(store.fingerprint, [name]) != before:
                    break
                if is_logged(skip.line):
                    is_error = isinstance(skip.error, NotFoundError) and not for_restore
                    logger.log(logging.ERROR if is_error else logging.WARNING, skip.line)
        else:
            return None
    raise UnavailableError(
        f"The checkpoints of {directory!r} were replaced {_LOOKS} times while they were opened."
    )


class Finder:
    """Finds the newest checkpoint of a directory that verifies, again and again.

    A checkpoint is read again only if its files have changed. The reason to skip one is logged once.
    """

    def __init__(self, directory: str, latest_filename: str | None) -> None:
        self.directory = directory
        self._latest_filename = latest_filename
        self._read: dict[str, tuple[tuple[str, ...], Any, OpError | None]] = {}
        self._before = self._read
        self._logged: set[str] = set()

    async def newest(self) -> str | None:
        """Return the prefix of the newest checkpoint that verifies, or None."""
        self._before, self._read = self._read, {}
        found = await first_whole(
            self.directory, self._latest_filename, self._examine, is_logged=self._is_new
        )
        return None if found is None else found[0]

    def _is_new(self, line: str) -> bool:
        is_new = line not in self._logged
        self._logged.add(line)
        return is_new

    async def _examine(self, _place: Directory, store: Store, path: str) -> None:
        """Raise Skip, unless all checksums match."""
        names, fingerprint, error = self._before.get(path, ((), None, None))
        store = locations.open_store(locations.split(path)[0])
        if not names or fingerprint != await in_thread(store.fingerprint, names):
            error = fingerprint = None
            try:
                async with await CheckpointReader.open(path) as reader:
                    names = reader.facts.file_names
                    fingerprint = await in_thread(store.fingerprint, names)
                    await _verified(reader)
            except (NotFoundError, DataLossError) as found:
                error = found
        if fingerprint is not None:
            self._read[path] = names, fingerprint, error
        if error is not None:
            raise Skip(path, error)


async def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Open a checkpoint, or the newest one of a directory that verifies. TF1: same name.

    The path of any safetensors file works too: ``weights.safetensors``, or the index of several ones,
    ``model.safetensors.index.json``; and a directory without a checkpoint that has an index, a
    ``model.safetensors``, or one such file. Use the reader with ``async with``, or close it.

    Raises:
        ValueError: the directory has no checkpoint.
        NotFoundError: there is no checkpoint of this prefix.
        DataLossError: its manifest is damaged, or a file is missing or of another size.
    """
    path = os.fspath(ckpt_dir_or_file)
    if is_plain(path) or await checkpoint_exists(path):
        return await CheckpointReader.open(path)
    newest = await first_whole(path, None, _open_verified)
    if newest is not None:
        return newest[1]
    with read_errors(f"The directory {path!r}"):
        is_directory = await in_thread(_is_directory, path)
    if is_directory:
        with read_errors(f"The directory {path!r}"):
            store = locations.open_store(path)
            plain = await in_thread(main_plain_files, path, await in_thread(store.names))
            if len(plain) > 1:
                return CheckpointReader(path, await PlainFiles.open_all(store, plain, path))
        if plain:
            return await CheckpointReader.open(locations.join(path, plain[0]))
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}")
    return await CheckpointReader.open(path)


async def _open_verified(_place: Directory, _store: Store, path: str) -> CheckpointReader:
    with skipping(path, NotFoundError, DataLossError):
        reader = await CheckpointReader.open(path)
        try:
            await _verified(reader)
        except BaseException:
            await reader.close()
            raise
    return reader


async def _verified(reader: CheckpointReader) -> None:
    """Compare all bytes with their checksums. The other entries of an incomplete one are usable."""
    if reader.facts.incomplete:
        await reader.get_tensors(reader.facts.shapes.keys() - reader.facts.incomplete.keys())
    else:
        await reader.verify()


def _is_directory(path: str) -> bool:
    if is_url(path):
        return bool(locations.open_store(path).names())
    calls, place = system_calls.get(), Path(path)
    return calls.exists(place) and stat.S_ISDIR(calls.stat(place).st_mode)


async def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Return whether there is such a checkpoint, asyncmon's or TensorFlow's. TF1: same name."""
    with read_errors(f"Checkpoint {os.fspath(checkpoint_prefix)!r}"):
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
    """Yield the names of manifests and TensorFlow's indexes, each with its base name."""
    for name in names:
        basename, _, ending = name.rpartition(".")
        # Only the content shows that a JSON file is no manifest.
        if ending in {"json", "index"} and not name.startswith(BESIDE):
            yield name, basename


async def candidates(
    place: Directory,
    store: Store,
    name: str,
    text: StateText,
    *,
    everything: bool = False,
    warn: bool = False,
) -> AsyncIterator[str]:
    """Yield the checkpoints of a directory, without verifying them.

    The one that the state file names is the first, then others of the same prefix in the order of their
    steps, the latest first. If the state file is damaged, all checkpoints in the directory are yielded;
    without one, none.

    Args:
        place: the directory.
        store: its files. Paths are spelled like its ``directory``.
        name: the name of the state file.
        text: its content.
        everything: yield checkpoints of any prefix, even without a state file.
        warn: log a warning if the state file is lost and there are checkpoints: a training must not
            silently start from the beginning.
    """
    state = text.state
    if state is not None and not state.model_checkpoint_path:
        logger.warning("%s names no checkpoint: ignored", locations.join(store.directory, name))
        state = None
    listed: Sequence[str] = ()
    prefix = None
    if state is not None:
        newest = state.model_checkpoint_path
        yield newest
        listed = [path for path in state.all_model_checkpoint_paths if path != newest]
        prefix = None if everything and not warn else _prefix(locations.split(newest)[1])
    elif text.data is None and not everything:
        with read_errors(f"The directory {store.directory!r}"):
            if name not in await in_thread(store.names):
                return
    with read_errors(f"The directory {store.directory!r}"):
        found = await in_thread(_by_step, place, store, prefix, listed)
        if state is not None:
            named = await in_thread(locations.own_path, store.directory, newest)
            found = [path for path in found if path not in {newest, named}]
    if state is None and warn and found:
        logger.warning(
            "The state file %s is missing, damaged or empty, but %d checkpoints are in the directory, "
            "the newest is %s. Restoring the newest valid one. To start from the beginning, remove the "
            "checkpoints or use another directory.",
            locations.join(store.directory, name),
            len(found),
            found[0],
        )
    for path in found:
        yield path


def _by_step(place: Directory, store: Store, prefix: str | None, listed: Iterable[str]) -> list[str]:
    """Return listed checkpoints and those in a directory, of one prefix or all, the newest first."""
    found: dict[str, tuple[int, float]] = {}
    for path in listed:
        found[locations.own_path(store.directory, path) or path] = step_of(path) or -1, 0.0
    for name, basename in main_files(store.names()):
        if prefix not in {None, _prefix(basename)}:
            continue
        path = locations.join(store.directory, basename)
        # A checkpoint that is deleted now is left out; one that cannot be read fails when it is opened.
        with contextlib.suppress(OSError):
            step = step_of(path)
            try:
                is_manifest = name == manifest_name(basename)
                one = place.entry(store, basename, path).kept if is_manifest else None
            except DataLossError:
                if not store.content(name, OPENING).startswith(OPENING):
                    continue  # some other JSON file
                one = None
            if one is None:
                found[path] = -1 if step is None else step, store.mtime(name)
            else:
                step = step if one.step is None else one.step
                found[path] = -1 if step is None else step, one.time
    return sorted(found, key=lambda path: (found[path], path), reverse=True)


def _prefix(basename: str) -> str:
    return re.sub(r"-\d+$", "", basename)
