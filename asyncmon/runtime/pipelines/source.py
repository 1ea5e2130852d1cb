"""The sources of pipelines: with a position, or readable only once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asyncmon.checkpoint.stateful import has_state
from asyncmon.data import from_iterable
from asyncmon.data.loaders import is_loader
from asyncmon.data.stage import Mark
from asyncmon.runtime.channel import Channel


class ReadOnce:
    """A source without a position: an iterator, a generator or a channel. Its elements are kept.

    Args:
        items: an iterator or an async iterator. It is read from its present position only.
    """

    def __init__(self, items: Any) -> None:
        self.items = items

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._each() if isinstance(self.items, Iterator) else aiter(self.items)

    async def _each(self) -> AsyncIterator[Any]:
        for element in self.items:
            yield element

    def __repr__(self) -> str:
        return f"{type(self.items).__qualname__}, read once"

    def mark(self) -> Mark:
        """Return the position, which is always the present one."""
        return self.state_dict

    def state_dict(self) -> dict[str, Any]:
        """Return the position: none."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Ignore a position."""


def source_of(source: Any) -> Any:
    """Return the object to read for an argument of ``produce``: it has a position, or is read once.

    Raises:
        TypeError: it cannot be iterated.
    """
    if isinstance(source, Channel):
        return ReadOnce(source)
    if has_state(source) and not is_loader(source):
        return source
    if isinstance(source, Iterator | AsyncIterator):
        return ReadOnce(source)
    return from_iterable(source)
