"""Save and load the states of hooks, data sources and generators with the variables.

A stateful object has ``state_dict()`` and ``load_state_dict(state)``. See
:mod:`asyncmon.checkpoint.packing` for what a state consists of.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from asyncmon.system.files import in_thread
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)

T = TypeVar("T")


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
    later_state: Callable[[], Callable[[], Mapping[str, Any]]] | None = None
    """Called in place of ``state_dict`` when a save is ordered: return a function that returns that
    state. It is called at once in a thread, where the arrays are copied, too. Until then the object
    keeps other code from changing them, see :meth:`StatefulObjects.wait_copied`."""
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
        self.copying: set[asyncio.Future[Any]] = set()
        """The copies that threads make of states: :meth:`wait_copied` waits for them."""

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
            state = self._pending[name]
            obj.load_state_dict(copy.deepcopy(state) if self.copying else state)
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

    def states(self, *, with_pending: bool) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
        """Return the states of all objects by name, and functions that return further ones in a thread.

        These are states of ``StatefulMembers.later_state``, and pending ones. Call them by
        :meth:`copy_in_thread`.
        """
        now: dict[str, Any] = {}
        later: dict[str, Callable[[], Any]] = {}
        for name, state in self._pending.items() if with_pending else ():
            later[name] = partial(_same, state)
        for name, obj in self._registered.items():
            make = members_of(StatefulMembers, obj).later_state
            if make is None:
                now[name] = obj.state_dict()
            else:
                later[name] = make()
        return now, later

    def unnumbered_states(self) -> dict[str, Any]:
        """Return the states of the objects without a revision."""
        known = self.revisions()
        return {name: obj.state_dict() for name, obj in self._registered.items() if name not in known}

    def copy_in_thread(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function that copies states in a thread. :meth:`wait_copied` waits for it."""
        task = asyncio.ensure_future(in_thread(fn))
        self.copying.add(task)
        task.add_done_callback(self._copied)
        return task

    def _copied(self, task: asyncio.Future[Any]) -> None:
        self.copying.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, also if its save is discarded

    async def wait_copied(self) -> None:
        """Wait until no thread copies states. An error is one of the save."""
        while self.copying:
            await asyncio.wait(self.copying)

    def revisions(self) -> dict[str, int]:
        """Return the revisions of the objects that have one. See ``StatefulMembers.revision``."""
        found = {n: members_of(StatefulMembers, obj).revision for n, obj in self._registered.items()}
        return {name: revision for name, revision in found.items() if revision is not None}

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


def _same(state: Any) -> Any:
    return state


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
