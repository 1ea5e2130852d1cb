"""Tensor files, ``<prefix>-<step>.safetensors``, byte for byte.

A tensor file is a plain `safetensors <https://github.com/huggingface/safetensors>`_ file:

* bytes 0 to 7: N, the length of the header, unsigned, little-endian;
* N bytes: the header, a JSON object, name -> ``{"dtype", "shape", "data_offsets"}``, with offsets that
  count from the end of the header; spaces after it make ``8 + N`` a multiple of 64. The member
  ``__metadata__`` is ``{"format": "asyncmon.checkpoint", "checkpoint": <prefix>-<step>}``;
* the arrays, C order, little-endian, one after another without gaps. Those with larger elements come
  first, so that each begins at a multiple of its element's size.

Arrays that other processes hold are written by them, into files of their own. A state of more than
``shard_bytes`` bytes is spread over several files, each array (or piece of one) whole in one of them:
``<prefix>-<step>-00001-of-00003.safetensors`` and so on. A file name that is taken (the
checkpoint is saved again at the same step) gets a number: ``<prefix>-<step>.1.safetensors``. The
manifest lists the files of a checkpoint.

The safetensors library reads these files (0.7 or newer, for ``C64``); :mod:`.safetensors_file` reads
other files by it. It writes all bytes at once and returns copies. Here, arrays that are shared with the
steps are written in pieces, with a checksum each, pauses, cancellation between two pieces and an fsync,
by system calls that a test can fail one at a time; and they are read mapped, or by ranges of an object,
and verified.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import google_crc32c

from asyncmon.checkpoint.dtypes import Array, element_of
from asyncmon.checkpoint.manifest import FORMAT, TensorEntry, TensorFile
from asyncmon.system.snapshot import HeldArray

_ALIGNMENT = 64


class Part(NamedTuple):
    """The content of one tensor file: its first bytes, then its arrays in order."""

    header: bytes
    arrays: Mapping[str, Array]

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return len(self.header) + sum(array.nbytes for array in self.arrays.values())

    @property
    def rank(self) -> int:
        """Which process writes it, see :class:`~asyncmon.system.snapshot.HeldArray`."""
        return max(map(_rank_of, self.arrays.values()), default=0)

    def describe(self, name: str) -> TensorFile:
        """Return what the manifest says of the file, once it has a name."""
        return TensorFile(name, self.nbytes, f"{google_crc32c.value(self.header):08x}")

    def entries(self, file: int, checksums: Mapping[str, int]) -> dict[str, TensorEntry]:
        """Return what the manifest says of the arrays, once their checksums are known."""
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


def plan(arrays: Mapping[str, Array], basename: str, shard_bytes: int) -> list[Part]:
    """Return the tensor files for these arrays, none where there are no arrays.

    Args:
        arrays: names to arrays of types that :mod:`.dtypes` has.
        basename: ``<prefix>-<step>``.
        shard_bytes: the size that a file should not exceed, where its arrays allow.
    """
    by_rank: dict[int, dict[str, Array]] = {}
    for name, array in arrays.items():
        by_rank.setdefault(_rank_of(array), {})[name] = array
    shards = [one for rank in sorted(by_rank) for one in _shards(by_rank[rank], shard_bytes)]
    return [Part(_header(shard, basename), shard) for shard in shards]


def _rank_of(array: Any) -> int:
    return array.rank if isinstance(array, HeldArray) else 0


def file_names(basename: str, count: int, taken: Collection[str]) -> list[str]:
    """Return the names of a checkpoint's tensor files, none of which is taken."""
    taken = set(taken)
    for attempt in range(len(taken) + 1):
        stem = basename if attempt == 0 else f"{basename}.{attempt}"
        names = [f"{stem}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
        if count == 1:
            names = [f"{stem}.safetensors"]
        if taken.isdisjoint(names):
            break
    return names


def _shards(arrays: Mapping[str, Array], shard_bytes: int) -> list[dict[str, Array]]:
    shards: list[dict[str, Array]] = []
    room = 0
    for name in sorted(arrays, key=lambda name: -arrays[name].itemsize):
        nbytes = arrays[name].nbytes
        if not shards or nbytes > room:
            shards.append({})
            room = shard_bytes
        shards[-1][name] = arrays[name]
        room -= nbytes
    return shards


def _header(arrays: Mapping[str, Array], basename: str) -> bytes:
    members: dict[str, Any] = {"__metadata__": {"format": FORMAT, "checkpoint": basename}}
    start = 0
    for name, array in arrays.items():
        element = element_of(array.dtype)
        assert element is not None, "the saver has refused other types by name"
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
