"""What a saver asks of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

__all__ = ["SaveableSession", "describe", "raw_session", "release", "state_spec"]


class SaveableSession(Protocol):
    """Anything whose state can be saved and restored: the part of the session protocol used here.

    A session may also have ``state_spec()``, returning names to objects with ``shape`` (None where it
    is free) and ``dtype``: what it can load, whether it is initialised or not. Without it the names
    and shapes of a snapshot are what can be loaded.
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
    if raw is None:
        raise RuntimeError(f"{session!r} has no raw session: it is closed, or was not opened yet.")
    if not callable(getattr(raw, "snapshot", None)) or not callable(getattr(raw, "load", None)):
        raise TypeError(
            f"'sess' must be a Session; {session!r} is a {type(session).__name__} without snapshot()"
            " and load()."
        )
    return raw


async def state_spec(raw: Any) -> dict[str, Any]:
    """Return what a session can load: names to objects with ``shape`` and ``dtype``."""
    spec = getattr(raw, "state_spec", None)
    if callable(spec):
        return dict(spec())
    snapshot = await raw.snapshot()
    try:
        return {name: _Spec(array.shape, array.dtype) for name, array in snapshot.items()}
    finally:
        release(snapshot)


def describe(raw: Any) -> Any:
    """Return what a session's program says about itself (``describe()``), or else its type."""
    program = getattr(raw, "graph", raw)
    say = getattr(program, "describe", None)
    if callable(say):
        return say()
    return {"type": f"{type(program).__module__}.{type(program).__qualname__}"}


class _Spec:
    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype


def release(snapshot: Any) -> None:
    """End the sharing of a snapshot's arrays with its session."""
    end = getattr(snapshot, "release", None)
    if callable(end):
        end()
