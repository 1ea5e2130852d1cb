"""Save and load the states of hooks, data sources and generators with the variables.

A stateful object has ``state_dict()`` and ``load_state_dict(state)``. A state consists of nested dicts,
lists, tuples, strings, bytes, numbers, booleans, None, numpy arrays and scalars, and tensors of torch.
Large arrays that rarely change may be a :class:`~asyncmon.system.snapshot.FixedArray`, which is written
once for all checkpoints of a directory.
In the manifest it is JSON. Types that JSON lacks are objects with one member:

=====================================  =========================================================
``{"__tuple__": [...]}``               a tuple
``{"__items__": [[key, value], ...]}`` a dict with keys that are not strings or begin with ``__``
``{"__bytes__": "base64"}``            bytes
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

import asyncio
import base64
import json
import logging
import math
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from asyncmon.checkpoint.dtypes import Array
from asyncmon.system.members import members_of
from asyncmon.system.snapshot import FixedArray

logger = logging.getLogger(__name__)

ARRAY_PREFIX = "__stateful__/"
"""The prefix of the names of arrays in states."""


@runtime_checkable
class Stateful(Protocol):
    """An object whose state is saved in each checkpoint and loaded by a restore."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state. Called when a save is ordered, between two steps; must not block.

        Arrays are copied, in the event loop, unless they are read-only and have memory of their own.
        """

    def load_state_dict(self, state: Any) -> None:
        """Set a state that :meth:`state_dict` returned."""


class StatefulMembers:
    """The optional members of a hook or a data source that has a state."""

    state_dict: Callable[[], Mapping[str, Any]] | None = None
    """Return the state. Called when a save is ordered, between two steps; must not block. None: the
    object has no state to save."""
    load_state_dict: Callable[[Any], None] | None = None
    """Set a state that ``state_dict`` returned. Called by a restore, before ``after_create_session``.
    Required where there is a ``state_dict``."""
    restart: Callable[[int | None], None] | None = None
    """``restart(step)``: called with the global step of a new session that has restored no state for
    the object, as after a recovery without a checkpoint. None: the object keeps its state."""
    revision: int | None = None
    """Rises with each change of the state that no step makes. After such a change the last save is not
    skipped, although its step is saved. None: the states themselves are compared."""


class SourceMembers(StatefulMembers):
    """The optional members of a data source that has a state."""

    mark: Callable[[], Callable[[], Any]] | None = None
    """Return the position of the next element as a function that returns its state, at any later time.
    Called before each element, in place of ``state_dict``. The iterators of a source with marks follow
    ``load_state_dict``; others are made again. None: ``state_dict`` is called before each element, and
    returns a copy."""
    aligned: Callable[[Any, Any], Any] | None = None
    """``aligned(state, later)``: return a position equal to ``state`` from which the elements at and
    after the position ``later`` have the same places as in the past. None: the order is always the
    same."""


def pack(name: str, state: Any) -> tuple[Any, dict[str, Array]]:
    """Return a state as JSON values, and the arrays in it: copies, unless they are read-only.

    Raises:
        TypeError: the type of a value is not supported.
    """
    arrays: dict[str, Array] = {}
    return _pack(state, f"{ARRAY_PREFIX}{name}", arrays), arrays


def can_pack(value: Any) -> bool:
    """Return whether :func:`pack` takes a value, and :func:`unpack` gives an equal one of its type."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return True
        case list() | tuple() if type(value) in (list, tuple):
            return all(map(can_pack, value))
        case dict() if type(value) is dict:
            return all(can_pack(key) and can_pack(item) for key, item in value.items())
        case np.ndarray() | np.generic():
            return value.dtype.kind != "O"
    return isinstance(value, FixedArray) or _is_tensor(value)


def pack_all(states: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return all states by name as JSON values, and copies of the arrays in them."""
    packed: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for name, state in states.items():
        packed[name], inside = pack(name, state)
        arrays.update(inside)
    return packed, arrays


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
                digest.update(
                    repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
                )
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
                return tuple(unpack(item, arrays) for item in content)
            case "__items__":
                return {unpack(key, arrays): unpack(value, arrays) for key, value in content}
            case "__bytes__":
                return base64.b64decode(content)
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


def _pack(value: Any, where: str, arrays: dict[str, Array]) -> Any:
    match value:
        case FixedArray():
            while where in arrays:
                where += "'"
            arrays[where] = cast("Array", value)  # read when it is written, if at all
            return {"__array__": where}
        case np.ndarray() | np.generic():
            while where in arrays:  # {"a": {"b": x}, "a/b": y}
                where += "'"
            arrays[where] = cast("Array", value) if _is_constant(value) else np.array(value)
            return {"__array__" if isinstance(value, np.ndarray) else "__scalar__": where}
        case _ if _is_tensor(value):
            content = _pack(value.detach().cpu().numpy(), where, arrays)
            return {"__tensor__": content["__array__"]}
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"__float__": str(value)}
        case complex():
            return {"__complex__": [_pack(value.real, where, arrays), _pack(value.imag, where, arrays)]}
        case bytes():
            return {"__bytes__": base64.b64encode(value).decode()}
        case tuple():
            return {"__tuple__": _pack_each(value, where, arrays)}
        case list():
            return _pack_each(value, where, arrays)
        case Mapping():
            if all(isinstance(key, str) and not key.startswith("__") for key in value):
                return {key: _pack(item, f"{where}/{key}", arrays) for key, item in value.items()}
            items = [
                [_pack(key, f"{where}/{number}.key", arrays), _pack(item, f"{where}/{number}", arrays)]
                for number, (key, item) in enumerate(value.items())
            ]
            return {"__items__": items}
    raise TypeError(
        f"The state of a stateful object has a {type(value).__name__} at"
        f" {where.removeprefix(ARRAY_PREFIX)!r}: {value!r:.80}. A state consists of dicts, lists,"
        " tuples, strings, bytes, numbers, booleans, None, numpy arrays and tensors."
    )


def _is_constant(value: Any) -> bool:
    """Return whether this is a read-only array with memory of its own, which nothing writes to."""
    return value.__class__ is np.ndarray and value.base is None and not value.flags.writeable


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # not imported: without it there are no tensors
    return torch is not None and isinstance(value, torch.Tensor)


def _pack_each(values: Any, where: str, arrays: dict[str, Array]) -> list[Any]:
    return [_pack(item, f"{where}/{number}", arrays) for number, item in enumerate(values)]


class Boundary(Protocol):
    """The boundary between two steps of a session, including the calls of its hooks."""

    def hooks_lag(self) -> bool:
        """Return whether a step is committed that some hooks have not seen."""

    def call_after_run(self, fn: Callable[[], None]) -> asyncio.Future[None]:
        """Call a function once they have, before another step begins."""


class StatefulObjects:
    """Stateful objects by name, and restored states of objects that are not registered yet.

    A session has them for its hooks and data sources (:func:`stateful_of`), and a saver for objects of
    its own.
    """

    def __init__(self) -> None:
        self._registered: dict[str, Stateful] = {}
        self._pending: dict[str, Any] = {}
        self.restored: Mapping[str, Any] = {}
        """The states that a new raw session has restored, while hooks are called with it."""
        self.loaded_from: str | None = None
        """The checkpoint whose global step the session has loaded, by any saver, or None."""
        self.on_commit: Callable[[Any, int | None, float, str | None], None] | None = None
        """Called by savers: a raw session whose whole state is committed, step, seconds and path."""
        self.boundary: Boundary | None = None
        """At which the states of hooks belong to a step; None outside a monitored session."""

    @property
    def objects(self) -> Mapping[str, Stateful]:
        """The registered objects by name."""
        return self._registered

    @property
    def pending(self) -> Mapping[str, Any]:
        """Restored states of objects that are not registered yet, by name."""
        return self._pending

    def add(self, name: str, obj: Stateful) -> None:
        """Register an object, and load its state if a checkpoint with one was restored before.

        Raises:
            TypeError: the object lacks one of the methods.
            ValueError: another object has this name.
        """
        if not isinstance(obj, Stateful):
            raise TypeError(
                f"A stateful object has state_dict() and load_state_dict(state); {obj!r} of type"
                f" {type(obj).__name__} does not."
            )
        if self._registered.get(name, obj) is not obj:
            raise ValueError(
                f"There is another object of the name {name!r}: {self._registered[name]!r}."
                " Give each its own name."
            )
        if name in self._pending:
            obj.load_state_dict(self._pending[name])
            del self._pending[name]
        self._registered[name] = obj

    def add_numbered(self, default: str, obj: Stateful) -> str:
        """Register an object under the first unused name of ``default``, ``default_1`` and so on.

        Returns the name.
        """
        number, name = 0, default
        while name in self._registered:
            number += 1
            name = f"{default}_{number}"
        self.add(name, obj)
        return name

    def remove(self, name: str) -> None:
        """Remove an object. An unknown name is ignored."""
        self._registered.pop(name, None)

    def discard(self, obj: Any) -> None:
        """Remove an object, if it is registered."""
        self._registered = {name: one for name, one in self._registered.items() if one is not obj}

    def load(self, states: Mapping[str, Any]) -> None:
        """Load the states of all objects; states of other names are kept until :meth:`add`."""
        self._pending = {name: state for name, state in states.items() if name not in self._registered}
        for name, obj in self._registered.items():
            if name in states:
                obj.load_state_dict(states[name])
            else:
                logger.info("The checkpoint has no state for %r: it keeps its initial state.", name)

    def states(self) -> dict[str, Any]:
        """Return :meth:`current`, and restored states of objects that are not registered yet."""
        return self._pending | self.current()

    def revisions(self) -> dict[str, int]:
        """Return the revisions of the objects that have one. See ``StatefulMembers.revision``."""
        found = {n: members_of(StatefulMembers, obj).revision for n, obj in self._registered.items()}
        return {name: revision for name, revision in found.items() if revision is not None}

    def current(self) -> dict[str, Any]:
        """Return the states of all objects."""
        return {name: obj.state_dict() for name, obj in self._registered.items()}

    def adopt(self, raw: Any, step: int | None) -> None:
        """Become the stateful objects of a raw session, and load the states that it restored.

        Objects without a restored state begin again, see ``StatefulMembers.restart``.

        Args:
            raw: the session.
            step: its global step.
        """
        restored = _of_sessions.get(raw)
        _of_sessions.set(raw, self)
        if restored is not self:
            self.loaded_from = None if restored is None else restored.loaded_from
        states: Mapping[str, Any] = {}
        if restored is not None and restored is not self:
            self.restored = states = restored._pending
            self.load(states)
        for name, obj in list(self._registered.items()):
            restart = members_of(StatefulMembers, obj).restart
            if name not in states and restart is not None:
                restart(step)

    def release(self) -> None:
        """End the registration with all sessions, which are closed, and let the objects go."""
        _of_sessions.drop(self)
        self._registered, self._pending, self.boundary = {}, {}, None


class _ByIdentity:
    """The stateful objects of sessions, which need neither be hashable nor support weak references."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Callable[[], Any], StatefulObjects]] = {}

    def get(self, raw: Any) -> StatefulObjects | None:
        entry = self._entries.get(id(raw))
        return None if entry is None or entry[0]() is not raw else entry[1]

    def set(self, raw: Any, objects: StatefulObjects) -> None:
        key, entries = id(raw), self._entries

        def forget(reference: weakref.ref[Any]) -> None:
            if key in entries and entries[key][0] is reference:
                del entries[key]

        try:
            entries[key] = weakref.ref(raw, forget), objects
        except TypeError:  # no weak references: the entry stays until it is dropped
            entries[key] = lambda: raw, objects

    def drop(self, objects: StatefulObjects) -> None:
        for key in [key for key, entry in self._entries.items() if entry[1] is objects]:
            del self._entries[key]


_of_sessions = _ByIdentity()


def stateful_of(raw: Any) -> StatefulObjects:
    """Return the stateful objects of a raw session, which each of its checkpoints includes."""
    return _of_sessions.get(raw) or StatefulObjects()


def load_states(raw: Any, path: str, states: Mapping[str, Any] | None) -> None:
    """Load the states of a checkpoint that was restored into a raw session; None: it keeps its own."""
    objects = _of_sessions.get(raw)
    if objects is None:
        objects = StatefulObjects()
        _of_sessions.set(raw, objects)
    objects.loaded_from = path
    if states is not None:
        objects.load(states)


def has_state(obj: Any) -> bool:
    """Return whether a hook or a data source has a state to save."""
    return callable(members_of(StatefulMembers, obj).state_dict)
