"""Names in a checkpoint to names in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["entry_for", "name_for"]


def entry_for(name: str, rename: Collection[tuple[str, str]]) -> str | None:
    """Return the name in the checkpoint of what a session calls ``name``; None where nothing maps it.

    Args:
        name: the name in the session.
        rename: pairs of a name in the checkpoint and one in the session. Those that end with ``/`` are
            scopes, and ``"/"`` alone is the outermost; a full name goes before a scope, and a longer
            scope before a shorter one.
    """
    for entry, target in rename:
        if target == name and not target.endswith("/"):
            return entry
    scopes = [(entry, target) for entry, target in rename if target.endswith("/")]
    for entry, target in sorted(scopes, key=lambda pair: -len(pair[1])):
        scope = "" if target == "/" else target
        if name.startswith(scope):
            return ("" if entry == "/" else entry) + name[len(scope) :]
    return None


def name_for(entry: str, rename: Collection[tuple[str, str]]) -> str:
    """Return what a session calls an entry of a checkpoint: the other direction."""
    return entry_for(entry, [(target, source) for source, target in rename]) or entry
