"""One run for the caller and all hooks: how feeds and options are put together."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

__all__ = ["merge_feeds", "merge_options"]


def merge_feeds(
    own: Mapping[Any, Any] | None,
    others: Sequence[Mapping[Any, Any]],
    canonical: Callable[[Any], Hashable],
) -> dict[Any, Any]:
    """Return the feeds of the caller and of all hooks; nobody's mapping is changed.

    Args:
        own: the caller's.
        others: the hooks', in order.
        canonical: gives the same value for each way of naming the same thing.

    Raises:
        RuntimeError: something is fed twice.
    """
    merged = dict(own or {})
    by_caller = {canonical(key) for key in merged}
    by_hooks: set[Hashable] = set()
    for feeds in others:
        named = {canonical(key): key for key in feeds}
        if twice := [key for name, key in named.items() if name in by_hooks]:
            raise RuntimeError(f"Same tensor is fed by two hooks. Conflict(s): {twice}")
        if twice := [key for name, key in named.items() if name in by_caller]:
            raise RuntimeError(f"Same tensor is fed by a SessionRunHook and user. Conflict(s): {twice}")
        by_hooks.update(named)
        merged.update(feeds)
    return merged


def merge_options(own: Any, others: Sequence[Any]) -> Any:
    """Return the options of one run: the caller's, with those of the hooks worked in.

    Of numbers the maximum is taken, switches are or-ed, lists appended; what else hooks set is
    ignored. A hook can so only lengthen a timeout, but its finite one replaces the caller's none.
    Nobody's object is changed.
    """
    merged = copy.deepcopy(own) if own is not None else type(others[0])()
    for other in others:
        for field in fields(merged):
            mine, theirs = getattr(merged, field.name), getattr(other, field.name)
            if isinstance(mine, bool):
                setattr(merged, field.name, mine or theirs)
            elif isinstance(mine, int | float):
                setattr(merged, field.name, max(mine, theirs))
            elif isinstance(mine, list):
                mine.extend(theirs)
    return merged
