"""Looking into checkpoints: what is in them, and whether they are whole."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncmon.checkpoint import places
from asyncmon.checkpoint.latest import candidates, latest_checkpoint
from asyncmon.checkpoint.management import checkpoint_exists
from asyncmon.checkpoint.plain import is_plain
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.files import in_thread

if TYPE_CHECKING:
    from asyncmon.checkpoint.contents import Facts
    from asyncmon.checkpoint.dtypes import Array

__all__ = ["Inspected", "list_variables", "load_checkpoint", "load_variable", "verify"]


async def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Open a checkpoint, or the newest one of a directory that verifies. TF1: same name.

    Any safetensors file, ``weights.safetensors``, is a checkpoint too. Use the reader with
    ``async with``, or close it.

    Raises:
        ValueError: the directory has no checkpoint.
        NotFoundError: there is no checkpoint of this prefix.
        DataLossError: its manifest is damaged, or a file is missing or of another size.
    """
    path = os.fspath(ckpt_dir_or_file)
    if not is_plain(path) and not await checkpoint_exists(path):
        newest = await latest_checkpoint(path)
        if newest is None and await _is_directory(path):
            raise ValueError(
                f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}"
            )
        path = newest or path
    return await CheckpointReader.open(path)


async def _is_directory(path: str) -> bool:
    if places.is_url(path):
        return bool(await places.open_store(path).names())
    return await in_thread(os.path.isdir, path)


async def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Return (name, shape) of each entry, sorted by name. TF1: same name."""
    async with await load_checkpoint(ckpt_dir_or_file) as reader:
        return sorted(reader.get_variable_to_shape_map().items())


async def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> Array:
    """Return one entry, verified and read-only. TF1: same name.

    Raises:
        NotFoundError: there is no entry of this name.
        DataLossError: its bytes do not match their checksum.
    """
    async with await load_checkpoint(ckpt_dir_or_file) as reader:
        return await reader.get_tensor(name.removesuffix(":0"))


@dataclass(frozen=True, slots=True)
class Inspected:
    """What :func:`verify` found: a checkpoint's prefix, its facts, and what is wrong with it."""

    path: str
    facts: Facts | None
    """None where nothing of it can be read."""
    problem: str | None
    """None where every byte is as it was saved."""


async def verify(ckpt_dir_or_file: str | os.PathLike[str]) -> list[Inspected]:
    """Read all checkpoints of a directory, or one, and check every byte against its checksum.

    Returns:
        What was found of each, the newest first; those that the state file lists but that are not
        there are among them. Empty where there are none.
    """
    path = os.fspath(ckpt_dir_or_file)
    if is_plain(path) or await checkpoint_exists(path):
        return [await _inspect(path)]
    paths = [found async for found in candidates(path, everything=True)]
    return [await _inspect(found) for found in paths]


async def _inspect(path: str) -> Inspected:
    facts = None
    try:
        async with await CheckpointReader.open(path) as reader:
            facts = reader.facts
            await reader.verify()
    except (NotFoundError, DataLossError, OSError) as error:
        return Inspected(path, facts, str(error))
    return Inspected(path, facts, None)
