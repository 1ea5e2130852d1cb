"""Plan the tensor files of a checkpoint, ``<prefix>-<step>.safetensors``.

A tensor file is a plain `safetensors <https://github.com/huggingface/safetensors>`_ file:

* bytes 0 to 7: N, the length of the header, unsigned, little-endian;
* N bytes: the header, a JSON object, name -> ``{"dtype", "shape", "data_offsets"}``, with offsets from
  the end of the header. Trailing spaces make ``8 + N`` a multiple of 64. The member ``__metadata__`` is
  ``{"format": "asyncmon.checkpoint", "checkpoint": <prefix>-<step>}``;
* the arrays, in C order and little-endian, without gaps. Arrays with larger elements come first, so
  that each starts at a multiple of its element size.

Each process writes the arrays that it holds to its own file: the files of several processes are
``<prefix>-<step>-00001-of-00003.safetensors`` and so on. If a file name is in use, as the checkpoint is
saved again at the same step, a number is added: ``<prefix>-<step>.1.safetensors``. The manifest lists
the files.

The safetensors library can read these files (0.7 or newer for ``C64``). asyncmon does not use it for
them, as the library writes all bytes in one call and returns copies. asyncmon writes in chunks, with
checksums, pauses, cancellation and fsync, and reads mapped files or byte ranges of objects.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import google_crc32c

from asyncmon.checkpoint.dtypes import Array, element_of
from asyncmon.checkpoint.manifest import FORMAT, SHARED, TensorEntry, TensorFile
from asyncmon.system.snapshot import FixedArray, HeldArray

_ALIGNMENT = 64


class Part(NamedTuple):
    """The content of one tensor file: its first bytes, then its arrays in order."""

    header: bytes
    arrays: Mapping[str, Array]
    shared: str = ""
    """The id of arrays that several checkpoints have, or empty."""

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return len(self.header) + sum(array.nbytes for array in self.arrays.values())

    @property
    def is_held(self) -> bool:
        """Whether another process holds the arrays, and writes the file."""
        return any(isinstance(array, HeldArray) for array in self.arrays.values())

    def describe(self, name: str) -> TensorFile:
        """Return the member of the manifest for the file."""
        return TensorFile(name, self.nbytes, f"{google_crc32c.value(self.header):08x}")

    def entries(self, file: int, checksums: Mapping[str, int]) -> dict[str, TensorEntry]:
        """Return the members of the manifest for the arrays."""
        entries = {}
        start = len(self.header)
        for name, array in self.arrays.items():
            end = start + array.nbytes
            entries[name] = TensorEntry(
                dtype=array.dtype.name,
                shape=array.shape,
                file=file,
                data_offsets=(start, end),
                crc32c=f"{checksums[name]:08x}",
            )
            start = end
        return entries


def plan(arrays: Mapping[str, Array], basename: str) -> list[Part]:
    """Return the tensor files: one of each process that holds arrays, and one of each shared part."""
    places: dict[tuple[str, int], dict[str, Array]] = {}
    for name in sorted(arrays, key=lambda name: -arrays[name].itemsize):
        places.setdefault(_place_of(arrays[name]), {})[name] = arrays[name]
    return [
        Part(_header(held, shared or basename), held, shared)
        for (shared, _), held in sorted(places.items(), key=lambda place: place[0])
    ]


def _place_of(array: Any) -> tuple[str, int]:
    """Return the id of a shared part, or empty, and the number of the process."""
    if isinstance(array, FixedArray):
        return array.part, 0
    return "", array.rank if isinstance(array, HeldArray) else 0


def file_names(basename: str, count: int, taken: Collection[str]) -> list[str]:
    """Return unused names for the tensor files of a checkpoint."""
    taken = set(taken)
    for attempt in range(len(taken) + 1):
        stem = basename if attempt == 0 else f"{basename}.{attempt}"
        names = [f"{stem}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
        if count == 1:
            names = [f"{stem}.safetensors"]
        if taken.isdisjoint(names):
            break
    return names


def names_of(parts: Sequence[Part], basename: str, taken: Collection[str]) -> list[str]:
    """Return unused names for the files of a checkpoint that it does not share yet."""
    own = iter(file_names(basename, sum(not part.shared for part in parts), taken))
    return [
        file_names(f"{SHARED}{part.shared}", 1, taken)[0] if part.shared else next(own)
        for part in parts
    ]


def _header(arrays: Mapping[str, Array], basename: str) -> bytes:
    members: dict[str, Any] = {"__metadata__": {"format": FORMAT, "checkpoint": basename}}
    start = 0
    for name, array in arrays.items():
        element = element_of(array.dtype)
        assert element is not None, "checked by Save.draft"
        end = start + array.nbytes
        members[name] = {
            "dtype": element.tag,
            "shape": element.file_shape(array.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(members, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
