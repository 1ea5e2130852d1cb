"""Hooks and sources of data that have a state travel in the checkpoints of the session's saver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.runtime.hook_check import hook_name
from asyncmon.runtime.travelling import TravellingSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Passengers"]


class Passengers:
    """What was added to a saver, to be taken off again when the session ends.

    Args:
        saver: has ``add_stateful`` and ``remove_stateful``; with another one no state travels.
    """

    def __init__(self, saver: Any) -> None:
        self._saver = saver if hasattr(saver, "add_stateful") else None
        self._names: dict[str, Any] = {}

    def add(self, hooks: Iterable[Any]) -> None:
        """Add the hooks that have a state, as ``hooks/<name>``, ``hooks/<name>_1`` and so on."""
        if self._saver is None:
            return
        for hook in hooks:
            if callable(getattr(hook, "state_dict", None)):
                name = self._free(f"hooks/{hook_name(hook)}")
                self._saver.add_stateful(name, hook)
                self._names[name] = hook

    def add_source(
        self, source: Any, name: str | None, steps: Callable[[], int | None]
    ) -> TravellingSource | None:
        """Add a source of data that has a state, unless it is there. One without does not travel.

        Args:
            source: the source.
            name: what its state is called in checkpoints. Default: ``data``, ``data_1`` and so on.
            steps: gives the number of completed steps.

        Raises:
            ValueError: another source has the name.
        """
        if self._saver is None or not callable(getattr(source, "state_dict", None)):
            return None
        for known in self._names.values():
            if isinstance(known, TravellingSource) and known.source is source:
                return known
        travelling = TravellingSource(source, steps)
        name = name or self._free("data")
        self._saver.add_stateful(name, travelling)
        self._names[name] = travelling
        return travelling

    def remove(self, hook: Any = None) -> None:
        """Take off one hook, or all of them."""
        for name, known in list(self._names.items()):
            if self._saver is not None and (hook is None or known is hook):
                del self._names[name]
                self._saver.remove_stateful(name)

    def _free(self, name: str) -> str:
        number, free = 0, name
        while free in self._names:
            number += 1
            free = f"{name}_{number}"
        return free
