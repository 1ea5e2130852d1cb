"""What a session holds: the arrays of its variables, copy-on-write where somebody else looks at them.

Only the committing run writes, one at a time, on the loop's thread or in a worker. Whoever wants to see
one version pins it: a pin shares the arrays, and while it lives a write to one of them goes to a copy.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import FailedPreconditionError
from asyncmon.graph.execution.arena import Arena
from asyncmon.graph.execution.spares import Spares

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.core.node import Operation

__all__ = ["RANDOM_STATE", "Pin", "StateStore", "uninitialized"]

RANDOM_STATE = "__random_state__"
"""The generator's state in snapshots, a reserved name: two uint64, the seed and the runs drawn in."""


def uninitialized(name: str) -> FailedPreconditionError:
    """Return the error for reading a variable that has no value."""
    return FailedPreconditionError(
        f"Attempting to use uninitialized value {name}. Run its initializer, or "
        "global_variables_initializer(), first."
    )


class Pin:
    """One version of the state, held still."""

    __slots__ = ("__weakref__", "values")

    def __init__(self, values: list[Any]) -> None:
        self.values = values


class StateStore:
    """The values of a session's variables, by slot. None: not initialised."""

    def __init__(self, seed: int) -> None:
        self.values: list[Any] = [np.array([seed, 0], np.uint64)]
        self.names: list[str] = [RANDOM_STATE]
        self._slots: dict[str, int] = {RANDOM_STATE: 0}
        self._pins: set[Pin] = set()
        self._mutex = threading.Lock()
        self._applying = False
        self._waiting: list[Callable[[Pin], None]] = []
        self._arenas = [Arena()]
        self.spares = Spares()
        self.in_place: set[int] = set()
        """Slots that commits write in place, or to a copy where a pin shares the array."""
        self.homes: dict[tuple[int, ...], tuple[list[Any], list[Any]]] = {}
        """Where the values of packs lie, by their slots: common arrays, and the part of each slot."""
        self.broken: Exception | None = None

    def slot(self, name: str) -> int:
        """Return the slot of a variable, a new one at the first call."""
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = len(self.values)
            self.names.append(name)
            self.values.append(None)
        return slot

    def slot_of(self, op: Operation) -> int:
        """Return the slot of the variable that an op reads or is."""
        return self.slot(op.attrs["variable"])

    def pin_nowait(self) -> Pin | None:
        """Return the present version, or None while a commit is being applied in a worker thread."""
        with self._mutex:
            return None if self._applying else self._pin()

    def pin_soon(self, receive: Callable[[Pin], None]) -> None:
        """Hand over a pin: at once, or right after the commit that is being applied.

        ``receive`` is then called in the thread that applies it, and must not fail.
        """
        with self._mutex:
            if self._applying:
                self._waiting.append(receive)
                return
            pin = self._pin()
        receive(pin)

    def unpin(self, pin: Pin) -> None:
        """Forget a pin; from any thread, twice is fine."""
        self._pins.discard(pin)
        versions = zip(pin.values, self.values, strict=False)
        self.spares.keep(old for old, now in versions if old is not now)

    def expect_snapshot(self, secs: float) -> None:
        """Make memory ready for the copies that a snapshot in so many seconds will cost."""
        values = self.values
        needed = () if self._pins else [x for i in self.in_place if (x := values[i]) is not None]
        self.spares.expect(secs, needed)

    def take_arena(self) -> Arena | None:
        """Return memory for a run's values, unless another run has it; give it back when that ends."""
        try:
            return self._arenas.pop()
        except IndexError:
            return None

    def give_arena(self, arena: Arena | None) -> None:
        """Take memory back."""
        if arena is not None:
            self._arenas.append(arena)

    def begin_apply(self) -> None:
        """Keep pins from being taken until :meth:`end_apply`."""
        with self._mutex:
            self._applying = True

    def end_apply(self) -> None:
        """Serve those who waited for a pin."""
        with self._mutex:
            self._applying = False
            waiting, self._waiting = self._waiting, []
            pins = [self._pin() for _ in waiting]
        for receive, pin in zip(waiting, pins, strict=True):
            receive(pin)

    def is_pinned(self, slot: int, array: Any) -> bool:
        """Return true when a pin shares this array of this slot."""
        return any(slot < len(pin.values) and pin.values[slot] is array for pin in tuple(self._pins))

    @property
    def pinned(self) -> bool:
        """Whether anybody holds a version still."""
        return bool(self._pins)

    def _pin(self) -> Pin:
        pin = Pin(self.values.copy())
        self._pins.add(pin)
        return pin
