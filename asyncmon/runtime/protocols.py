"""The extension contract: required and optional members of programs, sessions and creators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from asyncmon.checkpoint.saveable_session import DescribedProgramMembers, SaveableSessionMembers
from asyncmon.runtime.stop.stop import Stop
from asyncmon.system.cancellation import without_unrequested
from asyncmon.system.snapshot import Snapshot

logger = logging.getLogger(__name__)

CLOSE_SECS = 60.0
"""The timeout of a raw session's close, after which it is abandoned with an error in the log."""

Run = tuple[Any, Any, Any, Any]
"""The arguments of :meth:`Session.run`: fetches, feed_dict, options, run_metadata."""


@runtime_checkable
class Session(Protocol):
    """One running instance of a program, holding its state.

    Structural: any object with these members is one, whichever program it comes from. Session
    creators may return any; hooks receive that very object. ``peek`` and ``global_step`` may be
    missing; :class:`SessionMembers` has these and the other optional members.
    """

    @property
    def graph(self) -> Any:
        """The program this session runs."""

    @property
    def global_step(self) -> int | None:
        """The committed global step, or None if the program counts none. Never waits."""

    async def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run one step, a transaction: compute the fetches and return them in the same structure."""

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot of the present state. Awaiting it takes at most one step's apply phase."""

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set state by name. All problems are reported in one error, before any change."""

    async def peek(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Compute fetches that change no state, on one consistent version, without delaying a step."""

    async def close(self) -> None:
        """Release all resources. Idempotent; closes even if it is cancelled."""


class Program(Protocol):
    """A computation with a state. A session is one running instance of it.

    The methods named like operations of a scaffold give fetches of this program for that role, or
    None where there is nothing to do. ``canonical_feed`` may be missing; :class:`ProgramMembers` has
    this and the other optional members.
    """

    @property
    def finalized(self) -> bool:
        """Whether additions are refused."""

    def finalize(self) -> None:
        """Refuse additions from now on. A second call does nothing."""

    def create_session(self, target: str = "", config: Any = None) -> Session:
        """Return a raw session, not initialised."""

    def init_op(self) -> Any:
        """Return the fetch that initialises the state."""

    def local_init_op(self) -> Any:
        """Return the fetch that initialises state that is not saved."""

    def ready_op(self) -> Any:
        """Return the fetch of the names of uninitialised state."""

    def ready_for_local_init_op(self) -> Any:
        """Return the fetch of the names of uninitialised state that ``local_init_op`` needs."""

    def summary_op(self) -> Any:
        """Return the fetch of all summaries, serialised."""

    def has_global_step(self) -> bool:
        """Return whether sessions of this program count global steps."""

    def canonical_feed(self, key: Any) -> Hashable:
        """Return the same value for all keys that feed the same tensor."""


# -- optional members: the value of each is that of a missing one


class ClusterRun(Protocol):
    """The run of a cluster as one of its sessions sees it: its members, and its end.

    A server has the record of it. Each method raises ``AbortedError`` or ``UnavailableError`` if the
    record is lost or cannot be reached.
    """

    may_leave: bool
    """Whether the session can leave the run by a signal without stopping it. Set by :meth:`join`."""

    def continue_from(self, before: Any) -> None:
        """Take part in the run of a session that this one replaces. Called with its ``cluster_run``."""

    async def begin(self, directory: str) -> bool:
        """Begin a run, or take part in the present one. Called for each session of the chief.

        Args:
            directory: the checkpoint directory, "" for none.

        Returns:
            Whether the variables belong to a run with this directory that has not ended.
        """

    async def restore(self) -> None:
        """Note that the chief begins to set the variables."""

    async def ready(self) -> bool:
        """Return whether the chief is not about to set the variables. Called before a worker begins."""

    async def restored(self, before: int | None, after: int | None) -> None:
        """Record that the chief has set the variables, from one step to another. None: unknown."""

    async def join(self, name: str, is_chief: bool) -> Stop | None:
        """Add a session, and return the stop of its run, or None. Called for each created one."""

    async def watch(self, name: str, wait: float, others: int | None = None) -> Mapping[str, Any]:
        """Wait up to ``wait`` seconds for a stop or a restore, or until not ``others`` are left.

        Returns:
            ``stop``: a :class:`Stop` or None; ``others``: the names of the other sessions;
            ``rollback``: the steps before and after a restore since the last call, or None; ``saved``:
            the step of the chief's last checkpoint, and the seconds since its commit, or None.
        """

    async def saved(self, step: int) -> None:
        """Record that the chief has committed a checkpoint of a step."""

    async def stop(self, stop: Stop, step: int | None = None) -> None:
        """Stop the run; at ``step``, if the variables were set back to an earlier one."""

    async def leave(self, name: str) -> None:
        """Note that a session ends. Others do not wait for it any more."""


class SessionMembers(SaveableSessionMembers):
    """The optional members of a raw session, including the ones for savers."""

    peek: Callable[..., Awaitable[Any]] | None = None
    """``async peek(fetches, feed_dict=None)``: see :meth:`Session.peek`. None: a supervisor's services
    run their fetches as a step, and :meth:`MonitoredSession.peek` is not available."""
    run_nowait: Callable[..., tuple[Any] | None] | None = None
    """``run_nowait(fetches, feed_dict=None)``: make a run that waits for nothing before it returns, and
    return its result in a tuple; None if nothing was done, and ``run`` is needed. Called in place of
    ``run``, if the class that defines that has it. None: each run is awaited."""
    check_fetches: Callable[[Any], None] | None = None
    """Raise an error for fetches that the session cannot compute. Called by ``sample``, before the
    fetches join a run of another caller; must not block. None: such a run fails."""
    pending_operations: Callable[[], Sequence[str]] | None = None
    """Return the names of the operations that a run waits for. Called for the error of a run that
    exceeded its grace period; must not block. None: the error has the line that the run waits at."""
    computing: Callable[[], Collection[int]] | None = None
    """Return the threads that compute runs now, by their idents. Called for the error of a run that
    takes too long; must not block. None: no thread does."""
    abandon: Callable[[], None] | None = None
    """Let runs return at once, with any error, that wait for a thread, and make no further ones. The
    state is that before them. Called when a stop has waited for its share of the grace period. None: a
    run that a thread computes cannot be interrupted."""
    inside: Callable[[asyncio.Task[Any] | None], bool] | None = None
    """``inside(task)``: return whether the calling code is part of a step that a task awaits; with
    None, of the step that others wait for. Called before a call waits for a run. None: a task that a
    step starts may wait for that step for ever."""
    transactional: bool = False
    """Whether a run that failed has changed nothing, so that it may be repeated in the same session
    (``Recovery(retries=...)``)."""
    queues: Callable[[], Awaitable[Iterable[tuple[str, int, int | None]]]] | None = None
    """Return the name, the size and the capacity (None: no limit) of each queue. Called by
    :meth:`MonitoredSession.queues`; may ask another process. None: there are no queues."""
    repeat: Callable[[Any, Callable[[], bool]], Awaitable[None]] | None = None
    """Run an enqueue operation until a function returns true. Called by queue runners; may return
    earlier. None: ``run`` is called in a loop."""
    cluster_run: ClusterRun | None = None
    """The run that the session takes part in. Used by a session manager and a :class:`ClusterHook` for
    each created session. None: the session is in no cluster."""
    closed: bool = False
    """Whether ``close`` was called. A :class:`ClusterHook` then stops watching the run."""


class ProgramMembers(DescribedProgramMembers):
    """The optional members of a program, including the ones for savers."""

    graph: Any = None
    """The ``Graph`` of the program. Names of tensors are then resolved in it, and it is written for
    TensorBoard. None: the program is no graph, and names are left to its sessions."""
    get_operations: Callable[[], Iterable[Any]] | None = None
    """Return the operations of a graph. Called to write it for TensorBoard and for a profile. None: no
    graph is written."""
    canonical_feed: Callable[[Any], Hashable] | None = None
    """See :meth:`Program.canonical_feed`. Called for the feeds of hooks. None: a key is compared as it
    is."""
    saver: Callable[[], Any] | None = None
    """Return the saver of a scaffold without one. Called when the scaffold is finalized, with the
    program as the current one. None: a ``Saver`` of all the state."""
    global_step: Callable[[], Any] | None = None
    """Return the fetch that counts steps, or None. Called where other sessions change the state too, so
    that a session's own count may be behind, and by a supervisor. None: there is no such fetch."""
    as_default: Callable[[], AbstractContextManager[Any]] | None = None
    """Return a context manager in which operations are added to the program. Entered around ``begin``
    of the hooks and the filling of a scaffold. None: nothing is entered."""
    start_producers: Callable[[Session, Any], Iterable[asyncio.Task[Any]]] | None = None
    """``start_producers(session, coord)``: start tasks that produce data, and return them. Called for
    each created session, before ``after_create_session`` of the hooks. None: there are none."""
    unfinalize: Callable[[], None] | None = None
    """Allow additions again. Called at the end of a monitored session that found the program not
    finalized. None: the program stays finalized."""
    is_chief: bool = True
    """Whether this process may initialise, restore and save. Read by ``MonitoredTrainingSession``."""
    learning_rates: Callable[[], Mapping[str, float]] | None = None
    """Return the present learning rates by tag. Called by a ``TrainingMetricsHook`` between two steps.
    None: there are none to log."""
    steps: Collection[str] | None = None
    """The names of the steps. An evaluation by one name is checked against them before the first step.
    None: names are left to the sessions."""
    session_hooks: Callable[[], Iterable[Any]] | None = None
    """Return hooks that each session of the program needs. Called by ``MonitoredTrainingSession``.
    None: it needs none."""


class CreatorMembers:
    """The optional members of a session creator. It must have ``async create_session()``."""

    program: Any = None
    """The program that is current in ``begin`` of the hooks. None: the default graph."""
    prepare: Callable[[], Any] | None = None
    """Finalize the program. Called once, after ``begin`` of the hooks. None: ``create_session``
    does."""
    is_chief: bool = True
    """Whether its sessions have a state of their own to save. If not, a stop by a signal does not
    report it as unsaved."""


class TaskMembers:
    """The optional members of an object that a coordinator registers as a task or thread."""

    is_alive: Callable[[], bool] | None = None
    """Return whether it was started and has not ended. None: it is a task that was started."""
    task: asyncio.Task[Any] | None = None
    """The task to wait for. None: the object is a task."""


class WriterMembers:
    """The optional members of a writer of events that the user provides."""

    reopen: Callable[[], Awaitable[None]] | None = None
    """Begin another file if the writer is closed. Called for each session of a supervisor. None: the
    writer is open all the time."""
    closed: bool = False
    """Whether the writer is closed, so that the end of a session is not written."""


def step_of(raw: Any) -> int | None:
    """Return the global step of a raw session; None if it counts no steps or is lost."""
    try:
        step: int | None = getattr(raw, "global_step", None)  # not members_of: called in each run
        return step
    except Exception:
        logger.debug("The step of a lost session is unknown.", exc_info=True)
        return None


async def close_raw(raw: Any) -> None:
    """Close a raw session with a timeout. An error is logged."""
    try:
        async with asyncio.timeout(CLOSE_SECS):
            await without_unrequested("close() of the raw session", raw.close)
    except Exception:
        logger.exception("The raw session could not be closed in order; it is abandoned.")
