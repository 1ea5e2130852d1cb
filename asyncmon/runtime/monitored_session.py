"""The monitored session: one that recovers, and one that does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from numbers import Real
from threading import get_ident
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypeAlias, TypeVar, cast, final

from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.data_iterator import DataIterator, resumable_source
from asyncmon.runtime.hook_check import check_hook, check_hooks
from asyncmon.runtime.hook_set import AttachedHook, HookSet
from asyncmon.runtime.hooked import Hooked
from asyncmon.runtime.lifecycle import OTHER_LOOP, Lifecycle, SessionState
from asyncmon.runtime.operating import OperatedSession
from asyncmon.runtime.program import program_of, program_scope
from asyncmon.runtime.protocols import CreatorMembers, SessionMembers, step_of
from asyncmon.runtime.recoverable import Recovery
from asyncmon.runtime.session_creators import ChiefSessionCreator, SessionCreator
from asyncmon.runtime.step_fn import StepContext as _StepContext
from asyncmon.runtime.step_fn import check_step_fn
from asyncmon.system.members import members_of, warn_of_misspelled

T = TypeVar("T")

_OPEN = SessionState.OPEN  # compared in each run, and looking up a member takes long


class _MonitoredSession(OperatedSession):
    """What both kinds of monitored session can do."""

    StepContext: TypeAlias = _StepContext  # TF1 has it in these classes

    def __init__(
        self,
        creator: SessionCreator,
        hooks: Iterable[Any] | None,
        stop_grace_period_secs: float,
        recovery: Recovery,
        signals: Literal["auto"] | None,
        interrupt: bool,
    ) -> None:
        if signals not in ("auto", None):
            raise ValueError(f"signals must be 'auto' or None, got {signals!r}.")
        if not isinstance(cast("object", recovery), Recovery):
            raise TypeError(f"recovery must be a Recovery or None, got {recovery!r}.")
        grace = stop_grace_period_secs
        if not isinstance(cast("object", grace), Real):
            raise TypeError(f"stop_grace_period_secs must be a number of seconds, got {grace!r}.")
        warn_of_misspelled("session creator", creator, SessionCreator, CreatorMembers)
        self._hooks = HookSet(check_hooks(hooks))
        self._life = Lifecycle(creator, self._hooks, grace, recovery, signals == "auto", interrupt)

    def __repr__(self) -> str:
        step = self.global_step
        at_step = "" if step is None else f" at step {step}"
        return f"<{type(self).__name__}: {self._life.state.value}{at_step}>"

    # -- opening and closing

    async def start(self) -> Self:
        """Open the session: hooks' ``begin``, then create, restore or initialise, then notify hooks.

        A failure, a cancellation or a stop (``CancelledError``) meanwhile releases everything, calls
        ``cleanup`` of the hooks that began, and leaves. Any task may call :meth:`close`.

        Raises:
            RuntimeError: the session was opened before.
        """
        await self._life.open()
        return self

    async def close(self) -> None:
        """End the session successfully: hooks' ``end``, tasks joined, raw session closed, ``cleanup``.

        A second call does nothing; during another close it waits for that. Cancelled, it closes before
        it raises the cancellation: each part that exceeds the grace period is cut short, and the next
        one has a period of its own, so that a saver still saves after a hook that hangs.

        Raises:
            RuntimeError: called from inside a run.
            Exception: an error of a background task that no caller has seen, or of a hook's ``end``.
        """
        await self._life.close(None)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return await self._life.close(exc)

    def __enter__(self) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} is awaited: write `async with`, not `with`.")

    def __exit__(self, *_exc_info: object) -> None:
        """Never reached; ``with`` looks it up first."""

    # -- running

    async def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
        *,
        hooks: bool = True,
    ) -> Any:
        """Run one step with all hooks. TF1: same name.

        Calls from several tasks run one after another, hooks included, in their order. Cancelled, the
        step is done or not, never in part; no ``after_run`` is called, and the session stays usable.

        Args:
            fetches: what to compute, in any nesting; the result has the same structure.
            feed_dict: values for this run.
            options: a ``RunOptions``.
            run_metadata: a ``RunMetadata`` to be filled.
            hooks: False for a run concurrent to the others: no hook sees it, and it does not wait for
                them, so that it can produce the data that a step is waiting for.

        Raises:
            RuntimeError: the session is not open, a hook has requested a stop, or this is called from
                inside a run or in another event loop.
            Exception: what the step or a hook raised; or, in its place, the error of a background task,
                which also interrupts a run that is waiting.
        """
        life = self._life
        if life.state is not _OPEN or life.gated:
            life.check_run() if hooks else life.check_open()
        task = asyncio.current_task(life.loop)
        if task is None or get_ident() != life.thread:
            raise RuntimeError(OTHER_LOOP)
        if life.budget.spent():
            await life.budget.pause()
        run = (fetches, feed_dict, options, run_metadata)
        if not hooks:
            return await life.call("bare run", Hooked.run_bare, run)
        lock = life.lock
        if life.gated or not lock.acquire_nowait(task):
            await life.acquire_lock()
        try:
            if life.state is not _OPEN:  # closed while this waited
                life.check_open()
            return await life.call("run", Hooked.run, run)
        finally:
            lock.release()

    async def run_step_fn(self, step_fn: Callable[[_StepContext], Any]) -> Any:
        """Call a step function with a :class:`StepContext`, and return what it returns. TF1: same name.

        The function may be plain or async. No other run comes in between. A preemption error anywhere
        inside repeats the whole function, with a fresh context, in the new session.

        Raises:
            ValueError: the function does not take exactly one argument.
            RuntimeError, Exception: as :meth:`run`.
        """
        check_step_fn(step_fn)
        life = self._life
        life.check_run()
        if life.budget.spent():
            await life.budget.pause()
        await life.acquire_lock()
        try:
            life.check_open()
            return await life.call("run", Hooked.run_step_fn, step_fn)
        finally:
            life.lock.release()

    async def sample(self, fetches: Any) -> Any:
        """Fetch something together with the next run of this session, also after a recovery.

        Raises:
            RuntimeError: the session is not open, or ended before another run was complete.
        """
        self._life.check_open()
        assert self._life.coord is not None, "set when it was opened"
        return await self._life.coord.sample(fetches)

    async def peek(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Compute fetches that change no state on one consistent version, delaying no step.

        Raises:
            RuntimeError: the session is not open, or a recovery is under way.
        """
        return await self._life.current().raw.peek(fetches, feed_dict)

    def iterate(
        self, source: AsyncIterable[T] | Iterable[T], *, name: str | None = None
    ) -> DataIterator[T]:
        """Return an async iterator over a source that also ends when the session is to stop.

        The position of a source that has one (``am.data``, or any with ``state_dict`` and
        ``load_state_dict``) is saved in checkpoints: a restored session goes on with the item after the
        last one whose step is in the checkpoint. See :class:`~asyncmon.runtime.ResumableSource`.

        Args:
            source: an iterable or an async iterable.
            name: of the position in checkpoints. Default: ``data``, ``data_1`` and so on, in the order
                of the calls; a source that was given before keeps its name.

        Example::

            async for batch in sess.iterate(source):
                await sess.run(train_op, {x: batch})
        """
        life = self._life
        resumable = resumable_source(life.stateful, source, name, lambda: step_of(life.raw))
        return DataIterator(source, life.should_stop, life.stops, resumable)

    # -- stopping

    def should_stop(self) -> bool:
        """Return whether the body is to end. Never waits, changes nothing.

        True when a stop was requested, a background task has failed, or the session is not open (any
        more). An error that the next run recovers from does not count.

        Raises:
            RuntimeError: a loop asks this and calls a coroutine function, such as :meth:`run`, without
                ``await``, so that it would go round for ever.
        """
        return self._life.should_stop()

    def request_stop(self, reason: str | None = None) -> None:
        """Request the end of the body. Safe in any thread and signal handler; the first reason stays.

        A run that is under way has the grace period to complete, or the time it needs where the request
        comes from inside of it. Later runs are not refused.

        Raises:
            TypeError: the reason is no text.
        """
        if not isinstance(cast("object", reason), str | None):
            raise TypeError(f"reason must be a str or None, got {reason!r}.")
        self._life.stops.request(reason or "a stop was requested")

    @property
    def stop_reason(self) -> str | None:
        """Why the session stopped or is to stop, or None while there is no stop."""
        return self._life.end_reason or self._life.stops.reason

    # -- hooks that come and go

    async def attach(self, hook: Any) -> AttachedHook:
        """Add a hook while the session runs: ``begin``, ``after_create_session``, ``background``.

        It is called in the next run. The program is finalized, so ``begin`` cannot add to it. Waits for
        the run that is under way, unless it is called from inside of it. Is interrupted as a run is.

        Raises:
            RuntimeError: the session is not open.
            TypeError, ValueError: the hook is refused, see :class:`SessionRunHook`.
        """
        life = self._life
        life.check_open()
        async with life.lock.held():
            session = life.current()
            check_hook(hook)
            with program_scope(program_of(session.raw)):
                await session.call("run", Hooked.attach, hook)
            life.save_states_of([hook])
        return AttachedHook(hook, self.detach)

    async def detach(self, hook: Any) -> None:
        """Remove a hook, attached or given, after the run that is under way: ``end``, ``cleanup``.

        Does nothing where the session has no such hook or is closed.
        """
        life = self._life
        if life.state is not _OPEN:
            return
        life.check_open()
        async with life.lock.held():
            if life.state is _OPEN:
                life.stateful.remove(hook)
                await self._hooks.detach(hook, life.current().raw)

    # -- access

    def raw_session(self) -> Any:
        """Return the session of the program, or None while there is none. TF1: same name."""
        life = self._life
        session = life.sessions.current if life.state is _OPEN else None
        return None if session is None else session.raw

    @property
    def graph(self) -> Any:
        """The program that runs: a ``Graph`` or another. None while the session is not open."""
        return members_of(SessionMembers, self.raw_session()).graph

    @property
    def global_step(self) -> int | None:
        """The number of completed steps, or None where they are not counted or it is not open."""
        return members_of(SessionMembers, self.raw_session()).global_step

    @property
    def coord(self) -> Coordinator | None:
        """The coordinator of the background tasks; a recovery brings a new one."""
        return self._life.coord


@final
class MonitoredSession(_MonitoredSession):
    """A session that initialises or restores, calls hooks, recovers, and ends in order. TF1: same name.

    Construction only checks; ``async with`` (or ``await start()`` … ``await close()``, in any tasks)
    opens and closes. The body ends the session successfully by its end, by ``break`` and by
    any end of data (``OutOfRangeError``, ``StopAsyncIteration``, ``StopIteration``), which does not
    leave it.

    Args:
        session_creator: makes the raw session, again after each preemption. Default: a
            ``ChiefSessionCreator``.
        hooks: copied and checked.
        stop_grace_period_secs: how long, from a stop on, tasks and runs have to end by themselves.
            Tasks are then cancelled. A run that is still under way, in a hook that hangs or a step that
            waits for a lost server, is interrupted: it raises ``DeadlineExceededError``, which names
            what it waited for; its step is done or not. A run from inside of which the stop was
            requested takes the time it needs. ``math.inf``: so do all.
        recovery: which errors to recover from, how often, after what pause.
        signals: ``"auto"`` lets SIGINT and SIGTERM request a stop while the session is open, where
            they have their default handlers. From the signal on, one grace period covers everything:
            the run, abandoned when the rest needs the time, which then ends the session in order;
            hooks' ``end`` and the last save; tasks and ``cleanup``. Waits for data, evaluations and an
            opening end at once. A second signal does what it does by default; nothing more is saved.
        interrupt: whether an error of a background task ends the run that is being awaited at once. If
            not, that run has the grace period to finish, and the next one raises the error.

    Example::

        async with MonitoredSession(hooks=[StopAtStepHook(last_step=1000)]) as sess:
            while not sess.should_stop():
                await sess.run(train_op)
        print(sess.stop_reason)
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Iterable[Any] | None = None,
        stop_grace_period_secs: float = 120,
        *,
        recovery: Recovery | None = None,
        signals: Literal["auto"] | None = None,
        interrupt: bool = True,
    ) -> None:
        creator = session_creator if session_creator is not None else ChiefSessionCreator()
        recovery = recovery or Recovery()
        super().__init__(creator, hooks, stop_grace_period_secs, recovery, signals, interrupt)
