"""Encode and decode the manifest of a checkpoint, ``<prefix>-<step>.json``.

A checkpoint exists if its manifest does. The file is one line of UTF-8 JSON, an object that begins
with exactly these bytes (``01234567`` stands for eight lower-case hexadecimal digits)::

    {"crc32c": "01234567", "format": "asyncmon.checkpoint", "version": 1, ...}

``crc32c`` is the CRC-32C (Castagnoli) of all bytes after the comma that follows it, so that any changed
byte is detected. The other members:

=============  ======================================================================================
``checkpoint`` ``<prefix>-<step>``, as the name of the manifest, which may not be renamed. Manifests of
               earlier versions have no such member
``step``       the global step of the state, or null
``wall_time``  the time of the snapshot in seconds since 1970
``program``    the program's ``describe()``, any JSON value
``files``      ``[{"name", "bytes", "header_crc32c"}, ...]``: the tensor files
               (:mod:`.tensor_file`) in the same directory, their sizes, and the checksums of all
               bytes before their data
``tensors``    name -> ``{"dtype", "shape", "file", "data_offsets", "crc32c"}``: ``file`` is an index
               of ``files``. The bytes of the entry start at ``data_offsets[0]`` and end before
               ``data_offsets[1]`` *of the file* (in the header of a safetensors file, of its data).
               ``crc32c`` is their checksum. For ``dtype`` see :mod:`.dtypes`
``sharded``    name -> ``{"shape", "pieces"}``: arrays written in pieces that do not overlap.
               ``pieces`` has names of ``tensors`` -> offset of the piece in the array
``texts``      name -> ``{"dtype", "shape", "values"}``: entries of strings, in C order. ``dtype`` is
               ``object`` or numpy's ``<U7``, ``|S7``; a value is a JSON string, or ``{"base64": ...}``
               for bytes
``stateful``   name -> state, as :mod:`.stateful` encodes it: hooks, data positions, generators.
               Manifests of earlier versions call it ``travellers``
``metrics``    name -> number (or ``"nan"``, ``"inf"``), for the selection of the best checkpoints
``replaces``   names of tensor files of an earlier checkpoint of the same name, to be deleted
=============  ======================================================================================

To read a checkpoint without asyncmon: ``json.load`` the manifest, and ``safetensors.numpy.load_file``
each of its files (after ``import ml_dtypes`` for bfloat16; with ``safetensors.deserialize``, which
returns bytes, for float8).
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from asyncmon.checkpoint.dtypes import Array, Element, element_named
from asyncmon.errors import DataLossError
from asyncmon.system.files import is_file_name

FORMAT = "asyncmon.checkpoint"
ENDING = ".safetensors"
"""The ending of the names of tensor files."""
VERSION = 1

_TEXT_DTYPE = r"object|[<|][US]\d+"
OPENING = b'{"crc32c": "'
"""The first bytes of each manifest."""
_CLOSING = b'", '
_BODY = len(OPENING) + 8 + len(_CLOSING)


def manifest_name(basename: str) -> str:
    """Return the name of the file that makes a checkpoint of this base name exist."""
    return f"{basename}.json"


class TensorFile(NamedTuple):
    """A tensor file of a checkpoint: its name in the directory, its size and header checksum."""

    name: str
    bytes: int
    header_crc32c: str


class TensorEntry(NamedTuple):
    """The position of an array: ``data_offsets`` count from the start of file number ``file``."""

    dtype: str
    shape: tuple[int, ...]
    file: int
    data_offsets: tuple[int, int]
    crc32c: str

    @property
    def element(self) -> Element:
        """The type of the elements."""
        return element_named(self.dtype)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the array."""
        return self.data_offsets[1] - self.data_offsets[0]


class ShardedEntry(NamedTuple):
    """An array in pieces: names of :attr:`Manifest.tensors`, with their offsets in the array."""

    shape: tuple[int, ...]
    pieces: Mapping[str, tuple[int, ...]]


class TextEntry(NamedTuple):
    """An array of strings, kept in the manifest itself."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]


class Manifest(NamedTuple):
    """The content of a manifest. The module describes each member."""

    checkpoint: str | None = None
    step: int | None = None
    wall_time: float = 0.0
    program: Any = None
    files: tuple[TensorFile, ...] = ()
    tensors: Mapping[str, TensorEntry] = MappingProxyType({})
    sharded: Mapping[str, ShardedEntry] = MappingProxyType({})
    texts: Mapping[str, TextEntry] = MappingProxyType({})
    stateful: Mapping[str, Any] = MappingProxyType({})
    metrics: Mapping[str, float] = MappingProxyType({})
    replaces: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensor files."""
        return sum(file.bytes for file in self.files)

    def encode(self) -> bytes:
        """Return the bytes of the manifest file."""
        metrics = {name: x if math.isfinite(x) else str(x) for name, x in self.metrics.items()}
        members = {
            "format": FORMAT,
            "version": VERSION,
            "checkpoint": self.checkpoint,
            "step": self.step,
            "wall_time": self.wall_time,
            "program": self.program,
            "files": [file._asdict() for file in self.files],
            "tensors": {name: entry._asdict() for name, entry in self.tensors.items()},
            "sharded": {name: entry._asdict() for name, entry in self.sharded.items()},
            "texts": {name: entry._asdict() for name, entry in self.texts.items()},
            "stateful": dict(self.stateful),
            "metrics": metrics,
            "replaces": self.replaces,
        }
        body = json.dumps(members, allow_nan=False)[1:].encode() + b"\n"
        return b"%b%08x%b%b" % (OPENING, google_crc32c.value(body), _CLOSING, body)

    @classmethod
    def decode(cls, data: bytes, path: str) -> Manifest:
        """Return the manifest of a file with this content.

        Args:
            data: the content.
            path: the path of the checkpoint, which ends with the name that it must have.

        Raises:
            DataLossError: the content is damaged, of another format or version, or that of a checkpoint
                of another name.
        """
        basename = path.rpartition("/")[2]
        body = data[_BODY:]
        expected = b"%b%08x%b" % (OPENING, google_crc32c.value(body), _CLOSING)
        if data[:_BODY] != expected:
            raise DataLossError(
                f"The manifest {path!r} is damaged: it begins with {data[:_BODY]!r} where its"
                f" {len(data)} bytes call for {expected!r}."
            )
        try:
            members = json.loads(b"{" + body)
            saved_as = members.get("checkpoint")  # earlier manifests have no such member
            if isinstance(saved_as, str) and saved_as != basename:
                raise ValueError(
                    f"it is that of the checkpoint {saved_as!r}, copied or renamed: copy whole"
                    " directories, or save under the other name"
                )
            return cls._from_members(members, basename)
        except Exception as error:  # whatever the content causes
            raise DataLossError(
                f"The manifest {path!r} is not one of format {FORMAT!r} version {VERSION}: {error!r}."
            ) from error

    @classmethod
    def _from_members(cls, members: dict[str, Any], basename: str) -> Manifest:
        if (members["format"], members["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it is of format {members['format']!r} version {members['version']!r}")
        files = tuple(TensorFile(**file) for file in members["files"])
        for name in (*(file.name for file in files), *members["replaces"]):
            if not (is_file_name(name) and name.startswith(basename) and name.endswith(ENDING)):
                raise ValueError(f"{name!r} is no name of a tensor file of {basename!r}")
        step, wall_time = members["step"], float(members["wall_time"])
        if not (step is None or type(step) is int) or not math.isfinite(wall_time):
            raise ValueError(f"step {step!r} and wall_time {wall_time!r} are no step and time")
        if not all(type(file.bytes) is int and file.bytes >= 0 for file in files):
            raise ValueError("a file has no size")
        tensors = {name: _tensor(entry, files) for name, entry in members["tensors"].items()}
        sharded = members.get("sharded", {})  # earlier manifests have no such member
        return cls(
            checkpoint=members.get("checkpoint"),
            step=step,
            wall_time=wall_time,
            program=members["program"],
            files=files,
            tensors=tensors,
            sharded={name: _sharded(entry, tensors) for name, entry in sharded.items()},
            texts={name: _text(entry) for name, entry in members["texts"].items()},
            stateful=dict(members["stateful"] if "stateful" in members else members["travellers"]),
            metrics={name: float(value) for name, value in members["metrics"].items()},
            replaces=tuple(members["replaces"]),
        )


def _tensor(member: dict[str, Any], files: tuple[TensorFile, ...]) -> TensorEntry:
    start, end = member["data_offsets"]
    entry = TensorEntry(
        dtype=member["dtype"],
        shape=tuple(int(length) for length in member["shape"]),
        file=member["file"],
        data_offsets=(int(start), int(end)),
        crc32c=member["crc32c"],
    )
    nbytes = math.prod(entry.shape) * entry.element.size
    if min(entry.shape, default=0) < 0 or nbytes != entry.nbytes:
        raise ValueError(f"{entry} does not have the bytes that its shape takes")
    if not 0 <= entry.file < len(files) or not 0 <= start <= end <= files[entry.file].bytes:
        raise ValueError(f"{entry} does not lie within its file")
    return entry


def _sharded(member: dict[str, Any], tensors: Mapping[str, TensorEntry]) -> ShardedEntry:
    shape = tuple(int(length) for length in member["shape"])
    entry = ShardedEntry(
        shape, {name: tuple(int(x) for x in offset) for name, offset in member["pieces"].items()}
    )
    pieces = [tensors[name] for name in entry.pieces]
    fit = all(
        len(piece.shape) == len(shape) == len(offset)
        and all(0 <= x <= x + n <= m for x, n, m in zip(offset, piece.shape, shape, strict=True))
        for piece, offset in zip(pieces, entry.pieces.values(), strict=True)
    )
    covered = sum(math.prod(piece.shape) for piece in pieces)
    if not fit or len({piece.dtype for piece in pieces}) != 1 or covered != math.prod(shape):
        raise ValueError(f"{entry} is not made of its pieces")
    return entry


def _text(member: dict[str, Any]) -> TextEntry:
    if not re.fullmatch(_TEXT_DTYPE, member["dtype"]):
        raise ValueError(f"{member['dtype']!r} is no type of strings")
    return TextEntry(str(member["dtype"]), tuple(member["shape"]), tuple(member["values"]))


def encode_text(array: Array) -> TextEntry:
    """Return an array of ``str`` or ``bytes`` (dtype object, ``str_`` or ``bytes_``) as an entry.

    Raises:
        TypeError: an element is neither.
    """
    dtype = "object" if array.dtype.kind == "O" else array.dtype.newbyteorder("<").str
    return TextEntry(dtype, array.shape, tuple(_encode(value) for value in array.reshape(-1).tolist()))


def decode_text(entry: TextEntry) -> Array:
    """Return the array of an entry.

    Raises:
        ValueError: the entry is invalid.
    """
    if len(entry.values) != math.prod(entry.shape):
        raise ValueError(f"{len(entry.values)} strings do not fill the shape {list(entry.shape)}")
    dtype = np.dtype(entry.dtype)
    array = np.empty(len(entry.values), dtype)
    array[:] = [_decode(value) for value in entry.values]
    return array.reshape(entry.shape)


def _encode(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, str):
        return value
    raise TypeError(
        f"it has an element {value!r:.80} of type {type(value).__name__}, which is no string"
    )


def _decode(value: Any) -> str | bytes:
    if isinstance(value, str):
        return value
    return base64.b64decode(value["base64"], validate=True)
