"""Which checkpoint of a directory to restore: the newest one that verifies."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncmon.checkpoint import places
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.state import STATE_NAME, CheckpointState, read_state
from asyncmon.checkpoint.store import BESIDE, Store
from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.files import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["candidates", "is_whole", "latest_checkpoint"]

logger = logging.getLogger(__name__)

_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class _Whole:
    names: tuple[str, ...]
    fingerprint: Any


_verified: dict[str, _Whole] = {}


async def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """Return the prefix of the newest checkpoint whose bytes are all there, or None.

    TF1: same name. The state file says which is the newest; where that one is missing or damaged, it
    is logged with the reason and the next older one is looked at. Without a state file there is no
    checkpoint; with a damaged one, every checkpoint in the directory is looked at.
    """
    directory = os.fspath(checkpoint_dir)
    async for path in candidates(directory, latest_filename):
        if await is_whole(path):
            return path
    return None


async def candidates(directory: str, latest_filename: str | None = None) -> AsyncIterator[str]:
    """Yield the checkpoints of a directory, the newest first, whether they are whole or not."""
    store = places.open_store(directory)
    name = latest_filename or STATE_NAME
    state = await read_state(store, name)
    if state is None and name not in await store.names():
        return
    listed: list[str] = []
    if state is not None:
        for path in (state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)):
            if path not in listed:
                listed.append(path)
                yield path
    for path in await _unlisted(store, state):
        if path not in listed:
            yield path


async def is_whole(path: str) -> bool:
    """Return whether a checkpoint verifies, and log why not.

    One that was found whole is read again only when its files were replaced or modified since.
    """
    directory, _ = places.split(path)
    store = places.open_store(directory)
    known = _verified.get(path)
    if known is not None and await store.fingerprint(known.names) == known.fingerprint:
        return True
    try:
        async with await CheckpointReader.open(path) as reader:
            fingerprint = await store.fingerprint(reader.facts.file_names)
            await reader.verify()
    except NotFoundError:
        logger.error("Couldn't match files for checkpoint %s", path)
        return False
    except (DataLossError, OSError) as error:
        logger.warning("Skipping checkpoint %s: %s", path, error)
        return False
    if len(_verified) >= _REMEMBERED:
        _verified.clear()
    _verified[path] = _Whole(reader.facts.file_names, fingerprint)
    return True


async def _unlisted(store: Store, state: CheckpointState | None) -> list[str]:
    """Return the checkpoints that are in the directory, newest first, of the state's prefix."""
    prefix = None if state is None else _prefix(places.split(state.model_checkpoint_path)[1])
    found: list[tuple[float, str]] = []
    for name in await store.names():
        basename = name.removesuffix(".json")
        if basename == name or name.startswith(BESIDE) or prefix not in {None, _prefix(basename)}:
            continue
        path = places.join(store.directory, basename)
        with contextlib.suppress(DataLossError, OSError):
            manifest = await in_thread(Manifest.decode, await store.read(name), path)
            found.append((manifest.wall_time, path))
    return [path for _, path in sorted(found, reverse=True)]


def _prefix(basename: str) -> str:
    return re.sub(r"-\d+$", "", basename)
