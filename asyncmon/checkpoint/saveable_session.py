"""What a saver asks of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

RESERVED = "__"
"""State that begins with this is the engine's own (random generators): restored where it was saved."""


class SaveableSession(Protocol):
    """Anything whose state can be saved and restored: the part of the session protocol used here.

    A session may also have ``state_spec()``, returning names to objects with ``shape`` (None where it
    is free, or None in it where a dimension is) and ``dtype``: all that it can load, whether it has a
    value or not. Then a restore leaves out what the session does not have, and names what the
    checkpoint lacks. Without it, what a snapshot has must be in the checkpoint, and everything in the
    checkpoint is loaded.
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


@dataclass(frozen=True, slots=True)
class StateSpec:
    """What a session can load: names to objects with ``shape`` and ``dtype``."""

    known: Mapping[str, Any]
    complete: bool
    """Whether there is nothing else: false where only what has a value already is known."""


@dataclass(frozen=True, slots=True)
class Anything:
    """The specification of a variable of which the session alone knows shape and dtype."""

    shape: None = None
    dtype: None = None


async def state_spec(raw: Any) -> StateSpec:
    """Return what a session can load."""
    spec = getattr(raw, "state_spec", None)
    if callable(spec):
        return StateSpec(dict(spec()), complete=True)
    snapshot = await raw.snapshot()
    try:
        known = {name: _ArraySpec(array.shape, array.dtype) for name, array in snapshot.items()}
    finally:
        release(snapshot)
    return StateSpec(known, complete=False)


def known_names(raw: Any) -> set[str]:
    """Return the names of all variables of a session that says so, whether they have values or not."""
    spec = getattr(raw, "state_spec", None)
    return {name for name in spec() if not name.startswith(RESERVED)} if callable(spec) else set()


@dataclass(frozen=True, slots=True)
class _ArraySpec:
    shape: tuple[int, ...]
    dtype: Any


def describe(raw: Any) -> Any:
    """Return what a session's program says about itself (``describe()``), or else its type."""
    program = getattr(raw, "graph", raw)
    say = getattr(program, "describe", None)
    if callable(say):
        return say()
    return {"type": f"{type(program).__module__}.{type(program).__qualname__}"}


def release(snapshot: Any) -> None:
    """End the sharing of a snapshot's arrays with its session."""
    end = getattr(snapshot, "release", None)
    if callable(end):
        end()
