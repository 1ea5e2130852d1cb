"""States as JSON values and arrays, as a checkpoint has them.

A state consists of nested dicts, lists, tuples, strings, bytes, numbers, booleans, None, numpy arrays
and scalars, and tensors of torch. Large arrays that rarely change may be a
:class:`~asyncmon.system.snapshot.FixedArray`, which is written once for all checkpoints of a directory.
In the manifest a state is JSON. Types that JSON lacks are objects with one member:

=====================================  =========================================================
``{"__tuple__": [...]}``               a tuple
``{"__items__": [[key, value], ...]}`` a dict with keys that are not strings or begin with ``__``
``{"__bytes__": "base64"}``            bytes, up to 1 KB
``{"__buffer__": "name"}``             longer bytes, stored like an array
``{"__list__": "name"}``               a long list of integers, or of floats, stored like an array
``{"__float__": "nan"}``               ``nan``, ``inf`` or ``-inf``
``{"__complex__": [re, im]}``          a complex number
``{"__array__": "name"}``              an array in the tensor files; its name begins with
                                       ``__stateful__/``
``{"__scalar__": "name"}``             a numpy scalar, stored like an array
``{"__tensor__": "name"}``             a tensor of torch, stored like an array; without torch in the
                                       process it is loaded as one
=====================================  =========================================================
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

import numpy as np

from asyncmon.checkpoint.dtypes import Array
from asyncmon.system.snapshot import FixedArray

ARRAY_PREFIX = "__stateful__/"
"""The prefix of the names of arrays in states."""

_MOST_INLINE = 1024  # bytes in the manifest

_PLAIN = {bool, int, str, type(None)}  # JSON has them as they are
_SIMPLE = {*_PLAIN, float, complex, bytes}
_NUMBERS = {int}, {float}


def pack(name: str, state: Any, *, copies: bool = True) -> tuple[Any, dict[str, Array]]:
    """Return a state as JSON values, and the arrays in it.

    Args:
        name: of the state.
        state: see the module.
        copies: whether arrays that are not read-only are copied.

    Raises:
        TypeError: the type of a value is not supported.
    """
    packing = _Packing(copies)
    return packing.pack(state, f"{ARRAY_PREFIX}{name}"), packing.arrays


def pack_json(name: str, state: Any) -> Any:
    """Return a state without arrays as JSON values only. See :func:`pack`."""
    return _Packing(True, math.inf).pack(state, f"{ARRAY_PREFIX}{name}")


def own_containers(value: Any) -> Any:
    """Return a value with copies of the dicts, lists and tuples in it, and the same arrays."""
    match value:
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(value if _is_plain(value) else map(own_containers, value))
        case dict() if type(value) is dict:
            return {key: own_containers(item) for key, item in value.items()}
    return value


def _is_plain(values: Iterable[Any]) -> bool:
    # Lists of token numbers are long: the types of all are found ten times faster than one by one.
    return set(map(type, values)) <= _PLAIN


def can_pack(value: Any) -> bool:
    """Return whether :func:`pack` takes a value, and :func:`unpack` gives an equal one of its type."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return True
        case list() | tuple() if type(value) in (list, tuple):
            return set(map(type, value)) <= _SIMPLE or all(map(can_pack, value))
        case dict() if type(value) is dict:
            return all(can_pack(key) and can_pack(item) for key, item in value.items())
        case np.ndarray() | np.generic():
            return value.dtype.kind != "O"
    return isinstance(value, FixedArray) or _is_tensor(value)


def pack_all(
    states: Mapping[str, Any], *, copies: bool = True
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return all states by name as JSON values, and the arrays in them. See :func:`pack`."""
    packed: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for name, state in states.items():
        packed[name], inside = pack(name, state, copies=copies)
        arrays.update(inside)
    return packed, arrays


def pack_later(
    later: Mapping[str, Callable[[], Any]],
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the states that functions return, packed with copies. Blocking."""
    return pack_all({name: state() for name, state in later.items()})


Fingerprints = Mapping[str, bytes | int]
"""By name: a digest of a state, or the revision of an object that has one."""


def fingerprints_of(
    states: Mapping[str, Any], arrays: Mapping[str, Array], revisions: Mapping[str, int]
) -> Fingerprints:
    """Return the fingerprints of packed states. Blocking, if states are large.

    Args:
        states, arrays: of :func:`pack_all`.
        revisions: stand for the states of their names.
    """
    import hashlib  # takes 2 ms, which an import of the package does not

    found: dict[str, bytes | int] = dict(revisions)
    for name in states.keys() - revisions.keys():
        digest = hashlib.blake2b(json.dumps(states[name], sort_keys=True).encode(), digest_size=16)
        prefix = f"{ARRAY_PREFIX}{name}"
        for key in sorted(arrays):
            if key == prefix or key.startswith((f"{prefix}/", f"{prefix}'")):
                array = np.asarray(arrays[key])
                digest.update(f"{key}{array.dtype}{array.shape}".encode())
                if array.dtype.hasobject:
                    digest.update(repr(array.tolist()).encode())
                else:  # not tobytes(), whose copy holds the interpreter lock
                    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        found[name] = digest.digest()
    return found


def has_changed(before: Fingerprints, now: Fingerprints) -> bool:
    """Return whether an object has changed without a step, or has come with a state of its own."""
    for name, mark in now.items():
        was = before.get(name)
        if isinstance(mark, int) and not isinstance(was, int):
            was = 0  # it was restored, or is new, and is as it began
        if mark != was:
            return True
    return False


def unpack(packed: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the argument of :func:`pack`, with new, writable arrays."""
    if isinstance(packed, list):
        return [unpack(item, arrays) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if len(packed) == 1:
        kind, content = next(iter(packed.items()))
        match kind:
            case "__tuple__":
                return tuple(unpack(content, arrays))
            case "__list__":
                return np.asarray(arrays[content]).tolist()
            case "__items__":
                return {unpack(key, arrays): unpack(value, arrays) for key, value in content}
            case "__bytes__":
                return base64.b64decode(content)
            case "__buffer__":
                return np.asarray(arrays[content]).tobytes()
            case "__float__":
                return float(content)
            case "__complex__":
                return complex(unpack(content[0], arrays), unpack(content[1], arrays))
            case "__array__":
                return np.array(arrays[content])
            case "__scalar__":
                return arrays[content][()]
            case "__tensor__":
                array, torch = np.array(arrays[content]), sys.modules.get("torch")
                return array if torch is None else torch.from_numpy(array)
    return {key: unpack(value, arrays) for key, value in packed.items()}


class _Packing:
    """A state on its way to JSON values; ``arrays`` are those found so far. See :func:`pack`."""

    def __init__(self, copies: bool, most_inline: float = _MOST_INLINE) -> None:
        self._copies, self._most_inline = copies, most_inline
        self.arrays: dict[str, Array] = {}

    def pack(self, value: Any, where: str) -> Any:
        match value:
            case FixedArray():
                return {"__array__": self._add(value, where)}  # read when it is written, if at all
            case np.ndarray() | np.generic():
                is_copied = self._copies and not _is_constant(value)
                name = self._add(np.array(value) if is_copied else value, where)
                return {"__array__" if isinstance(value, np.ndarray) else "__scalar__": name}
            case _ if _is_tensor(value):
                content = self.pack(value.detach().cpu().numpy(), where)
                return {"__tensor__": content["__array__"]}
            case None | bool() | int() | str():
                return value
            case float():
                return value if math.isfinite(value) else {"__float__": str(value)}
            case complex():
                parts = value.real, value.imag
                return {"__complex__": [self.pack(part, where) for part in parts]}
            case bytes() if len(value) > self._most_inline:
                return {"__buffer__": self._add(np.frombuffer(value, np.uint8), where)}
            case bytes():
                return {"__bytes__": base64.b64encode(value).decode()}
            case tuple():
                return {"__tuple__": self._pack_each(value, where)}
            case list():
                return self._pack_each(value, where)
            case Mapping():
                if all(isinstance(key, str) and not key.startswith("__") for key in value):
                    return {key: self.pack(item, f"{where}/{key}") for key, item in value.items()}
                items = [
                    [self.pack(key, f"{where}/{number}.key"), self.pack(item, f"{where}/{number}")]
                    for number, (key, item) in enumerate(value.items())
                ]
                return {"__items__": items}
        raise TypeError(
            f"The state of a stateful object has a {type(value).__name__} at"
            f" {where.removeprefix(ARRAY_PREFIX)!r}: {value!r:.80}. A state consists of dicts, lists,"
            " tuples, strings, bytes, numbers, booleans, None, numpy arrays and tensors."
        )

    def _pack_each(self, values: Any, where: str) -> Any:
        types = set(map(type, values))
        if types in _NUMBERS and self._most_inline < len(values) * 8:
            # The encoding as JSON would hold the interpreter lock.
            with suppress(OverflowError):
                array = np.array(values, np.int64 if types == {int} else np.float64)
                return {"__list__": self._add(array, where)}
        if types <= _PLAIN:
            return list(values)
        return [self.pack(item, f"{where}/{number}") for number, item in enumerate(values)]

    def _add(self, array: Any, where: str) -> str:
        while where in self.arrays:  # {"a": {"b": x}, "a/b": y}
            where += "'"
        self.arrays[where] = cast("Array", array)
        return where


def _is_constant(value: Any) -> bool:
    """Return whether this is a read-only array with memory of its own, which nothing writes to."""
    return value.__class__ is np.ndarray and value.base is None and not value.flags.writeable


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # not imported: without it there are no tensors
    return torch is not None and isinstance(value, torch.Tensor)
