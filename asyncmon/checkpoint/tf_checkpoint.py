"""Read checkpoints of TensorFlow (its V2 format), without TensorFlow.

A checkpoint is ``<prefix>.index``, a table of blocks, perhaps snappy-compressed, and
``<prefix>.data-00000-of-00001`` and so on, the bytes of the tensors. All checksums are verified.
Strings are object arrays of ``bytes``, and a partitioned variable is one array under its own name.
Resources and variants are skipped with a warning.

Example::

    async with await load_checkpoint("old/model.ckpt-1000") as reader:
        weights = await reader.get_tensors()  # {"dense/kernel": array(...), ...}
    await saver.restore(session, "old/model.ckpt-1000", rename={"model/": "/"})
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from asyncmon.checkpoint.contents import Contents, Facts, close_files, open_files, read_main_file
from asyncmon.checkpoint.dtypes import Array, decode, element_named, numpy_dtype
from asyncmon.checkpoint.os_errors import is_environment
from asyncmon.checkpoint.store import DataFile, Store
from asyncmon.errors import DataLossError, InvalidArgumentError
from asyncmon.protobuf import DELIMITED, fields, read_varint, signed
from asyncmon.protobuf.tf_types import DTYPES, QUANTIZED, masked
from asyncmon.system.files import in_thread

Slice = tuple[tuple[int, int | None], ...]
"""The start and length of a slice in each dimension; the length None is the whole dimension."""


class BundleEntry(NamedTuple):
    """The position of a tensor: ``size`` bytes at ``offset`` of shard ``shard``."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc32c: int
    slices: tuple[Slice, ...]


class Bundle(NamedTuple):
    """The entries of a checkpoint: tensors by name, slices by (name, slice)."""

    shards: int
    big_endian: bool
    tensors: dict[str, BundleEntry]
    slices: dict[tuple[str, Slice], BundleEntry]


def read_bundle(index: bytes) -> Bundle:
    """Return the entries of an ``.index`` file. Raises ValueError for a damaged one."""
    table = read_table(index)
    shards, big_endian = 0, False
    for number, value in _fields(table.pop(b"", b"")):
        if number == 1:
            shards = _number(value)
        elif number == 2:
            big_endian = value == 1
    # Only the keys of slices begin with a zero byte.
    tensors = {key.decode(): _entry(value) for key, value in table.items() if not key.startswith(b"\0")}
    try:
        slices = {
            (name, one): _entry(table[_slice_key(name, one)])
            for name, entry in tensors.items()
            for one in entry.slices
        }
    except KeyError as error:
        raise ValueError(f"it lists a slice that it does not have: {error}") from error
    return Bundle(shards, big_endian, tensors, slices)


def _entry(message: bytes) -> BundleEntry:
    values: dict[int, int | bytes] = {}
    slices: list[Slice] = []
    for number, value in _fields(message):
        values[number] = value
        if number == 7:
            slices.append(tuple(_extent(extent) for _, extent in _fields(_bytes(value))))
    shape = tuple(_dimension(dim) for key, dim in _fields(_bytes(values.get(2, b""))) if key == 2)
    dtype, shard, offset, size, crc32c = (_number(values.get(number, 0)) for number in (1, 3, 4, 5, 6))
    if min((offset, size, shard, *shape)) < 0:
        raise ValueError(f"an entry has a negative size, offset or dimension: {shape}")
    return BundleEntry(dtype, shape, shard, offset, size, crc32c, tuple(slices))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field: ints for varints and fixed fields, else bytes."""
    for number, wire_type, value in fields(message):
        if isinstance(value, int):
            yield number, value
        else:
            yield number, bytes(value) if wire_type == DELIMITED else int.from_bytes(value, "little")


def _dimension(message: int | bytes) -> int:
    return next((_number(value) for number, value in _fields(_bytes(message)) if number == 1), 0)


def _extent(message: int | bytes) -> tuple[int, int | None]:
    values = {number: _number(value) for number, value in _fields(_bytes(message))}
    return values.get(1, 0), values.get(2)


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a field that should be a number is none")
    return signed(value)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field that should be a message is a number")
    return value


def _slice_key(name: str, one: Slice) -> bytes:
    escaped = name.encode().replace(b"\0", b"\0\xff")  # UTF-8 has no \xff, which would be escaped, too
    key = b"\0" + escaped + b"\0\1" + _ordered(len(one))
    for start, length in one:
        key += _ordered_signed(start) + _ordered_signed(-1 if length is None else length)
    return key


def _ordered(number: int) -> bytes:
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _ordered_signed(number: int) -> bytes:
    """Encode a number in sort order: the count of leading one bits is the number of bytes."""
    magnitude = ~number if number < 0 else number
    length = magnitude.bit_length() // 7 + 1
    digits = bytearray(number.to_bytes(length, "big", signed=True))
    header = ((1 << length) - 1) << (8 * max(length, 2) - length)  # `length` ones, from the highest bit
    for place, byte in enumerate(header.to_bytes(max(length, 2), "big")[:length]):
        digits[place] ^= byte
    return bytes(digits)


_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Return the keys and values of a table. Raises ValueError for a damaged one."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ValueError("it does not end like a table")
    footer = data[-_FOOTER:]
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    table: dict[bytes, bytes] = {}
    for _, value in _entries(_block(data, index)):
        handle, _ = _handle(value, 0)
        table.update(_entries(_block(data, handle)))
    return table


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    block = data[offset : offset + size + _TRAILER]
    if len(block) != size + _TRAILER:
        raise ValueError(f"the block at byte {offset} ends early")
    content, kind = block[:size], block[size]
    if masked(google_crc32c.value(block[:-4])) != int.from_bytes(block[-4:], "little"):
        raise ValueError(f"the block at byte {offset} does not match its checksum")
    if kind == 0:
        return content
    if kind == 1:
        return decompress(content)
    raise ValueError(f"the block at byte {offset} has the unknown compression {kind}")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise ValueError(f"a block of {len(block)} bytes cannot have {restarts} restart points")
    at = 0
    key = b""
    while at < end:
        shared, at = read_varint(block, at)
        fresh, at = read_varint(block, at)
        length, at = read_varint(block, at)
        if shared > len(key) or at + fresh + length > end:
            raise ValueError("an entry runs over the end of its block")
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def decompress(data: bytes) -> bytes:
    """Return the content of a snappy block. Raises ValueError for a damaged one."""
    expected, at = read_varint(data, 0)
    content = bytearray()
    while at < len(data):
        kind = data[at] & 3
        size = data[at] >> 2
        if kind == 0:
            at += 1
            if size >= 60:
                width = size - 59
                size = int.from_bytes(_take(data, at, width), "little")
                at += width
            content += _take(data, at, size + 1)
            at += size + 1
        else:
            if kind == 1:
                offset = (data[at] >> 5) << 8 | _take(data, at + 1, 1)[0]
                length = 4 + (size & 7)
                at += 2
            else:
                width = 2 if kind == 2 else 4
                offset = int.from_bytes(_take(data, at + 1, width), "little")
                length = 1 + size
                at += 1 + width
            _repeat(content, offset, length)
        if len(content) > expected:
            break
    if len(content) != expected:
        raise ValueError(f"a snappy block has {len(content)} bytes of content where it says {expected}")
    return bytes(content)


def _take(data: bytes, at: int, count: int) -> bytes:
    taken = data[at : at + count]
    if len(taken) != count:
        raise ValueError(f"a snappy block ends {count - len(taken)} bytes early")
    return taken


def _repeat(content: bytearray, offset: int, length: int) -> None:
    if not 0 < offset <= len(content):
        raise ValueError(f"a snappy block copies from {offset} bytes before byte {len(content)}")
    while length > 0:  # a copy may overlap its own output, which repeats the pattern
        start = len(content) - offset
        piece = content[start : start + length]
        content += piece
        length -= len(piece)


logger = logging.getLogger(__name__)

_STEP = "global_step"
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
            incomplete={
                name: f"Does not have sufficient slices for partitioned tensor {name} to restore in "
                f"slice_spec: {':'.join('-' for _ in entry.shape)}"
                for name, entry in known.items()
                if not _is_covered(entry)
            },
        )

    @classmethod
    async def open(cls, store: Store, basename: str, path: str) -> BundleContents:
        """Open a checkpoint and all of its files. Raises as :meth:`.CheckpointReader.open`."""
        index = index_name(basename)
        data = await read_main_file(store, index, path)
        try:
            made = await in_thread(cls._opened, store, basename, path, data, lost=cls.close)
        except ValueError as error:
            raise DataLossError(f"Checkpoint {path!r} is damaged: {index!r}: {error}.") from error
        try:
            made.facts = made.facts._replace(step=await made._step())
        except BaseException:
            made.close()
            raise
        return made

    async def _step(self) -> int | None:
        """Return the value of the global step, or the step in the name of the checkpoint."""
        entry = self._bundle.tensors.get(_STEP)
        if entry is not None and not entry.shape and _ELEMENTS.get(entry.dtype) in ("int64", "int32"):
            with suppress(DataLossError):  # reading the entry reports the damage
                return int((await self.read([_STEP]))[_STEP])
        digits = re.search(r"-(\d+)$", self._path)
        return None if digits is None else int(digits[1])

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
        if name in self.facts.incomplete:
            raise InvalidArgumentError(f"Checkpoint {self._path!r}: {self.facts.incomplete[name]}")
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


def _is_covered(entry: BundleEntry) -> bool:
    """Return whether the slices of a partitioned tensor, which never overlap, make the whole."""
    found = 0
    for one in entry.slices:
        if len(one) != len(entry.shape):
            return True  # reading the slice reports the damage
        pairs = zip(entry.shape, one, strict=True)
        found += prod(size if length is None else length for size, (_, length) in pairs)
    return not entry.slices or found >= prod(entry.shape)


async def refuse_v1(store: Store, basename: str, path: str) -> None:
    """Raise InvalidArgumentError if a checkpoint is in TensorFlow's V1 format, one file a shard."""
    parts = re.compile(rf"{re.escape(basename)}(-\d{{5}}-of-\d{{5}})?")
    for name in filter(parts.fullmatch, await in_thread(store.names)):
        try:
            file = await in_thread(store.open, name, lost=DataFile.close)
        except OSError:  # a directory of this name
            continue
        try:
            ending = (max(file.size - 8, 0), file.size)
            (piece,) = await file.read([ending])
        finally:
            file.close()
        if piece.data.tobytes() == _MAGIC.to_bytes(8, "little"):
            raise InvalidArgumentError(
                f"Checkpoint {path!r} is in TensorFlow's V1 format, which is not read here. Restore it "
                "with TensorFlow and save it again with tf.compat.v1.train.Saver(), whose default is "
                "write_version=tf.compat.v1.train.SaverDef.V2."
            )


def _is_array(entry: BundleEntry) -> bool:
    return entry.dtype in _ELEMENTS or entry.dtype == _STRING


def _numpy_dtype(dtype: int) -> np.dtype[Any]:
    return np.dtype(object) if dtype == _STRING else numpy_dtype(element_named(_ELEMENTS[dtype]))
