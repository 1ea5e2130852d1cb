"""A consistent state, by name, that costs nothing to take."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Snapshot(Mapping[str, "NDArray[Any]"]):
    """The state of a session between two steps: names to read-only arrays.

    The arrays are shared with the session, not copied. While a snapshot lives, a step that writes one
    of them writes to a fresh array instead. :meth:`release` (or leaving ``with``, or the collection
    of the object) ends the sharing; the arrays must not be read afterwards.

    Args:
        values: names to arrays. Views of them are handed out read-only.
        step: the global step the state belongs to, or None where the program counts none.
        on_release: called once, when the sharing ends. Must not refer to the snapshot.
    """

    __slots__ = ("__weakref__", "_finalizer", "_values", "step")

    def __init__(
        self,
        values: Mapping[str, NDArray[Any]],
        step: int | None = None,
        on_release: Callable[[], None] | None = None,
    ) -> None:
        self.step = step
        self._values = {name: _read_only(array) for name, array in values.items()}
        self._finalizer = weakref.finalize(self, on_release) if on_release is not None else None
        if self._finalizer is not None:
            self._finalizer.atexit = False

    def release(self) -> None:
        """End the sharing. A second call does nothing."""
        self._values = {}
        if self._finalizer is not None:
            self._finalizer()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
