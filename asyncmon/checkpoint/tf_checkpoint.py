"""Read checkpoints of TensorFlow (its V2 format), without TensorFlow.

A checkpoint is ``<prefix>.index`` (:mod:`.tf_index`) and ``<prefix>.data-00000-of-00001`` and so on,
the bytes of the tensors. All checksums are verified. Strings are object arrays of ``bytes``, and a
partitioned variable is one array under its own name. Resources and variants are skipped with a warning.

Example::

    async with await load_checkpoint("old/model.ckpt-1000") as reader:
        weights = await reader.get_tensors()  # {"dense/kernel": array(...), ...}
    await saver.restore(session, "old/model.ckpt-1000", rename={"model/": "/"})
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from math import prod
from typing import Any

import google_crc32c
import numpy as np

from asyncmon.checkpoint.contents import Contents, Facts, close_files, open_files, read_main_file
from asyncmon.checkpoint.dtypes import Array, decode, element_named, numpy_dtype
from asyncmon.checkpoint.os_errors import is_environment
from asyncmon.checkpoint.store import DataFile, Store
from asyncmon.checkpoint.tf_index import Bundle, BundleEntry, read_bundle
from asyncmon.errors import DataLossError
from asyncmon.protobuf import read_varint
from asyncmon.protobuf.tf_types import DTYPES, QUANTIZED, masked
from asyncmon.system.files import in_thread

logger = logging.getLogger(__name__)

_STRING = DTYPES["string"]
_ELEMENTS = {
    number: name
    for table in (DTYPES, QUANTIZED)
    for name, number in table.items()
    if name not in ("string", "variant")
}


def index_name(basename: str) -> str:
    """Return the name of the index file of a TensorFlow checkpoint."""
    return f"{basename}.index"


def is_part(name: str, basename: str) -> bool:
    """Return whether a file belongs to a TensorFlow checkpoint."""
    rest = name.removeprefix(basename)
    return rest != name and re.fullmatch(r"\.(index|meta|data-\d{5}-of-\d{5})", rest) is not None


class BundleContents(Contents):
    """The entries of a TensorFlow checkpoint."""

    def __init__(
        self, path: str, names: tuple[str, ...], bundle: Bundle, files: list[DataFile]
    ) -> None:
        self._path = path
        self._bundle = bundle
        self._files = files
        known = {name: entry for name, entry in bundle.tensors.items() if _is_array(entry)}
        if len(known) < len(bundle.tensors):
            others = sorted(bundle.tensors.keys() - known.keys())
            logger.warning("%s: skipping entries that are no arrays: %s", path, ", ".join(others))
        self.facts = Facts(
            file_names=names,
            nbytes=sum(file.size for file in files),
            shapes={name: entry.shape for name, entry in known.items()},
            dtypes={name: _numpy_dtype(entry.dtype) for name, entry in known.items()},
        )

    @classmethod
    async def open(cls, store: Store, basename: str, path: str) -> BundleContents:
        """Open a checkpoint and all of its files. Raises as :meth:`.CheckpointReader.open`."""
        index = index_name(basename)
        data = await read_main_file(store, index, path)
        try:
            return await in_thread(cls._opened, store, basename, path, data, lost=cls.close)
        except ValueError as error:
            raise DataLossError(f"Checkpoint {path!r} is damaged: {index!r}: {error}.") from error

    @classmethod
    def _opened(cls, store: Store, basename: str, path: str, data: bytes) -> BundleContents:
        bundle = read_bundle(data)
        count = bundle.shards
        if not 0 < count <= 1 << 20:
            raise ValueError(f"it says it has {count} shards")
        names = [f"{basename}.data-{shard:05d}-of-{count:05d}" for shard in range(count)]
        try:
            files = open_files(store, names)
        except FileNotFoundError as error:
            raise DataLossError(f"Checkpoint {path!r} lacks a file: {error}.") from error
        return cls(path, (index_name(basename), *names), bundle, files)

    async def read(self, names: Collection[str]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        problems: list[str] = []
        for name in names:
            entry = self._bundle.tensors[name]
            try:
                found[name] = await self._tensor(name, entry)
            except (ValueError, OSError) as error:
                if isinstance(error, OSError) and is_environment(error):
                    raise
                problems.append(f"{name!r}: {error}")
        if problems:
            listed = "; ".join(problems)
            raise DataLossError(f"Checkpoint {self._path!r} is damaged: {listed}.")
        return found

    def close(self) -> None:
        close_files(self._files)

    async def _tensor(self, name: str, entry: BundleEntry) -> Array:
        if not entry.slices:
            return await self._whole(entry)
        whole = np.zeros(entry.shape, _numpy_dtype(entry.dtype))
        for one in entry.slices:
            part = await self._whole(self._bundle.slices[name, one])
            place = tuple(
                slice(start, None if length is None else start + length) for start, length in one
            )
            if len(one) != whole.ndim or whole[place].shape != part.shape:
                raise ValueError(f"slice {one} does not fit the shape {list(entry.shape)}")
            whole[place] = part
        whole.flags.writeable = False
        return whole

    async def _whole(self, entry: BundleEntry) -> Array:
        if entry.shard >= len(self._files):
            raise ValueError(f"it is in shard {entry.shard} of {len(self._files)}")
        file = self._files[entry.shard]
        end = entry.offset + entry.size
        if end > file.size:
            raise ValueError(f"{file.name!r} has {file.size} bytes, expected at least {end}")
        (piece,) = await file.read([(entry.offset, end)])
        if entry.dtype == _STRING:
            return await in_thread(_strings, piece.data.tobytes(), entry)
        checksum = masked(int(piece.crc32c, 16))
        if checksum != entry.crc32c:
            raise ValueError(f"checksum {checksum:08x}, expected {entry.crc32c:08x}")
        element = element_named(_ELEMENTS[entry.dtype])
        if entry.size != element.size * prod(entry.shape):
            raise ValueError(f"{entry.size} bytes for the shape {list(entry.shape)} of {element.name}")
        data = piece.data
        if self._bundle.big_endian:
            data = await in_thread(_swapped, data, element.size, element.name)
        return decode(data, element, entry.shape)


def _strings(data: bytes, entry: BundleEntry) -> Array:
    """Decode strings: varint lengths, their checksum, then the bytes of all strings."""
    count = prod(entry.shape)
    if count > len(data):
        raise ValueError(f"{len(data)} bytes cannot have {count} strings")
    lengths: list[int] = []
    at = checksum = 0
    for _ in range(count):
        length, at = read_varint(data, at)
        lengths.append(length)
        width = 4 if length < 1 << 32 else 8
        checksum = google_crc32c.extend(checksum, length.to_bytes(width, "little"))
    stored = data[at : at + 4]
    if int.from_bytes(stored, "little") != masked(checksum):
        raise ValueError("the lengths of its strings do not match their checksum")
    checksum = google_crc32c.extend(checksum, stored)
    checksum = masked(google_crc32c.extend(checksum, data[at + 4 :]))
    if checksum != entry.crc32c or at + 4 + sum(lengths) != len(data):
        raise ValueError(f"checksum {checksum:08x}, expected {entry.crc32c:08x}")
    strings = np.empty(count, object)
    at += 4
    for number, length in enumerate(lengths):
        strings[number] = data[at : at + length]
        at += length
    return strings.reshape(entry.shape)


def _swapped(data: Array, size: int, name: str) -> Array:
    width = size // 2 if name.startswith("complex") else size
    return data.reshape(-1, width)[:, ::-1].reshape(-1)


def _is_array(entry: BundleEntry) -> bool:
    return entry.dtype in _ELEMENTS or entry.dtype == _STRING


def _numpy_dtype(dtype: int) -> np.dtype[Any]:
    return np.dtype(object) if dtype == _STRING else numpy_dtype(element_named(_ELEMENTS[dtype]))
