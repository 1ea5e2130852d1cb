"""The passengers of a saver: whose states travel in its checkpoints."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from asyncmon.checkpoint.travellers import Passenger, pack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncmon.checkpoint.dtypes import Array

__all__ = ["Passengers"]

logger = logging.getLogger(__name__)


class Passengers:
    """Names to objects with ``state_dict()`` and ``load_state_dict(state)``."""

    def __init__(self) -> None:
        self._aboard: dict[str, Passenger] = {}
        self._waiting: dict[str, Any] = {}

    def add(self, name: str, passenger: Passenger) -> None:
        """Let an object travel; where a restored checkpoint had a state for it, it gets it now."""
        if not isinstance(passenger, Passenger):
            raise TypeError(
                f"A passenger has state_dict() and load_state_dict(state); {passenger!r} of type"
                f" {type(passenger).__name__} does not."
            )
        if self._aboard.get(name, passenger) is not passenger:
            raise ValueError(
                f"There is another passenger of the name {name!r} already: {self._aboard[name]!r}. Give"
                " each its own name."
            )
        self._aboard[name] = passenger
        if name in self._waiting:
            passenger.load_state_dict(self._waiting.pop(name))

    def remove(self, name: str) -> None:
        """Let an object travel no longer. One that does not is ignored."""
        self._aboard.pop(name, None)

    def pack(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the states of all, as the manifest has them, and the arrays in them.

        What a restored checkpoint had for passengers that have not come yet travels on.
        """
        states: dict[str, Any] = {}
        arrays: dict[str, Array] = {}
        current = {name: passenger.state_dict() for name, passenger in self._aboard.items()}
        for name, state in (self._waiting | current).items():
            states[name], inside = pack(name, state)
            arrays.update(inside)
        return states, arrays

    def hand_out(self, states: Mapping[str, Any]) -> None:
        """Give each passenger its state out of a checkpoint; the others' wait for them to be added."""
        self._waiting = {name: state for name, state in states.items() if name not in self._aboard}
        for name, passenger in self._aboard.items():
            if name in states:
                passenger.load_state_dict(states[name])
            else:
                logger.info("The checkpoint has no state for %r: it starts anew.", name)
