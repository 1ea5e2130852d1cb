"""Values as bytes: a header of MessagePack, and arrays as raw buffers beside it. Nothing is unpickled.

Messages contain numbers, texts, bytes, lists, tuples, dicts, sets, arrays, dtypes, shapes, and the
dataclasses and named tuples of the modules of the engine and of wings, by name. Messages of other
processes are not trusted: any other form is an ``InvalidArgumentError``.
"""

from __future__ import annotations

import dataclasses
import importlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from operator import length_hint
from typing import Any

import numpy as np
from msgspec import msgpack

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core.dtypes import DType, as_dtype
from asyncmon.graph.core.shape import Dimension, TensorShape
from asyncmon.system.wings import wings

VERSION = 4
"""The version of this format and of graphs and requests in it. Both sides must have the same."""

MAX_HEADER = 1 << 28
"""The maximum bytes of a header."""

_SHORT = 1 << 10  # bytes: texts of up to this size are in the header, arrays share a buffer
_MODULES = ("asyncmon.graph.", "asyncmon.summary.", "asyncmon.protobuf.run_options.")
_ARRAYS = frozenset("biufc")  # kinds of dtypes
_RANGE_ITERATOR = type(iter(range(0)))
_START = struct.Struct("<II")
_written = msgpack.Encoder().encode


def _refused(code: int, _data: object) -> Any:
    raise ValueError(f"an extension of type {code}")


_read = msgpack.Decoder(ext_hook=_refused).decode
_INTEGERS = range(-(1 << 63), 1 << 64)  # that MessagePack has
_ALIGNED = 64
_DIGITS = 1 << 10
MALFORMED = (
    ValueError, TypeError, LookupError, AttributeError, ImportError, OverflowError, RecursionError,
)  # fmt: skip
"""The errors of reading malformed data."""

Buffer = bytes | bytearray | memoryview


def _nothing() -> None:
    """The default of :attr:`Message.sent`."""


@dataclass(slots=True)
class Message:
    """The unit of transfer.

    Attributes:
        header: MessagePack.
        buffers: buffers that the header refers to by number.
        sent: called once, when the buffers are not needed any more.
    """

    header: bytes
    buffers: Sequence[Buffer] = ()
    sent: Callable[[], None] = field(default=_nothing, compare=False)

    @property
    def is_borrowed(self) -> bool:
        """Whether the buffers may change after sending."""
        return self.sent is not _nothing

    @property
    def nbytes(self) -> int:
        """The bytes of the message, without the lengths of its parts."""
        return len(self.header) + sum([len(buffer) for buffer in self.buffers])


def frame(message: Message) -> list[Buffer]:
    """Return a message as one sequence of bytes, in pieces: the lengths and the header, the buffers.

    Each buffer begins at a multiple of 64 bytes.
    """
    if not message.buffers:
        return [_START.pack(len(message.header), 0) + message.header]
    sizes = [len(buffer) for buffer in message.buffers]
    start = _START.pack(len(message.header), len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
    pieces: list[Buffer] = [start + message.header]
    for before, buffer in pairwise([pieces[0], *message.buffers]):
        gap = -len(before) % _ALIGNED
        pieces += [bytes(gap), buffer] if gap else [buffer]
    return pieces


def unframe(data: Buffer) -> Message:
    """Return the message of the bytes that :func:`frame` returned; its buffers are views of them.

    Raises:
        InvalidArgumentError: malformed bytes.
    """
    view = memoryview(data)
    try:
        length, count = _START.unpack_from(view)
        sizes = struct.unpack_from(f"<{count}Q", view, _START.size) if count else ()
    except struct.error as error:
        raise InvalidArgumentError(f"A message of {len(view)} bytes is not whole: {error}.") from None
    at = _START.size + 8 * count
    begins, end = [], at + length
    if not count and end == len(view) <= MAX_HEADER:
        return Message(bytes(view[at:]))
    for size in sizes:
        begins.append(end + -end % _ALIGNED)
        end = begins[-1] + size
    if length > MAX_HEADER or end != len(view):
        raise InvalidArgumentError(
            f"A message of {len(view)} bytes says it has a header of {length} and {count} buffers of "
            f"{sum(sizes)} bytes."
        )
    buffers = [view[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
    return Message(bytes(view[at : at + length]), buffers)


# --- encoding -------------------------------------------------------------------------------------
class Encoder:
    """Turns values into plain data and buffers. Plain data is what MessagePack has."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._short = bytearray()
        self._short_at: int | None = None

    def message(self, value: Any) -> Message:
        """Return a value as a message, with all buffers so far."""
        return self.plain(self.encode(value))

    def plain(self, data: Any) -> Message:
        """Return plain data as a message, with all buffers so far."""
        return Message(_bytes(data), self.buffers)

    def document(self, data: Any) -> int:
        """Write plain data as a separate buffer, and return its number."""
        return self._buffer(_bytes(data))

    def encode(self, value: Any) -> Any:
        """Return plain data for a value: itself, or a list that begins with its kind.

        Raises:
            TypeError: a type that cannot be sent.
        """
        kind = value.__class__
        if kind in _PLAIN:
            return value
        if kind is int:
            return value if value in _INTEGERS else ["int", hex(value)]
        if kind is dict:
            if set(map(type, value)) <= _TEXT:
                return {key: self.encode(item) for key, item in value.items()}
            return ["dict", *[[self.encode(k), self.encode(item)] for k, item in value.items()]]
        if kind is list or kind is tuple or kind is frozenset:
            return [_STRUCTURES[kind], *[self.encode(item) for item in value]]
        if kind is np.ndarray:
            return self._array(value)
        if kind is bytes:
            return value if len(value) <= _SHORT else ["buffer", self._buffer(value)]
        return self._other(value)

    def _other(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            return ["scalar", *self._array(np.asarray(value))[1:]]
        if isinstance(value, np.ndarray):
            return self._array(np.asarray(value))
        if isinstance(value, DType):
            return ["dtype", value.name]
        if isinstance(value, TensorShape):
            return ["shape", None if value.dims is None else [dim.value for dim in value.dims]]
        if isinstance(value, Dimension):
            return ["dimension", value.value]
        if value is Ellipsis:
            return ["..."]
        if isinstance(value, _RANGE_ITERATOR):  # only the number of remaining elements is sent
            return ["iterator", length_hint(value)]
        fields = _fields(type(value))
        if fields is not None:
            parts = [self.encode(getattr(value, name)) for name in fields]
            return ["object", type(value).__module__, type(value).__qualname__, *parts]
        for kind in (int, float, str):  # an enum, a subclass
            if isinstance(value, kind):
                return self.encode(getattr(kind, _OWN_VALUE[kind])(value))
        raise TypeError(f"A {type(value).__qualname__} cannot be sent to another process: {value!r}.")

    def _array(self, array: Any) -> list[Any]:
        if array.dtype.kind == "O":
            parts = array.reshape(-1).tolist()
            if not all(isinstance(part, bytes) for part in parts):
                raise TypeError(f"An array of objects that are not bytes cannot be sent: {array!r}.")
            sizes = np.array([len(part) for part in parts], np.uint64)
            at = self._buffer(sizes.tobytes()), self._buffer(b"".join(parts))
            return ["array", "O", list(array.shape), *at]
        name = _names.get(array.dtype)
        if name is None:
            if array.dtype.kind not in _ARRAYS:
                raise TypeError(f"An array of dtype {array.dtype} cannot be sent.")
            name = _names[array.dtype] = array.dtype.str
        if array.nbytes <= _SHORT:
            if self._short_at is None:
                self._short_at = self._buffer(self._short)
            start = len(self._short)
            self._short += array.tobytes()
            self._short += bytes(-len(self._short) % 16)
            return ["array", name, array.shape, self._short_at, start]
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return ["array", name, array.shape, self._buffer(flat.data)]

    def _buffer(self, data: Buffer) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1


def _bytes(data: Any) -> bytes:
    try:
        return _written(data)
    except UnicodeEncodeError:  # a text with bytes that are no UTF-8, such as a file name
        return _written(_readable(data))


def _readable(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode(errors="backslashreplace").decode()
    if isinstance(data, dict):
        return {_readable(key): _readable(item) for key, item in data.items()}
    return [_readable(item) for item in data] if isinstance(data, list | tuple) else data


_names: dict[Any, str] = {}  # of the dtypes of arrays that were sent
_dtypes: dict[str, Any] = {}
_PLAIN = frozenset({type(None), bool, float, str})
_TEXT = frozenset({str})
_OWN_VALUE = {int: "__int__", float: "__float__", str: "__str__"}
_READ_PLAIN = _PLAIN | {int, bytes}
_STRUCTURES = {list: "list", tuple: "tuple", frozenset: "set"}


def is_of_engine(module: str) -> bool:
    """Return whether a message may import a module."""
    return f"{module}.".startswith(_modules())


@cache
def _modules() -> tuple[str, ...]:
    return (*_MODULES, *[prefix for wing in wings() for prefix in wing.wire])


def encode(value: Any) -> Message:
    """Return a value as a message. TypeError if a part of it cannot be sent."""
    return Encoder().message(value)


def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a type that is sent by name."""
    if not is_of_engine(kind.__module__):
        return None
    if dataclasses.is_dataclass(kind):
        return tuple([one.name for one in dataclasses.fields(kind) if one.init])
    if issubclass(kind, tuple):
        found: tuple[str, ...] | None = getattr(kind, "_fields", None)
        return found
    return None


# --- decoding -------------------------------------------------------------------------------------
class Decoder:
    """Turns a message into values. Arrays are views of its buffers, writable if these are.

    Args:
        message: the message.
    """

    def __init__(self, message: Message) -> None:
        self._buffers = message.buffers
        try:
            self.content: Any = _read(message.header)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(f"The header of a message is malformed: {error}.") from None

    def value(self) -> Any:
        """Return the value of the message.

        Raises:
            InvalidArgumentError: malformed data.
        """
        return self.decode(self.content)

    def document(self, number: int) -> Any:
        """Return the plain data of a buffer of its own."""
        return _read(self._buffers[number])

    def decode(self, data: Any) -> Any:
        """Return the value of plain data.

        Raises:
            InvalidArgumentError: it is malformed.
        """
        try:
            return self._decode(data)
        except MALFORMED as error:
            raise InvalidArgumentError(f"A message is malformed: {error!r}.") from error

    def _decode(self, data: Any) -> Any:
        kind = data.__class__
        if kind is dict:
            return {key: self._decode(item) for key, item in data.items()}
        if kind in _READ_PLAIN:
            return data
        if kind is not list:
            raise ValueError(f"a {kind.__name__}")  # a time, which MessagePack has, too
        try:
            read = _READ[data[0]]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"no value is written as {data!r:.100}") from None
        return read(self, *data[1:])

    def _items(self, *items: Any) -> list[Any]:
        return [self._decode(item) for item in items]

    def _dict(self, *items: Any) -> dict[Any, Any]:
        return {self._decode(key): self._decode(item) for key, item in items}

    def _integer(self, digits: str) -> int:
        if len(digits) > _DIGITS:
            raise ValueError(f"an integer of {len(digits)} digits")
        return int(digits, 16)

    def _bytes(self, number: int) -> Buffer:
        if number < 0:
            raise IndexError(f"buffer {number}")
        return self._buffers[number]

    def _array(self, dtype: str, shape: list[int], number: int, start: int = 0) -> Any:
        if dtype == "O":
            return self._strings(shape, number, start)
        kind = _dtypes.get(dtype)
        if kind is None:
            kind = np.dtype(dtype)
            if kind.kind not in _ARRAYS:
                raise ValueError(f"an array of dtype {dtype!r}")
            _dtypes[dtype] = kind
        return np.ndarray(shape, kind, self._bytes(number), start)

    def _strings(self, shape: list[int], number: int, joined: int) -> Any:
        sizes = np.frombuffer(self._bytes(number), np.uint64).tolist()
        data = memoryview(self._bytes(joined))
        if sum(sizes) != len(data):
            raise ValueError(f"strings of {sum(sizes)} bytes in a buffer of {len(data)}")
        parts, at = np.empty(len(sizes), object), 0
        for i, size in enumerate(sizes):
            parts[i] = bytes(data[at : at + size])
            at += size
        return parts.reshape(shape)

    def _object(self, module: str, name: str, parts: list[Any]) -> Any:
        if not is_of_engine(module):
            raise ValueError(f"an object of module {module!r}")
        kind: Any = getattr(importlib.import_module(module), name)
        fields = _fields(kind)
        if fields is None:
            raise ValueError(f"{name!r} of {module!r}, which is not sent by its fields")
        return kind(**dict(zip(fields, parts, strict=True)))


# How each kind of value is read.
_READ: dict[Any, Callable[..., Any]] = {
    "list": Decoder._items,
    "tuple": lambda decoder, *items: tuple(decoder._items(*items)),
    "set": lambda decoder, *items: frozenset(decoder._items(*items)),
    "dict": Decoder._dict,
    "array": Decoder._array,
    "scalar": lambda decoder, *parts: decoder._array(*parts)[()],
    "int": Decoder._integer,
    "buffer": lambda decoder, number: bytes(decoder._bytes(number)),
    "dtype": lambda _decoder, name: as_dtype(name),
    "shape": lambda _decoder, dims: TensorShape(dims),
    "dimension": lambda _decoder, value: Dimension(value),
    "...": lambda _decoder: ...,
    "iterator": lambda _decoder, count: iter(range(count)),
    "object": lambda decoder, module, name, *parts: decoder._object(
        module, name, decoder._items(*parts)
    ),
}


def decode(message: Message) -> Any:
    """Return the value of a message. InvalidArgumentError if it is malformed."""
    return Decoder(message).value()
