"""The seam: what the runtime requires of a program and of its sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Hashable, Mapping
from typing import Any, Protocol, runtime_checkable

from asyncmon.system.cancellation import without_unrequested
from asyncmon.system.snapshot import Snapshot

logger = logging.getLogger(__name__)

CLOSE_SECS = 60.0
"""How long a raw session may take to close before it is abandoned, named in the log."""

Run = tuple[Any, Any, Any, Any]
"""The arguments of :meth:`Session.run`: fetches, feed_dict, options, run_metadata."""


@runtime_checkable
class Session(Protocol):
    """One running instance of a program, holding its state.

    Structural: any object with these members is one, whichever program it comes from. Session
    creators may return any; hooks receive that very object. ``peek`` and ``global_step`` may be
    missing on a hand-made one: then it cannot be peeked at, and its steps are not counted.

    A session may have more, which is used where it is there: ``check_fetches(fetches)``, which refuses
    unknown fetches; ``pending_operations()``, which a run waits for; ``async queues()``, which returns
    the name, the size and the capacity or None of each; ``peers``, those of a cluster that stop
    together: see :class:`asyncmon.distributed.peers.Peers`; ``shares_state``, whether other sessions
    change its state too, so that its global step is theirs.
    """

    @property
    def graph(self) -> Any:
        """The program this session runs."""

    @property
    def global_step(self) -> int | None:
        """The committed global step, or None where the program counts none. Never waits."""

    async def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run one step, a transaction: compute the fetches and return them in the same structure."""

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot now; the awaitable gives it, after at most one step's apply phase."""

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set state by name. Every problem is reported, all at once, before anything changes."""

    async def peek(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Compute fetches that change no state on one consistent version, delaying no step."""

    async def close(self) -> None:
        """Release all resources. Idempotent; closes even when it is cancelled."""


class Program(Protocol):
    """What can be run. A session is one running instance of it.

    The methods named like operations of a scaffold give fetches of this program for that role, or
    None where there is nothing to do. A program may have more, which is used where it is there:
    ``saver()``, the default one; ``global_step()``, the fetch that counts steps; ``as_default()``, a
    context manager for building; ``start_producers(session, coord)``, called for each created session
    before the hooks, which returns the tasks; ``describe()``, which goes into checkpoints;
    ``is_chief``, whether this process may initialise, restore and write; ``session_hooks()``, what each
    session needs; ``unfinalize()``, called when a monitored session has ended that found the program
    not finalized.
    """

    @property
    def finalized(self) -> bool:
        """Whether nothing can be added any more."""

    def finalize(self) -> None:
        """Refuse additions from now on. A second call does nothing."""

    def create_session(self, target: str = "", config: Any = None) -> Session:
        """Return a raw session, not initialised."""

    def init_op(self) -> Any:
        """Return the fetch that initialises the state."""

    def local_init_op(self) -> Any:
        """Return the fetch that initialises state that is not saved."""

    def ready_op(self) -> Any:
        """Return the fetch that gives the names of state that is not initialised."""

    def ready_for_local_init_op(self) -> Any:
        """Return the fetch that gives the names of uninitialised state that ``local_init_op`` needs."""

    def summary_op(self) -> Any:
        """Return the fetch that gives all summaries, serialised."""

    def has_global_step(self) -> bool:
        """Return whether sessions of this program count global steps."""

    def canonical_feed(self, key: Any) -> Hashable:
        """Return the same value for each way of naming the same thing to feed."""


def step_of(raw: Any) -> int | None:
    """Return the global step of a raw session, or None where it does not count or is lost."""
    try:
        step: int | None = getattr(raw, "global_step", None)
    except Exception:
        logger.debug("The step of a lost session is unknown.", exc_info=True)
        return None
    return step


async def close_raw(raw: Any) -> None:
    """Close a raw session, in bounded time; an error is logged."""
    try:
        async with asyncio.timeout(CLOSE_SECS):
            await without_unrequested("close() of the raw session", raw.close)
    except Exception:
        logger.exception("The raw session could not be closed in order; it is abandoned.")
