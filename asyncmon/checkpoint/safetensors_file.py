"""Read safetensors files without a manifest, with the safetensors library.

Local files are mapped and read entry by entry. Objects in an object store are read whole, and so are
files with types that the library cannot convert to numpy (float8, and bfloat16 without ``ml_dtypes``).
These files have no checksums: the library only checks that header and size match.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from asyncmon.checkpoint.contents import Contents, Facts
from asyncmon.checkpoint.dtypes import Array, Element, decode, element_tagged, numpy_dtype
from asyncmon.errors import DataLossError
from asyncmon.system.files import FileCalls, in_thread

logger = logging.getLogger(__name__)

Entry = tuple[Element, tuple[int, ...]]


def is_plain(path: str) -> bool:
    """Return whether a path is that of a safetensors file instead of a checkpoint's prefix."""
    return path.endswith(".safetensors")


class PlainContents(Contents):
    """The entries of a safetensors file."""

    def __init__(
        self, path: str, name: str, nbytes: int, entries: Mapping[str, Entry], data: bytes | None
    ) -> None:
        self._path = path
        self._entries = entries
        self._data = data
        self.facts = Facts(
            file_names=(name,),
            nbytes=nbytes,
            shapes={key: shape for key, (_, shape) in entries.items()},
            dtypes={key: numpy_dtype(element) for key, (element, _) in entries.items()},
        )

    @classmethod
    def open(cls, path: str, name: str, data: bytes | None) -> PlainContents:
        """Open a local file, or the content of an object. Blocking."""
        try:
            if data is None:
                os.close(FileCalls().open_regular(Path(path)))  # the library would wait for a pipe
            else:
                found = {key: (one["dtype"], one["shape"]) for key, one in _deserialized(data)}
                return cls(path, name, len(data), _entries(found, path), data)
            with safetensors.safe_open(path, framework="np") as file:
                slices = {key: file.get_slice(key) for key in file.offset_keys()}
                found = {key: (one.get_dtype(), one.get_shape()) for key, one in slices.items()}
            return cls(path, name, os.stat(path).st_size, _entries(found, path), None)
        except safetensors.SafetensorError as error:
            raise DataLossError(f"{path!r} is no whole safetensors file: {error}.") from error

    async def read(self, names: Collection[str]) -> dict[str, Array]:
        try:
            return await in_thread(self._read, names)
        except safetensors.SafetensorError as error:
            raise DataLossError(f"{self._path!r} cannot be read: {error}.") from error

    def close(self) -> None:
        self._data = None

    def _read(self, names: Collection[str]) -> dict[str, Array]:
        direct = [name for name in names if self._data is None and self._entries[name][0].is_native]
        found: dict[str, Array] = {}
        if direct:
            with safetensors.safe_open(self._path, framework="np") as file:
                found = {name: file.get_tensor(name) for name in direct}
        rest = set(names) - found.keys()
        if rest:
            whole = Path(self._path).read_bytes() if self._data is None else self._data
            for name, one in _deserialized(whole):
                if name in rest:
                    element, shape = self._entries[name]
                    found[name] = decode(np.frombuffer(one["data"], np.uint8), element, shape)
        for array in found.values():
            array.flags.writeable = False
        return found


def _deserialized(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    function: Any = safetensors.deserialize  # untyped in the library
    return list(function(data))


def _entries(found: Mapping[str, tuple[str, Collection[int]]], path: str) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for name, (tag, shape) in found.items():
        element = element_tagged(tag)
        if element is not None:
            entries[name] = element, tuple(shape)
    others = sorted(found.keys() - entries.keys())
    if others:
        logger.warning("%s: skipping entries of unsupported dtypes: %s", path, ", ".join(others))
    return entries
