"""The hook contract."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from asyncmon.checkpoint.stateful import StatefulMembers
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.failures import Failures
from asyncmon.runtime.protocols import Session
from asyncmon.summary.logged import Log, logged_values
from asyncmon.system.functions import function_of
from asyncmon.system.members import members_of

AnySession: TypeAlias = Any
"""The raw session in a hook's methods, a :class:`Session`. A hook may annotate it by that protocol, by
``am.Session``, which is TF1's class of graphs, or by the class of its program's sessions."""


class SessionRunArgs(NamedTuple):
    """The fetches and feeds that ``before_run`` adds to a run. TF1: ``tf.train.SessionRunArgs``.

    Example::

        async def before_run(self, run_context):
            return SessionRunArgs({"loss": loss, "step": step})
    """

    fetches: Any
    """Fetches of the program in any nesting; the results have the same structure."""
    feed_dict: Mapping[Any, Any] | None = None
    """Values to feed. A key that the caller or another hook also feeds is refused before the run."""
    options: Any = None
    """A ``RunOptions``, merged with the caller's: maximum, logical or, or appended, by field."""


class SessionRunValues(NamedTuple):
    """The results of a run for ``after_run``. TF1: ``tf.train.SessionRunValues``."""

    results: Any
    """The values of this hook's fetches, in their structure; None without fetches."""
    options: Any
    """The merged ``RunOptions`` of this run, never None."""
    run_metadata: Any
    """The ``RunMetadata`` of this run, never None; the same object for all hooks."""
    step: int | Any = None
    """The global step after this run's commit, which is the number of completed steps; None if the
    program counts none, which its type leaves out for hooks that divide it. Always exact, unlike a
    fetched step tensor."""


class SessionRunContext:
    """The current run, one object for all hooks. TF1: ``tf.train.SessionRunContext``.

    Args:
        original_args: the arguments of the caller of ``run``, as :class:`SessionRunArgs`.
        session: the raw session, whose runs call no hooks.
        on_stop: called with the reason when a hook requests a stop.
        log: :attr:`log`. None, as in a test of a hook: the values are checked only.
    """

    __slots__ = ("_on_stop", "log", "original_args", "session", "stop_requested")

    def __init__(
        self,
        original_args: SessionRunArgs,
        session: Session,
        on_stop: Callable[[str | None], None] | None = None,
        log: Log | None = None,
    ) -> None:
        self.log = log or logged_values
        """``log(tag, value)`` or ``log({tag: value})``: log values at the current step, as
        :meth:`MonitoredSession.log` does."""
        self.original_args = original_args
        self.session = session
        self.stop_requested = False
        """Whether a hook requested a stop during this run."""
        self._on_stop = on_stop

    def request_stop(self, reason: str | None = None) -> None:
        """Request a stop of the session after this run. One-way; further calls change nothing.

        The current run completes, with all its hooks. The request survives a failure of the run and a
        recovery.

        Args:
            reason: for the log and ``stop_reason``. Default: the name of the hook.
        """
        self.stop_requested = True
        if self._on_stop is not None:
            self._on_stop(reason)


class SessionRunHook:
    """Base class of hooks, with ``async def`` methods to override. TF1: same name.

    The methods are called in the order of the hooks' priorities, and awaited one after another::

        begin                                   once, before the program is finalized
        after_create_session   background       for each created session, again after a recovery
        before_run, after_run                   around each run
        end                                     once, when the session ends successfully
        cleanup                                 once, however it ended, in reverse order

    Methods that a class does not override cost nothing per step. A hook may also have a ``name``,
    ``save_now(session)``, and ``state_dict()`` with ``load_state_dict(state)``, plain functions over
    values that JSON or numpy can hold: the state of the hook is then saved in checkpoints.

    An error of a hook is raised by the call that ran it (``start``, ``run``, ``close``), unless
    ``on_error`` says otherwise. After a preemption error out of ``before_run`` or ``after_run`` the
    session recovers and repeats the run, so that ``after_run`` may be called again for a step.

    Attributes:
        priority: the place of the hook in every phase: lower comes earlier, equal keeps the order
            given. Guards use :data:`GUARD`, savers :data:`SAVER`: from this priority on, ``end`` has
            the time that is kept for the last saves after a signal.
        deadline: seconds a call of a method (``background`` excepted) may take, or None for no limit. A
            longer call is cancelled, and ``DeadlineExceededError`` raised in its place. A call that
            blocks the event loop cannot be cancelled; a warning names it.
        on_error: the policy for an ``Exception`` out of the hook, or an unrequested ``CancelledError``:
            ``"raise"`` it to the caller, ``"log"`` it, or log it and ``"detach"`` the hook.
        ends_on_cancel: whether ``end`` is also called when the session is cancelled or interrupted, or
            when a run exceeded the grace period after a stop. Each such call has the grace period.
        idle_until_step: a global step before which runs need not call this hook; None for a hook that
            every run calls. Of the hooks that have a number when they are added, a run that does not
            reach the lowest one calls none, unless a sample joins it. A hook sets its next step in
            ``after_create_session``, ``before_run`` or ``after_run``, with ``math.inf`` for none, and
            does nothing in a call that comes early. A run is expected to advance the step by one. Where
            it advances further, hooks with ``before_run`` are called in the next run, the others at
            once. After a run that does not advance the step, or takes it back, the next one calls all.
        stops_at_step: the global step at which this hook is going to stop the session, or None; for
            estimates of the time left.

    Example::

        class PrintLoss(SessionRunHook):
            async def before_run(self, run_context):
                return SessionRunArgs(loss)

            async def after_run(self, run_context, run_values):
                print(run_values.step, run_values.results)
    """

    priority: int = 0
    deadline: float | None = None
    on_error: Literal["raise", "log", "detach"] = "raise"
    ends_on_cancel: bool = False
    idle_until_step: float | None = None
    stops_at_step: int | None = None
    _logged: Failures | None = None

    async def begin(self) -> None:
        """Prepare, once, before the program is finalized, so that operations can still be added."""

    async def after_create_session(self, session: AnySession, coord: Coordinator) -> None:
        """A raw session was created, initialised or restored: at the start and at each recovery.

        Args:
            session: the raw session.
            coord: its coordinator; tasks made with ``coord.create_task`` live as long as it does.
        """

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Before each run. Return additional fetches and feeds, or None."""

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """After each successful run, when its writes are committed."""

    async def end(self, session: AnySession) -> None:
        """The session ends successfully; ``session`` is still open. Not called at other ends."""

    async def background(self, session: AnySession, coord: Coordinator) -> None:
        """Run as a task beside each created session, which is cancelled at its end.

        An error in it interrupts the current run and ends the session.
        """

    async def cleanup(self, error: BaseException | None) -> None:
        """Release the hook's resources, once, at every end; the session is closed already.

        Called on every hook whose ``begin`` was called, in reverse order, shielded from cancellation.

        Args:
            error: the error that ended the session, or None for a successful end.
        """


class HookMembers(SessionRunHook, StatefulMembers):
    """All attributes of a hook, and the optional methods that the base class does not have.

    A hook of another class may lack any of them but the methods of :class:`SessionRunHook`.
    """

    name: str | None = None
    """How log lines, errors and checkpoints name the hook. None: by its class."""
    save_now: Callable[[Any], Awaitable[str]] | None = None
    """Save a checkpoint now, and return its prefix once it is committed. Called by
    :meth:`MonitoredSession.save`. None: the hook does not save."""
    output_dir: str | None = None
    """The directory of the event file that the hook writes, if any: where the monitor finds it."""
    checkpoint_dir: str | None = None
    """The directory or URL that the hook saves checkpoints into, if any. It names the session."""


GUARD = -100
"""The ``priority`` of hooks that check a step before others use it, like the NaN check."""

SAVER = 100
"""The ``priority`` of hooks that save, so that all others are done."""


def hook_name(hook: object) -> str:
    """Return the name of a hook in messages: its ``name``, or else its class."""
    name: object = members_of(HookMembers, hook).name
    return name if isinstance(name, str) else type(hook).__name__


def overrides(hook: object, moment: str) -> bool:
    """Return whether a hook has a method of its own, which is then called."""
    method = getattr(hook, moment, None)
    if method is None:
        return False
    return function_of(method) is not getattr(SessionRunHook, moment)


def in_order(hooks: Sequence[Any]) -> tuple[Any, ...]:
    """Return hooks in the order of their priorities.

    Raises:
        ValueError: an object is there twice.
    """
    for i, hook in enumerate(hooks):
        if any(hook is other for other in hooks[:i]):
            raise ValueError(
                f"The hook {hook!r} is there twice: every method would run twice. Pass it once, or "
                "make a second object."
            )
    return tuple(sorted(hooks, key=lambda hook: members_of(HookMembers, hook).priority))
