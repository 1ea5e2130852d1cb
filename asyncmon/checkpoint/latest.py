"""Which checkpoint of a directory to restore: the newest one that verifies."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.state_file import STATE_NAME, CheckpointState, read_state
from asyncmon.checkpoint.store import BESIDE, Store
from asyncmon.checkpoint.tf_checkpoint import index_name
from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.files import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


logger = logging.getLogger(__name__)

_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a checkpoint is not whole, as a sentence, and how loudly the log says so."""

    text: str
    level: int = logging.WARNING


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What was found of files with this fingerprint: None where they are whole."""

    names: tuple[str, ...]
    fingerprint: Any
    problem: Problem | None


_verdicts: dict[str, _Verdict] = {}


async def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """Return the prefix of the newest checkpoint whose bytes are all there, or None.

    TF1: same name. The state file says which is the newest; where that one is missing or damaged, it
    is logged with the reason and the next older one is looked at. Without a state file there is no
    checkpoint; with a damaged one, every checkpoint in the directory is looked at.
    """
    return await newest_whole(os.fspath(checkpoint_dir), latest_filename, set())


async def newest_whole(directory: str, latest_filename: str | None, said: set[str]) -> str | None:
    """Do what :func:`latest_checkpoint` does, logging no reason that is in ``said`` already."""
    async for path in candidates(directory, latest_filename):
        problem = await problem_of(path)
        if problem is None:
            return path
        if problem.text not in said:
            said.add(problem.text)
            logger.log(problem.level, problem.text)
    return None


async def candidates(
    directory: str, latest_filename: str | None = None, *, everything: bool = False
) -> AsyncIterator[str]:
    """Yield the checkpoints of a directory, the newest first, whether they are whole or not.

    First those that the state file lists, then others of the same prefix that are there. Without a
    state file there are none, unless ``everything`` is asked for: then also those of other prefixes.
    """
    store = locations.open_store(directory)
    name = latest_filename or STATE_NAME
    state = await read_state(store, name)
    if state is not None and not state.model_checkpoint_path:
        logger.warning("%s names no checkpoint: ignored", locations.join(directory, name))
        state = None
    if state is None and not everything and name not in await store.names():
        return
    listed: list[str] = []
    if state is not None:
        for path in (state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)):
            if path not in listed:
                listed.append(path)
                yield path
    for path in await _unlisted(store, None if everything else state):
        if path not in listed:
            yield path


async def restorable(directory: str, latest_filename: str | None) -> AsyncIterator[str]:
    """Yield the checkpoints of a directory that a session may restore, the newest first.

    A state file that is gone, or names no checkpoint, is no reason to begin anew in silence where
    checkpoints are: then these are yielded, with a warning.
    """
    store = locations.open_store(directory)
    name = latest_filename or STATE_NAME
    state = await read_state(store, name) if latest_filename is None else None
    lost = latest_filename is None and (state is None or not state.model_checkpoint_path)
    found = [path async for path in candidates(directory, latest_filename, everything=lost)]
    if lost and found:
        logger.warning(
            "The state file %s is missing, damaged or empty, but %d checkpoints are in the directory, "
            "the newest is %s. Restoring the newest whole one. To begin anew, remove the checkpoints "
            "or use another directory.",
            locations.join(directory, name),
            len(found),
            found[0],
        )
    for path in found:
        yield path


async def problem_of(path: str) -> Problem | None:
    """Read all of a checkpoint; return None where it is whole, or why it is not.

    One that was looked at before is read again only when its files were replaced or modified since.
    """
    directory, _ = locations.split(path)
    store = locations.open_store(directory)
    known = _verdicts.get(path)
    if known is not None and await store.fingerprint(known.names) == known.fingerprint:
        return known.problem
    problem = None
    try:
        async with await CheckpointReader.open(path) as reader:
            names = reader.facts.file_names
            fingerprint = await store.fingerprint(names)
            try:
                await reader.verify()
            except DataLossError as error:
                problem = Problem(f"Skipping checkpoint {path}: {error}")
    except NotFoundError:
        return Problem(f"Couldn't match files for checkpoint {path}", logging.ERROR)
    except (DataLossError, OSError) as error:
        return Problem(f"Skipping checkpoint {path}: {error}")
    if len(_verdicts) >= _REMEMBERED:
        _verdicts.clear()
    if fingerprint is not None:
        _verdicts[path] = _Verdict(names, fingerprint, problem)
    return problem


async def _unlisted(store: Store, state: CheckpointState | None) -> list[str]:
    """Return the checkpoints that are in the directory, newest first, of the state's prefix."""
    prefix = None if state is None else _prefix(locations.split(state.model_checkpoint_path)[1])
    found: list[tuple[float, str]] = []
    for name in await store.names():
        basename, _, ending = name.rpartition(".")
        if name.startswith(BESIDE) or prefix not in {None, _prefix(basename)}:
            continue
        path = locations.join(store.directory, basename)
        with contextlib.suppress(DataLossError, OSError):
            if name == index_name(basename):
                found.append((await store.mtime(name), path))
            elif ending == "json":
                manifest = await in_thread(Manifest.decode, await store.read(name), path)
                found.append((manifest.wall_time, path))
    return [path for _, path in sorted(found, reverse=True)]


def _prefix(basename: str) -> str:
    return re.sub(r"-\d+$", "", basename)
