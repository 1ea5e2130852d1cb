"""Encode and decode the manifest of a checkpoint, ``<prefix>-<step>.json``.

A checkpoint exists if its manifest does. The file is one line of UTF-8 JSON, an object that begins
with exactly these bytes (``01234567`` stands for eight lower-case hexadecimal digits)::

    {"crc32c": "01234567", "format": "asyncmon.checkpoint", "version": 1, ...}

``crc32c`` is the CRC-32C (Castagnoli) of all bytes after the comma that follows it, so that any changed
byte is detected. The other members:

=============  ======================================================================================
``checkpoint`` ``<prefix>-<step>``, as the name of the manifest, which may not be renamed
``step``       the global step of the state, or null
``wall_time``  the time of the snapshot in seconds since 1970
``program``    the program's ``describe()``, any JSON value
``files``      ``[{"name", "bytes", "header_crc32c"}, ...]``: the tensor files
               (:mod:`.tensor_file`) in the same directory, their sizes, and the checksums of all
               bytes before their data. Files whose name begins with ``shared-`` may belong to several
               checkpoints of the directory, and are deleted with the last of them
``tensors``    name -> ``{"dtype", "shape", "file", "data_offsets", "crc32c"}``: ``file`` is an index
               of ``files``. The bytes of the entry start at ``data_offsets[0]`` and end before
               ``data_offsets[1]`` *of the file* (in the header of a safetensors file, of its data).
               ``crc32c`` is their checksum. For ``dtype`` see :mod:`.dtypes`
``sharded``    name -> ``{"shape", "pieces"}``: arrays written in pieces that do not overlap.
               ``pieces`` has names of ``tensors`` -> offset of the piece in the array
``texts``      name -> ``{"dtype", "shape", "values"}``: entries of strings, in C order. ``dtype`` is
               ``object`` or numpy's ``<U7``, ``|S7``; a value is a JSON string, or ``{"base64": ...}``
               for bytes
``stateful``   name -> state, as :mod:`.stateful` encodes it: hooks, data positions, generators
``metrics``    name -> number (or ``"nan"``, ``"inf"``), for the selection of the best checkpoints
``replaces``   names of tensor files of an earlier checkpoint of the same name, to be deleted
``excess``     names of checkpoints that the retention of this commit deletes
``preserved``  the last mark of ``keep_checkpoint_every_n_hours`` in seconds since 1970, or null
=============  ======================================================================================

To read a checkpoint without asyncmon: ``json.load`` the manifest, and ``safetensors.numpy.load_file``
each of its files (after ``import ml_dtypes`` for bfloat16; with ``safetensors.deserialize``, which
returns bytes, for float8).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import google_crc32c
import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from asyncmon.checkpoint.dtypes import Array, Element, element_named
from asyncmon.errors import DataLossError
from asyncmon.system.files import is_file_name

FORMAT = "asyncmon.checkpoint"
ENDING = ".safetensors"
"""The ending of the names of tensor files."""
SHARED = "shared-"
"""The beginning of the names of tensor files that several checkpoints may have."""
VERSION = 1
_PADDED_BYTES = 64 << 20  # of an array of strings

_Size = Annotated[int, Meta(ge=0)]
OPENING = b'{"crc32c": "'
"""The first bytes of each manifest."""
_CLOSING = b'", '
_BODY = len(OPENING) + 8 + len(_CLOSING)


RECORD_NAME = "run.json"
"""The file with the record of the run that saves into a directory, and no manifest."""


def manifest_name(basename: str) -> str:
    """Return the name of the file that makes a checkpoint of this base name exist."""
    return f"{basename}.json"


class TensorFile(Struct, frozen=True):
    """A tensor file of a checkpoint: its name in the directory, its size and header checksum."""

    name: str
    bytes: _Size
    header_crc32c: str


class TensorEntry(Struct, frozen=True):
    """The position of an array: ``data_offsets`` count from the start of file number ``file``."""

    dtype: str
    shape: tuple[_Size, ...]
    file: _Size
    data_offsets: tuple[_Size, _Size]
    crc32c: str

    @property
    def element(self) -> Element:
        """The type of the elements."""
        return element_named(self.dtype)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the array."""
        return self.data_offsets[1] - self.data_offsets[0]


class ShardedEntry(Struct, frozen=True):
    """An array in pieces: names of :attr:`Manifest.tensors`, with their offsets in the array."""

    shape: tuple[_Size, ...]
    pieces: Mapping[str, tuple[_Size, ...]]


class TextEntry(Struct, frozen=True):
    """An array of strings, kept in the manifest itself."""

    dtype: Annotated[str, Meta(pattern=r"^(object|[<|][US]\d+)$")]
    shape: tuple[_Size, ...]
    values: tuple[Any, ...]


class Manifest(Struct, frozen=True):
    """The content of a manifest. The module describes each member."""

    checkpoint: str | None = None
    step: int | None = None
    wall_time: float = 0.0
    program: Any = None
    files: tuple[TensorFile, ...] = ()
    tensors: Mapping[str, TensorEntry] = field(default_factory=dict)
    sharded: Mapping[str, ShardedEntry] = field(default_factory=dict)
    texts: Mapping[str, TextEntry] = field(default_factory=dict)
    stateful: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    excess: tuple[str, ...] = ()
    preserved: float | None = None

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
            **asdict(self),
            "files": [asdict(file) for file in self.files],
            "stateful": dict(self.stateful),
            "metrics": metrics,
        }
        for kind in ("tensors", "sharded", "texts"):
            members[kind] = {name: asdict(entry) for name, entry in members[kind].items()}
        body = json.dumps(members, allow_nan=False)[1:].encode() + b"\n"
        return b"%b%08x%b%b" % (OPENING, google_crc32c.value(body), _CLOSING, body)

    @classmethod
    def decode(cls, data: bytes, path: str) -> Manifest:
        """Return the manifest of a file with this content; ``path`` ends with the name it must have.

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
            saved_as = members.get("checkpoint")
            if isinstance(saved_as, str) and saved_as != basename:
                raise ValueError(
                    f"it is that of the checkpoint {saved_as!r}, copied or renamed: copy whole"
                    " directories, or save under the other name"
                )
            return cls._from_members(members, basename)
        except Exception as error:  # the content has caused it
            raise DataLossError(
                f"The manifest {path!r} is not one of format {FORMAT!r} version {VERSION}: {error!r}."
            ) from error

    @classmethod
    def _from_members(cls, members: dict[str, Any], basename: str) -> Manifest:
        if (members["format"], members["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it is of format {members['format']!r} version {members['version']!r}")
        # directories of earlier versions have no marks in the manifests
        if missing := set(cls.__struct_fields__) - {"excess", "preserved"} - members.keys():
            raise ValueError(f"it lacks {sorted(missing)}")
        members["metrics"] = {name: float(value) for name, value in members["metrics"].items()}
        found = msgspec.convert(members, cls)
        for name in (*(file.name for file in found.files), *found.replaces):
            own = name.startswith((basename, SHARED))
            if not (is_file_name(name) and own and name.endswith(ENDING)):
                raise ValueError(f"{name!r} is no name of a tensor file of {basename!r}")
        if not math.isfinite(found.wall_time):
            raise ValueError(f"wall_time {found.wall_time!r} is no time")
        if not all(map(is_file_name, found.excess)):
            raise ValueError(f"excess {found.excess!r} has a path")
        if found.preserved is not None and not math.isfinite(found.preserved):
            raise ValueError(f"preserved {found.preserved!r} is no time")
        for tensor in found.tensors.values():
            _check_tensor(tensor, found.files)
        for sharded in found.sharded.values():
            _check_pieces(sharded, found.tensors)
        check_texts(found.texts)
        return found


def _check_tensor(entry: TensorEntry, files: Sequence[TensorFile]) -> None:
    if math.prod(entry.shape) * entry.element.size != entry.nbytes:
        raise ValueError(f"{entry} does not have the bytes that its shape takes")
    if entry.file >= len(files) or entry.data_offsets[1] > files[entry.file].bytes:
        raise ValueError(f"{entry} does not lie within its file")


def _check_pieces(entry: ShardedEntry, tensors: Mapping[str, TensorEntry]) -> None:
    shape, pieces = entry.shape, [tensors[name] for name in entry.pieces]
    fit = all(
        len(piece.shape) == len(shape) == len(offset)
        and all(x + n <= m for x, n, m in zip(offset, piece.shape, shape, strict=True))
        for piece, offset in zip(pieces, entry.pieces.values(), strict=True)
    )
    covered = sum(math.prod(piece.shape) for piece in pieces)
    if not fit or len({piece.dtype for piece in pieces}) != 1 or covered != math.prod(shape):
        raise ValueError(f"{entry} is not made of its pieces")


def check_texts(texts: Mapping[str, TextEntry]) -> None:
    """Raise ValueError if arrays of strings take far more memory than their strings."""
    # A manifest of a few bytes could name <U500000000, which takes 2 GB for each string.
    for name, entry in texts.items():
        if entry.dtype == "object":
            continue
        nbytes = np.dtype(entry.dtype).itemsize * len(entry.values)
        if nbytes > _PADDED_BYTES + 4 * sum(len(str(value)) for value in entry.values):
            raise ValueError(
                f"the strings of {name!r}, of dtype {entry.dtype}, take {nbytes:,} bytes, most of them"
                " padding; an array of strings with dtype=object has none"
            )


def encode_text(array: Array) -> TextEntry:
    """Return an array of ``str`` or ``bytes`` (dtype object, ``str_`` or ``bytes_``) as an entry."""
    dtype = "object" if array.dtype.kind == "O" else array.dtype.newbyteorder("<").str
    return TextEntry(dtype, array.shape, tuple(_encode(value) for value in array.reshape(-1).tolist()))


def decode_text(entry: TextEntry) -> Array:
    """Return the array of an entry. Raises ValueError for an invalid one."""
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
