"""The seam between checkpoints and where they lie: a directory, local or in an object store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from asyncmon.checkpoint.throttle import Control

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncmon.checkpoint.dtypes import Array
    from asyncmon.checkpoint.manifest import Manifest, TensorEntry
    from asyncmon.checkpoint.tensor_file import Part


BESIDE = ".asyncmon-"
"""How the names of files begin that are not in their place yet."""


@dataclass(frozen=True, slots=True)
class StateFile:
    """What the state file of the directory, of this name, says once a checkpoint is committed."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint to be written: its arrays, and the manifest in which they are still missing.

    ``state`` is written with it, as part of its commit; None leaves the state file as it is.
    """

    basename: str
    arrays: Mapping[str, Array]
    manifest: Manifest
    shard_bytes: int
    control: Control = field(default_factory=Control)
    state: StateFile | None = None

    def complete(
        self,
        parts: Sequence[Part],
        checksums: Sequence[Mapping[str, int]],
        names: Sequence[str],
        old: Manifest | None,
    ) -> Manifest:
        """Return the manifest of the checkpoint, now that its files are written.

        Args:
            parts: its files, their arrays' ``checksums`` and the ``names`` they get.
            old: the manifest that it replaces.
        """
        entries: dict[str, TensorEntry] = {}
        for number, (part, sums) in enumerate(zip(parts, checksums, strict=True)):
            entries.update(part.entries(number, sums))
        return replace(
            self.manifest,
            files=tuple(part.describe(name) for part, name in zip(parts, names, strict=True)),
            tensors={name: entries[name] for name in self.arrays},
            replaces=tuple(file.name for file in old.files) if old is not None else (),
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a file, and the checksum of what was really read."""

    data: Array
    crc32c: str


class DataFile(Protocol):
    """A tensor file that is open for reading: while it is, no retention deletes it."""

    name: str
    size: int

    async def read(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """Return the bytes (uint8, read-only) of ranges (start, end) within the file."""

    async def close(self) -> None:
        """End the reading. Arrays that were read stay valid. A second call does nothing."""


class Store(Protocol):
    """One directory of checkpoints. Names are those of files in it, never paths."""

    directory: str

    async def claim(self) -> None:
        """Make the directory, lock out other processes, delete what incomplete saves left there."""

    def release_nowait(self) -> None:
        """Let other processes save here. From anywhere, quickly; a second call does nothing."""

    async def names(self) -> list[str]:
        """Return the names of the files. Where there is no directory there are none."""

    async def mtime(self, name: str) -> float:
        """Return when a file was last modified, in seconds since 1970. Raises FileNotFoundError."""

    async def read(self, name: str) -> bytes:
        """Return a small file. Raises FileNotFoundError."""

    async def replace(self, name: str, data: bytes) -> None:
        """Replace a small file, whole or not at all, durably."""

    async def write(self, draft: Draft) -> Manifest:
        """Write a checkpoint; when this returns it is committed and durable, and so is ``draft.state``.

        Whatever goes wrong (an error, ``draft.control``, a cancellation), nothing of it is left, and an
        earlier checkpoint of the same name and the state file are as they were. Where the process dies
        between the two, the next :meth:`claim` puts the state file in its place.
        """

    async def open(self, name: str) -> DataFile:
        """Open a tensor file for reading. Raises FileNotFoundError."""

    async def delete(self, name: str) -> None:
        """Delete a file. One that is not there is ignored."""

    async def remove(self, basename: str) -> bool:
        """Delete a checkpoint, its manifest first. Returns False where a reader has it open."""

    async def fingerprint(self, names: Sequence[str]) -> Any:
        """Return a value that changes whenever one of these files does, or None if one is not there."""
