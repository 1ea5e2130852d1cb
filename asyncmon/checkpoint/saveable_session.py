"""The contract between a saver and the sessions, programs and snapshots that it saves.

Optional members are declared here as attributes; the value of each is that of a missing member. The
runtime's contract, :mod:`asyncmon.runtime.protocols`, extends these classes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from asyncmon.system.members import members_of
from asyncmon.system.snapshot import Holder

RESERVED = "__"
"""The prefix of internal state (random generators), which a restore may skip."""


class SaveableSession(Protocol):
    """Anything whose state can be saved and restored: the required members of a session."""

    def snapshot(self) -> Awaitable[Mapping[str, Any]]:
        """Order a consistent state at the call; the awaitable gives it, by name."""

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set state by name."""


class SaveableSessionMembers:
    """The optional members of a session that a saver uses."""

    graph: Any = None
    """The program of the session. A session without one is its own program."""
    global_step: int | None = None
    """The number of completed steps. Read when a save is ordered, and never waits. None: the states of
    hooks and data are not matched with the step of the snapshot."""
    shares_state: bool = False
    """Whether other sessions change the same state, so that its global step is also theirs. A save then
    does not order another snapshot when the step has changed."""
    state_spec: Callable[[], Mapping[str, Any]] | None = None
    """Return names to objects with ``shape`` (None, or with None for a free dimension) and ``dtype``:
    all variables that the session can load, initialised or not. Called by each save and restore; must
    not block. A restore then skips other entries, and reports missing ones. None: all entries of the
    checkpoint are loaded, and those of a snapshot must be among them."""
    owns: Callable[[str], bool] | None = None
    """Return whether an entry of a checkpoint belongs to the state, of which parts may be made later,
    such as that of an optimizer. Called by each restore without a ``state_spec``; others are skipped.
    None: all entries do."""
    snapshot_to_write: Callable[[], Awaitable[Mapping[str, Any]]] | None = None
    """Order a snapshot for a save, like ``snapshot()``, but large arrays may stay in the process that
    runs the session. The ``holder`` of the snapshot writes them. None: ``snapshot()`` is used."""


class WrapperMembers:
    """The optional members of an object that wraps a session, such as a monitored session."""

    raw_session: Callable[[], Any] | None = None
    """Return the raw session, or None while there is none. Called for each argument that may be either.
    None: the object itself is the raw session."""


class DescribedProgramMembers:
    """The optional members of a program that a saver uses."""

    describe: Callable[[], Any] | None = None
    """Return a description of the program for the manifest, as JSON values. Called when a
    save is ordered; must not block. None: the manifest names its type."""


class SnapshotMembers:
    """The optional members of a snapshot. A plain mapping has none of them."""

    step: int | None = None
    """The global step of the state. None: that of the session when the save was ordered."""
    holder: Holder | None = None
    """The process that holds arrays of the snapshot, and writes them. None: all arrays are here."""
    release: Callable[[], None] | None = None
    """End the sharing of arrays with the session. Called once they are written. None: nothing is
    shared."""


class FetchMembers:
    """The members of a tensor, an operation or a variable. Fetches of other programs have none."""

    save_name: str | None = None
    """The name of a variable in snapshots and checkpoints; the parts of one variable have one name.
    None: the name of its operation."""

    graph: Any = None
    """The graph that it belongs to."""
    op: Any = None
    """The operation of a tensor or a variable."""
    name: str | None = None
    """Its name; that of a tensor ends with the number of the output."""


class SaverMembers:
    """The optional members of a saver. It must have ``async restore(session, path)``."""

    build: Callable[[], None] | None = None
    """Choose the variables, once the graph is complete. Called when a scaffold is finalized. None: the
    saver has chosen them already."""
    restore_latest: Callable[..., Awaitable[str | None]] | None = None
    """``async restore_latest(session, directory)``: restore the newest valid checkpoint of a directory,
    and return its prefix or None. Called at the start and after each failure; with ``live_step`` if
    variables on servers are kept unless the checkpoint has a later step. None: ``restore`` gets the
    newest one, unverified."""
    continue_from: Callable[[str], Awaitable[None]] | None = None
    """Take over the list of checkpoints of a directory, so that old ones are deleted in time. Called
    after a restore. None: ``recover_last_checkpoints`` is called."""
    drain: Callable[[], Awaitable[None]] | None = None
    """Wait for the saves in flight. Called before a restore, as one of them may be the checkpoint to
    restore. None: no save outlives its session."""


def raw_session(session: Any) -> Any:
    """Return the raw session of a monitored session, or the session itself.

    Raises:
        TypeError: the argument is no session.
        RuntimeError: the monitored session is closed.
    """
    unwrap = members_of(WrapperMembers, session).raw_session
    raw = unwrap() if callable(unwrap) else session
    if raw is None and session is not None:
        raise RuntimeError(f"{session!r} has no raw session: it is closed, or was not opened yet.")
    if not all(callable(getattr(raw, required, None)) for required in ("snapshot", "load")):
        raise TypeError(
            f"'sess' must be a Session; {session!r} is a {type(session).__name__} without snapshot()"
            " and load()."
        )
    return raw


def order_snapshot(raw: Any) -> Awaitable[Any]:
    """Order a snapshot for a save."""
    order = members_of(SaveableSessionMembers, raw).snapshot_to_write or raw.snapshot
    ordered: Awaitable[Any] = order()
    return ordered


class StateSpec(NamedTuple):
    """The variables that a session can load: names to objects with ``shape`` and ``dtype``.

    ``complete`` is false if only initialized variables are known; further entries of a checkpoint that
    the session ``owns`` are then loaded, too.
    """

    known: Mapping[str, Any]
    complete: bool
    owns: Callable[[str], bool] = lambda _: True

    def chosen(self, entries: Iterable[str]) -> set[str]:
        """Return the known variables, and the loaded ones of the entries, too."""
        if self.complete:
            return set(self.known)
        return {
            *self.known,
            *(one for one in entries if not one.startswith(RESERVED) and self.owns(one)),
        }


class ArraySpec(NamedTuple):
    """Shape and dtype of a variable; None: any."""

    shape: tuple[int, ...] | None = None
    dtype: Any = None


async def state_spec(raw: Any) -> StateSpec:
    """Return the variables that a session can load."""
    spec = members_of(SaveableSessionMembers, raw).state_spec
    if spec is not None:
        return StateSpec(dict(spec()), complete=True)
    snapshot = await raw.snapshot()
    try:
        known = {name: ArraySpec(array.shape, array.dtype) for name, array in snapshot.items()}
    finally:
        release(snapshot)
    owns = members_of(SaveableSessionMembers, raw).owns
    return StateSpec(known, complete=False, owns=owns or (lambda _: True))


def known_names(raw: Any) -> set[str]:
    """Return the names in a session's ``state_spec()``, if it has one."""
    spec = members_of(SaveableSessionMembers, raw).state_spec
    return set() if spec is None else {name for name in spec() if not name.startswith(RESERVED)}


def describe(raw: Any) -> Any:
    """Return ``describe()`` of a session's program, or its type."""
    graph = members_of(SaveableSessionMembers, raw).graph
    program = raw if graph is None else graph
    described = members_of(DescribedProgramMembers, program).describe
    if callable(described):
        return described()
    return {"type": f"{type(program).__module__}.{type(program).__qualname__}"}


def release(snapshot: Any) -> None:
    """Release a snapshot, which ends the sharing of its arrays with the session."""
    end = members_of(SnapshotMembers, snapshot).release
    if end is not None:
        end()
