"""Read safetensors files without a manifest, with the safetensors library.

A checkpoint of Hugging Face in several files has an index, ``model.safetensors.index.json``, with the
file of each entry. Local files are mapped and read entry by entry. Objects in an object store are read
whole, and so are files with types that the library cannot convert to numpy (float8, and bfloat16
without ``ml_dtypes``). These files have no checksums: the library only checks that header and size
match.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.contents import Contents, Facts
from asyncmon.checkpoint.dtypes import Array, Element, decode, element_tagged, numpy_dtype
from asyncmon.checkpoint.manifest import FORMAT
from asyncmon.checkpoint.store import Store
from asyncmon.errors import DataLossError
from asyncmon.system.error_text import some
from asyncmon.system.files import FileCalls, in_thread, is_file_name
from asyncmon.system.urls import is_url

logger = logging.getLogger(__name__)

Entry = tuple[Element, tuple[int, ...]]


INDEX = ".safetensors.index.json"
_MAIN = "model.safetensors"


def is_plain(path: str) -> bool:
    """Return whether a path is that of a safetensors file or index, and no checkpoint's prefix."""
    return path.endswith((".safetensors", INDEX))


def plain_files(store: Store, basename: str) -> list[str]:
    """Return the names of the files with the entries of a file or an index. Blocking.

    Raises:
        DataLossError: the index is damaged.
    """
    if not basename.endswith(INDEX):
        return [basename]
    try:
        names = set(json.loads(store.content(basename))["weight_map"].values())
        if not all(is_file_name(name) and is_plain(name) for name in names):
            raise ValueError(f"it names {sorted(names)!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataLossError(f"{basename!r} is no index of safetensors files: {error}.") from error
    return sorted(names)


def main_plain_files(directory: str, names: Iterable[str]) -> list[str]:
    """Return the index among the files of a directory, or its main safetensors file, or else all.

    Blocking.
    """
    plain = sorted(filter(is_plain, names))
    for name in plain:
        if name.endswith(INDEX):
            return [name]
    if _MAIN in plain:  # beside others, such as those of an adapter
        plain = [_MAIN]
    # The file of a save that was never committed may be incomplete.
    return [] if is_url(directory) else [one for one in plain if not _is_own(directory, one)]


def _is_own(directory: str, name: str) -> bool:
    path = os.path.join(directory, name)
    with _whole(path), safetensors.safe_open(path, framework="np") as file:
        return bool((file.metadata() or {}).get("format") == FORMAT)


@contextlib.contextmanager
def _whole(path: str) -> Iterator[None]:
    try:
        yield
    except safetensors.SafetensorError as error:
        raise DataLossError(f"{path!r} is no whole safetensors file: {error}.") from error


class PlainFiles(Contents):
    """The entries of one or several safetensors files."""

    def __init__(self, parts: Sequence[PlainContents]) -> None:
        self._parts = parts
        self.facts = Facts(
            file_names=tuple(name for one in parts for name in one.facts.file_names),
            nbytes=sum(one.facts.nbytes for one in parts),
            shapes={name: shape for one in parts for name, shape in one.facts.shapes.items()},
            dtypes={name: dtype for one in parts for name, dtype in one.facts.dtypes.items()},
        )

    @classmethod
    async def open(cls, store: Store, basename: str, path: str) -> PlainFiles:
        """Open a file, or the files of an index."""
        names = await in_thread(plain_files, store, basename)
        return await cls.open_all(store, names, locations.split(path)[0])

    @classmethod
    async def open_all(cls, store: Store, names: Sequence[str], directory: str) -> PlainFiles:
        """Open files of a directory together.

        Raises:
            DataLossError: a file is damaged, or two have an entry of one name.
        """
        parts: list[PlainContents] = []
        for name in names:
            data = await in_thread(store.content, name) if is_url(directory) else None
            at = locations.join(directory, name)
            part = await in_thread(PlainContents.open, at, name, data)
            for one in parts:
                if twice := one.facts.shapes.keys() & part.facts.shapes:
                    raise DataLossError(
                        f"{one.facts.file_names[0]!r} and {name!r} in {directory!r} both have "
                        f"{some(sorted(twice))}: give the path of one of them."
                    )
            parts.append(part)
        return cls(parts)

    async def read(self, names: Collection[str]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for one in self._parts:
            found |= await one.read([name for name in names if name in one.facts.shapes])
        return found

    def close(self) -> None:
        for one in self._parts:
            one.close()


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
        with _whole(path):
            if data is None:
                os.close(FileCalls().open_regular(Path(path)))  # the library would wait for a pipe
            else:
                found = {key: (one["dtype"], one["shape"]) for key, one in _deserialized(data)}
                return cls(path, name, len(data), _entries(found, path), data)
            with safetensors.safe_open(path, framework="np") as file:
                slices = {key: file.get_slice(key) for key in file.offset_keys()}
                found = {key: (one.get_dtype(), one.get_shape()) for key, one in slices.items()}
            return cls(path, name, os.stat(path).st_size, _entries(found, path), None)

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
