"""Hooks and sources of data that have a state travel in the checkpoints of the session's saver."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from asyncmon.runtime.hook_check import hook_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Passengers", "TravellingSource"]


class TravellingSource:
    """The position of a source: after the last item whose step is done.

    A save may be ordered while the step of an item is under way, or before it has begun. The state that
    is saved has not seen the item then, so its position must not, either.
    """

    def __init__(self, source: Any, steps: Callable[[], int | None]) -> None:
        self.source = source
        self._steps = steps
        self._given_at: int | None = None  # the steps done when the last item was given to the body
        self._goes_back = "unread" in inspect.signature(source.state_dict).parameters

    def handed_over(self) -> None:
        """Note that the body gets an item now."""
        self._given_at = self._steps()

    def state_dict(self) -> Any:
        """Return the position of the source that belongs to the session's state."""
        if self._goes_back and self._given_at is not None and self._steps() == self._given_at:
            return self.source.state_dict(unread=1)
        return self.source.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Set the position of the source."""
        self._given_at = None
        self.source.load_state_dict(state)


class Passengers:
    """What was added to a saver, to be taken off again when the session ends.

    Args:
        saver: has ``add_passenger`` and ``remove_passenger``; with another one no state travels.
    """

    def __init__(self, saver: Any) -> None:
        self._saver = saver if hasattr(saver, "add_passenger") else None
        self._names: dict[str, Any] = {}

    def add(self, hooks: Iterable[Any]) -> None:
        """Add the hooks that have a state, as ``hooks/<name>``, ``hooks/<name>_1`` and so on."""
        if self._saver is None:
            return
        for hook in hooks:
            if callable(getattr(hook, "state_dict", None)):
                name = self._free(f"hooks/{hook_name(hook)}")
                self._saver.add_passenger(name, hook)
                self._names[name] = hook

    def add_source(self, source: Any, steps: Callable[[], int | None]) -> Callable[[], None] | None:
        """Add a source of data that has a state, as ``data``, ``data_1`` and so on, unless it is there.

        Args:
            source: anything; without a state it does not travel.
            steps: gives the number of completed steps.

        Returns:
            What to call before an item of the source is given to the body.
        """
        if self._saver is None or not callable(getattr(source, "state_dict", None)):
            return None
        for known in self._names.values():
            if isinstance(known, TravellingSource) and known.source is source:
                return known.handed_over
        name, travelling = self._free("data"), TravellingSource(source, steps)
        self._saver.add_passenger(name, travelling)
        self._names[name] = travelling
        return travelling.handed_over

    def remove(self, hook: Any = None) -> None:
        """Take off one hook, or all of them."""
        for name, known in list(self._names.items()):
            if self._saver is not None and (hook is None or known is hook):
                del self._names[name]
                self._saver.remove_passenger(name)

    def _free(self, name: str) -> str:
        number, free = 0, name
        while free in self._names:
            number += 1
            free = f"{name}_{number}"
        return free
