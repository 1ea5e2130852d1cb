"""The interface of a session that a saver needs."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple, Protocol

RESERVED = "__"
"""State that begins with this is the engine's own (random generators): restored where it was saved."""


class SaveableSession(Protocol):
    """Anything whose state can be saved and restored: the part of the session protocol used here.

    A session may also have ``state_spec()``, returning names to objects with ``shape`` (None where it
    is free, or None in it where a dimension is) and ``dtype``: all variables that it can load, whether
    they have values or not. Then a restore skips other entries, and names missing ones in an error.
    Without it, all entries of the checkpoint are loaded, and those of a snapshot must be among them.

    One that is run by another process may have ``snapshot_to_write()``, like ``snapshot()``: large
    arrays stay where they are, and the ``holder`` of the snapshot writes them.
    """

    def snapshot(self) -> Awaitable[Mapping[str, Any]]:
        """Order a consistent state at the call; the awaitable gives it, by name."""

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set state by name."""


def raw_session(session: Any) -> Any:
    """Return the session that holds the state: a monitored session's raw one, or the session itself.

    Raises:
        TypeError: it is neither.
        RuntimeError: the monitored session is closed.
    """
    unwrap = getattr(session, "raw_session", None)
    raw = unwrap() if callable(unwrap) else session
    if raw is None and session is not None:
        raise RuntimeError(f"{session!r} has no raw session: it is closed, or was not opened yet.")
    if not callable(getattr(raw, "snapshot", None)) or not callable(getattr(raw, "load", None)):
        raise TypeError(
            f"'sess' must be a Session; {session!r} is a {type(session).__name__} without snapshot()"
            " and load()."
        )
    return raw


def order_snapshot(raw: Any) -> Awaitable[Any]:
    """Order a snapshot that is to be written."""
    ordered: Awaitable[Any] = getattr(raw, "snapshot_to_write", raw.snapshot)()
    return ordered


class StateSpec(NamedTuple):
    """The variables that a session can load: names to objects with ``shape`` and ``dtype``.

    ``complete`` is false where only variables that have a value already are known.
    """

    known: Mapping[str, Any]
    complete: bool


class ArraySpec(NamedTuple):
    """Shape and dtype of a variable; None: any."""

    shape: tuple[int, ...] | None = None
    dtype: Any = None


async def state_spec(raw: Any) -> StateSpec:
    """Return the variables that a session can load."""
    spec = getattr(raw, "state_spec", None)
    if callable(spec):
        return StateSpec(dict(spec()), complete=True)
    snapshot = await raw.snapshot()
    try:
        known = {name: ArraySpec(array.shape, array.dtype) for name, array in snapshot.items()}
    finally:
        release(snapshot)
    return StateSpec(known, complete=False)


def known_names(raw: Any) -> set[str]:
    """Return the names in a session's ``state_spec()``, if it has one."""
    spec = getattr(raw, "state_spec", None)
    return {name for name in spec() if not name.startswith(RESERVED)} if callable(spec) else set()


def describe(raw: Any) -> Any:
    """Return ``describe()`` of a session's program, or else its type."""
    program = getattr(raw, "graph", raw)
    described = getattr(program, "describe", None)
    if callable(described):
        return described()
    return {"type": f"{type(program).__module__}.{type(program).__qualname__}"}


def release(snapshot: Any) -> None:
    """End the sharing of a snapshot's arrays with its session."""
    end = getattr(snapshot, "release", None)
    if callable(end):
        end()
