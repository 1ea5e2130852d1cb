"""The entries of a checkpoint of any format, and its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from asyncmon.checkpoint.dtypes import Array
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.store import DataFile, Store
from asyncmon.errors import NotFoundError
from asyncmon.system.files import in_thread


class Facts(NamedTuple):
    """The properties of a checkpoint that are known before its arrays are read."""

    file_names: tuple[str, ...]
    nbytes: int
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype[Any]]
    step: int | None = None
    wall_time: float | None = None
    program: Any = None
    metrics: Mapping[str, float] = MappingProxyType({})
    averages: Mapping[str, str] = MappingProxyType({})
    """Entries that are moving averages of others, with the names by which the files have them."""
    incomplete: Mapping[str, str] = MappingProxyType({})
    """Entries of which the files have a part only, each with the error of reading it."""


class Contents(ABC):
    """The entries of a checkpoint of any format."""

    facts: Facts
    manifest: Manifest | None = None
    """The manifest; None in other formats."""

    @abstractmethod
    async def read(self, names: Collection[str]) -> dict[str, Array]:
        """Return verified, read-only arrays. Raises a DataLossError that names all damaged ones."""

    async def states(self) -> dict[str, Any]:
        """Return the states of stateful objects, by name."""
        return {}

    async def verify(self) -> None:
        """Read all entries. Raises a DataLossError that names all damaged ones."""
        await self.read(list(self.facts.shapes))

    @abstractmethod
    def close(self) -> None:
        """Close the files. Arrays stay valid."""


async def read_main_file(store: Store, name: str, path: str, begins: bytes = b"") -> bytes:
    """Return the content of a manifest or index. Raises NotFoundError."""
    try:
        return await in_thread(store.content, name, begins)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"There is no checkpoint {path!r}: neither a directory of this name nor the file {name!r} "
            "exists."
        ) from error


def open_files(store: Store, names: Sequence[str]) -> list[DataFile]:
    """Open several files, or none after an error. Blocking."""
    files: list[DataFile] = []
    try:
        for name in names:
            files.append(store.open(name))  # noqa: PERF401 -- an error closes the open ones
    except BaseException:
        close_files(files)
        raise
    return files


def close_files(files: Sequence[DataFile]) -> None:
    for file in files:
        file.close()
