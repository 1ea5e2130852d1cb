"""Read and verify the entries of a checkpoint."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from asyncmon.checkpoint.contents import Contents, Facts, close_files, open_files, read_main_file
from asyncmon.checkpoint.dtypes import Array, decode, element_named, numpy_dtype
from asyncmon.checkpoint.manifest import (
    OPENING,
    Manifest,
    TensorEntry,
    TextEntry,
    decode_text,
    manifest_name,
)
from asyncmon.checkpoint.os_errors import is_environment, read_errors
from asyncmon.checkpoint.packing import ARRAY_PREFIX, unpack
from asyncmon.checkpoint.store import DataFile, Store
from asyncmon.errors import DataLossError
from asyncmon.system.files import in_thread
from asyncmon.system.snapshot import assembled

_AVERAGE = re.compile(f"{ARRAY_PREFIX}hooks/[^/]+/averages/(.+)")
AVERAGE = "/ExponentialMovingAverage"
"""The end of the name of a moving average, after that of the entry that it is of. As in TF1."""


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


class ManifestContents(Contents):
    """The entries of a checkpoint in asyncmon's own format."""

    manifest: Manifest

    def __init__(self, path: str, basename: str, manifest: Manifest, files: list[DataFile]) -> None:
        self._path = path
        self.manifest = manifest
        self._files = files
        tensors, texts = manifest.tensors, manifest.texts
        kinds = {name: numpy_dtype(element_named(name)) for name in {e.dtype for e in tensors.values()}}
        kinds |= {name: np.dtype(name) for name in {entry.dtype for entry in texts.values()}}
        everything: Mapping[str, TensorEntry | TextEntry] = {**tensors, **texts}
        pieces = {piece for entry in manifest.sharded.values() for piece in entry.pieces}
        entries = {
            name: entry
            for name, entry in everything.items()
            if name not in pieces and not name.startswith(ARRAY_PREFIX)
        }
        matches = [match for name in tensors if (match := _AVERAGE.fullmatch(name))]
        averages = {match[1] + AVERAGE: match[0] for match in matches}
        averages = {name: one for name, one in averages.items() if name not in everything}
        entries |= {name: everything[one] for name, one in averages.items()}
        dtypes = {name: kinds[entry.dtype] for name, entry in entries.items()}
        for name, whole in manifest.sharded.items():
            dtypes[name] = kinds[tensors[next(iter(whole.pieces))].dtype]
        self.facts = Facts(
            file_names=(manifest_name(basename), *(file.name for file in manifest.files)),
            nbytes=manifest.nbytes,
            shapes={name: entry.shape for name, entry in {**entries, **manifest.sharded}.items()},
            dtypes=dtypes,
            step=manifest.step,
            wall_time=manifest.wall_time,
            program=manifest.program,
            metrics=manifest.metrics,
            averages=averages,
        )

    @classmethod
    async def open(cls, store: Store, basename: str, path: str) -> ManifestContents:
        """Open a checkpoint and all of its files. Raises as :meth:`.CheckpointReader.open`."""
        name = manifest_name(basename)
        data = await read_main_file(store, name, path, OPENING)
        while True:
            try:
                return await in_thread(cls._opened, store, basename, path, data, lost=cls.close)
            except FileNotFoundError as error:
                # If the checkpoint was saved again or deleted since, the manifest has changed.
                again = await read_main_file(store, name, path, OPENING)
                if again == data:
                    raise DataLossError(f"Checkpoint {path!r} lacks a file: {error}.") from error
                data = again

    @classmethod
    def _opened(cls, store: Store, basename: str, path: str, data: bytes) -> ManifestContents:
        manifest = Manifest.decode(data, path)
        files = open_files(store, [file.name for file in manifest.files])
        try:
            for file, expected in zip(files, manifest.files, strict=True):
                if file.size != expected.bytes:
                    raise DataLossError(
                        f"Checkpoint {path!r} is damaged: {expected.name!r} has {file.size} bytes,"
                        f" expected {expected.bytes}."
                    )
            return cls(path, basename, manifest, files)
        except BaseException:
            close_files(files)
            raise

    async def read(self, names: Collection[str]) -> dict[str, Array]:
        problems: list[str] = []
        found: dict[str, Array] = {}
        tensors, sharded = self.manifest.tensors, self.manifest.sharded
        stored = {name: self.facts.averages.get(name, name) for name in names}
        asked = list(stored.values())
        names = [n for name in asked for n in (sharded[name].pieces if name in sharded else (name,))]
        for name in names:
            if name in self.manifest.texts:
                try:
                    found[name] = decode_text(self.manifest.texts[name])
                except Exception as error:  # the content has caused it
                    problems.append(f"{name!r}: {error}")
        reads = []
        for number in range(len(self._files)):
            wanted = [name for name in names if name in tensors and tensors[name].file == number]
            if wanted:
                reads.append(self._read_file(number, wanted, found, problems))
        await asyncio.gather(*reads)
        if problems:
            raise DataLossError(f"Checkpoint {self._path!r} is damaged: {'; '.join(problems)}.")
        for name in sharded.keys() & set(asked):
            found[name] = await in_thread(self._whole, name, found)
        return {name: found[one] for name, one in stored.items()}

    def _whole(self, name: str, found: Mapping[str, Array]) -> Array:
        entry = self.manifest.sharded[name]
        pieces = {offset: found[piece] for piece, offset in entry.pieces.items()}
        whole = assembled(entry.shape, self.facts.dtypes[name], pieces)
        whole.flags.writeable = False
        return whole

    async def states(self) -> dict[str, Any]:
        entries = [*self.manifest.tensors, *self.manifest.texts]
        arrays = await self.read([name for name in entries if name.startswith(ARRAY_PREFIX)])
        # The copies of a large state would hold the event loop.
        return await in_thread(self._unpacked, arrays)

    def _unpacked(self, arrays: Mapping[str, Array]) -> dict[str, Any]:
        return {name: unpack(state, arrays) for name, state in self.manifest.stateful.items()}

    async def verify(self) -> None:
        await self.read([*self.manifest.tensors, *self.manifest.texts])

    def close(self) -> None:
        close_files(self._files)

    async def _read_file(
        self, number: int, names: list[str], found: dict[str, Array], problems: list[str]
    ) -> None:
        entries = [self.manifest.tensors[name] for name in names]
        file = self.manifest.files[number]
        ranges = [(0, self._header_bytes(number)), *(entry.data_offsets for entry in entries)]
        try:
            header, *pieces = await self._files[number].read(ranges)
        except OSError as error:
            if is_environment(error):
                raise
            problems.append(f"{file.name!r} cannot be read: {error}")
            return
        if header.crc32c != file.header_crc32c:
            problems.append(
                f"the header of {file.name!r}: checksum {header.crc32c}, expected {file.header_crc32c}"
            )
        for name, entry, piece in zip(names, entries, pieces, strict=True):
            if piece.crc32c != entry.crc32c:
                problems.append(
                    f"{name!r} in {file.name!r}: checksum {piece.crc32c}, expected {entry.crc32c}"
                )
                continue
            found[name] = decode(piece.data, entry.element, entry.shape)

    def _header_bytes(self, number: int) -> int:
        return min(
            entry.data_offsets[0] for entry in self.manifest.tensors.values() if entry.file == number
        )
