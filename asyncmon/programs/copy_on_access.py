"""The state of a step: a dict whose entries are copied at their first access."""

from __future__ import annotations

import sys
from collections.abc import ItemsView, Iterator, ValuesView
from typing import Any

import numpy as np

from asyncmon.programs.state_tree import Arrays, Tree, with_fresh_arrays

_MUTABLE = (np.ndarray, dict, list)


class CopyOnAccess(dict[str, Any]):
    """The state for one step, which may change it without changing the previous state.

    An entry is deep-copied when the step first reads it; other entries cost nothing. Apart from that it
    is a ``dict`` of arrays, numbers and plain dicts and lists of these.

    Args:
        state: the previous state.
    """

    __slots__ = ("_state", "copies")

    def __init__(self, state: dict[str, Tree]) -> None:
        super().__init__(state)
        self._state = state
        self.copies: Arrays = {}
        """The arrays handed to the step, by ``id``."""

    def __getitem__(self, key: str) -> Tree:
        value = super().__getitem__(key)
        if value.__class__ in _MUTABLE and value is self._state.get(key):
            value = with_fresh_arrays(value, self.copies)
            super().__setitem__(key, value)
        return value

    def current(self) -> dict[str, Tree]:
        """Return names and values; entries that were not read have their previous values."""
        return dict(super().items())

    def unshared(self) -> Arrays:
        """Return the arrays handed to the step to which only this state refers.

        Other arrays could still be written by code that keeps them or a view of them.
        """
        counts = self._references()
        return {i: array for i, array in self.copies.items() if counts[i] <= _UNSHARED}

    def _references(self) -> dict[int, int]:
        return {i: sys.getrefcount(array) for i, array in self.copies.items()}

    # All other ways of a dict to read values, through __getitem__.

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - that would be this

    def pop(self, key: str, *default: Any) -> Any:
        if key not in self:
            return super().pop(key, *default)
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        for key in reversed(self):
            return key, self.pop(key)
        return super().popitem()

    def setdefault(self, key: str, default: Any = None) -> Any:
        super().setdefault(key, default)
        return self[key]

    def values(self) -> Any:
        return ValuesView(self)

    def items(self) -> Any:
        return ItemsView(self)

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __iter__(self) -> Iterator[str]:  # makes dict(state) and {**state} call __getitem__
        return super().__iter__()

    def __or__(self, other: Any) -> Any:
        return dict(self).__or__(other)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _references_of_unshared() -> int:
    state = CopyOnAccess({"array": np.zeros(0)})
    state["array"]
    return max(state._references().values())


_UNSHARED = _references_of_unshared()
"""The count of references to an array that is in one place of the state only, on this interpreter."""
