"""The methods of monitored sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from functools import partial
from threading import get_ident
from typing import Any, NoReturn, Self, TypeAlias, TypeVar, cast
from weakref import finalize

from asyncmon.data import Dataset
from asyncmon.data.sources import AnyIterable
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.data_iterator import DataIterator
from asyncmon.runtime.epochs import Epochs, dataset_of
from asyncmon.runtime.hook_check import check_hook
from asyncmon.runtime.hook_set import AttachedHook
from asyncmon.runtime.hooked import Hooked
from asyncmon.runtime.observation import Observer, in_session
from asyncmon.runtime.parts import Parts
from asyncmon.runtime.pipelines.produce import produce
from asyncmon.runtime.program import program_of, program_scope
from asyncmon.runtime.protocols import SessionMembers
from asyncmon.runtime.record_keeper import RecordKeeper
from asyncmon.runtime.run_record import RunRecord
from asyncmon.runtime.session_state import OTHER_LOOP, SessionState
from asyncmon.runtime.session_statistics import QueueStatistics, SessionStatistics, queue_statistics
from asyncmon.runtime.step_fn import StepContext as _StepContext
from asyncmon.runtime.step_fn import check_step_fn
from asyncmon.runtime.stop.control import NO_REASON
from asyncmon.runtime.stop.current_run import enter, leave
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.runtime.unclosed import Unclosed
from asyncmon.runtime.value_stream import ValueStream
from asyncmon.system.forgotten_await import ForgottenAwait
from asyncmon.system.members import members_of

T = TypeVar("T")

_OPEN = SessionState.OPEN  # compared in each run; a lookup in the enum takes longer


class _MonitoredSession:
    """The methods of both kinds of monitored session."""

    StepContext: TypeAlias = _StepContext  # TF1 has it in these classes

    def __init__(self, parts: Parts) -> None:
        self._hooks, self._stops, self._gate, self._stateful = parts[:4]
        self._opening, self._sessions, self._frontiers = parts[4:7]
        self._watch, self._closing, self._statistics = parts[7:]
        self._record: RecordKeeper = self._hooks.observers.record
        self._before: object = None  # what the body was part of before
        self._forgotten = ForgottenAwait()
        self.last_results: Any = None
        """What the last :meth:`run` with hooks returned, also after the close. Not copied."""

    def __repr__(self) -> str:
        step = self.global_step
        at_step = "" if step is None else f" at step {step}"
        return f"<{type(self).__name__}: {self._gate.state.value}{at_step}>"

    def _repr_html_(self) -> str:
        """Return the statistics, for notebooks."""
        return self.statistics()._repr_html_()

    async def start(self) -> Self:
        """Open the session: call hooks' ``begin``, create and restore or initialise, notify hooks.

        A failure, a cancellation or a stop (``CancelledError``) releases everything and calls
        ``cleanup`` of the hooks that began. Any task may call :meth:`close`. A session that is not
        closed is reported by a ``ResourceWarning``, and closed by ``am.run``.

        Raises:
            RuntimeError: the session was opened before.
        """
        await self._open()
        closing = self._closing
        unclosed = Unclosed(self._gate, self._hooks, closing.unsaved, closing.close, closing.abandon)
        self._stops.shutdown.close = unclosed.close
        finalize(self, unclosed.report)
        return self

    async def _open(self) -> None:
        self._gate.bind()
        try:
            return await self._opening.open(self._sessions, self._watch)
        except BaseException as error:
            reason = error
        outcome = await self._closing.end(reason)
        raise outcome.error or reason

    async def close(self) -> None:
        """End the session successfully: call hooks' ``end``, join tasks, close, call ``cleanup``.

        A second call does nothing; during another close it waits for that one. If cancelled, it closes
        before it raises the cancellation. Each part that exceeds the grace period is cancelled, and the
        next one has a grace period of its own: a saver still saves after a hook that hangs.

        Raises:
            RuntimeError: called from inside a run.
            Exception: an error of a background task that was not raised yet, or of a hook's ``end``.
        """
        await self._closing.close(None)

    async def __aenter__(self) -> Self:
        await self._open()
        self._before = enter(self._hooks.observers)  # the body, and the tasks that it starts
        self._stops.enter_body()
        return self

    async def __aexit__(self, _type: object, exc: BaseException | None, _traceback: object) -> bool:
        try:
            return await self._closing.close(self._stops.leave_body(exc))
        finally:
            leave(self._hooks.observers, self._before)

    def __enter__(self) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} is awaited: write `async with`, not `with`.")

    def __exit__(self, *_exc_info: object) -> None:
        """Never reached; ``with`` looks it up first."""

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

        Calls from several tasks run one after another, hooks included, in their order. If cancelled,
        the step is done or not, never in part; no ``after_run`` is called, and the session stays
        usable.

        Args:
            fetches: in any nesting; the result has the same structure.
            feed_dict: values for this run.
            options: a ``RunOptions``.
            run_metadata: a ``RunMetadata`` to be filled.
            hooks: False for a run concurrent to the others. It calls no hooks and does not wait for
                other runs, so that it can produce the data for a step that waits.

        Raises:
            RuntimeError: the session is not open, a hook has requested a stop, or this is called from
                inside a run or in another event loop.
            Exception: an error of the step or of a hook; or the error of a background task, which also
                interrupts a run that waits.
        """
        gate, sessions = self._gate, self._sessions
        if gate.state is not _OPEN or gate.gated:
            gate.check_run() if hooks else gate.check_open()
        task = asyncio.current_task(gate.loop)
        if task is None or get_ident() != gate.thread:
            raise RuntimeError(OTHER_LOOP)
        if gate.budget.spent():
            await gate.budget.pause()
        run = (fetches, feed_dict, options, run_metadata)
        if not hooks:
            try:
                return await sessions.call("bare run", Hooked.run_bare, run)
            except Exception as error:
                self._watch.failed(error)
                raise
        lock = gate.lock
        if gate.gated or not lock.acquire_nowait(task):
            await gate.acquire()
        try:
            if gate.state is not _OPEN or gate.gated:  # closed, or stopped, while this waited
                gate.check_run()
            for frontier in self._frontiers.all:
                frontier.run_begins(task)
            if self._hooks.always:
                results = await sessions.call("run", Hooked.run, run)
            else:
                results = await sessions.call("run", Hooked.run, run, Hooked.run_nowait)
            self.last_results = results
            return results
        except Exception as error:
            self._watch.failed(error)
            raise
        finally:
            lock.release()
            self._frontiers.run_ended()

    async def run_step_fn(self, step_fn: Callable[[_StepContext], Any]) -> Any:
        """Return the result of a step function, called with a :class:`StepContext`. TF1: same name.

        The function may be plain or async. No other run comes in between. A preemption error inside it
        repeats the whole function, with a fresh context, in the new session.

        Raises:
            ValueError: the function does not take exactly one argument.
            RuntimeError, Exception: as :meth:`run`.
        """
        check_step_fn(step_fn)
        gate = self._gate
        gate.check_run()
        if gate.budget.spent():
            await gate.budget.pause()
        await gate.acquire()
        try:
            gate.check_run()
            self._frontiers.run_begins(gate.lock.holder)
            return await self._sessions.call("run", Hooked.run_step_fn, step_fn)
        except Exception as error:
            self._watch.failed(error)
            raise
        finally:
            gate.lock.release()
            self._frontiers.run_ended()

    async def sample(self, fetches: Any) -> Any:
        """Fetch values together with the next run of this session, also after a recovery.

        Raises:
            RuntimeError: the session is not open, or ended before another run was complete.
        """
        self._gate.check_open()
        assert self._sessions.coord is not None, "set when it was opened"
        return await self._sessions.coord.sample(fetches)

    def values(self, *, most: int = 1_000) -> ValueStream:
        """Return an async iterator over all values that are logged, by step.

        For a service's own stream of events. It holds the newest ``most`` steps for a slow reader, and
        says how many it dropped. It ends at the stop. Later values of a step that was read come as a
        further item.

        Example::

            async for step, wall_time, values, dropped in sess.values():
                await page.send(step, values)
        """
        return ValueStream(self._hooks.recorder, self._gate, self._stops, most)

    async def peek(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Compute fetches that change no state on one consistent version, delaying no step.

        Raises:
            RuntimeError: the session is not open, or is recovering.
        """
        self._gate.check_open()
        return await self._sessions.in_use().raw.peek(fetches, feed_dict)

    def iterate(
        self, source: AsyncIterable[T] | Iterable[T], *, name: str | None = None
    ) -> DataIterator[T]:
        """Return an async iterator over a source that also ends when a stop is requested.

        The position of a source with a state, such as those of ``am.data``, is saved in checkpoints: a
        restored session continues with the first element that no step has consumed. See ``Frontier``.

        Args:
            source: an iterable or an async iterable.
            name: of the position in checkpoints. Default: ``data``, ``data_1`` and so on. A source
                keeps its name, and gives it to a like one once it does not exist any more. The position
                of other data under this name is a ``ValueError``.

        Example::

            async for batch in sess.iterate(source):
                await sess.run(train_op, {x: batch})
        """
        return self._frontiers.iterate(source, name, self.should_stop)

    def epochs(
        self, source: Dataset | AnyIterable, count: int | None = None, *, name: str | None = None
    ) -> Epochs:
        """Return an async iterator over passes of a dataset, which a checkpoint counts.

        Three epochs are three epochs, however often the program is restarted: the epoch and the
        position in it are saved. A restored session begins with the rest of the interrupted epoch,
        which has no elements if only its end was missing. Leaving an epoch early (``break``) skips its
        rest. A stop ends epochs and iterator.

        Args:
            source: a dataset of ``am.data``, or what ``am.data.from_iterable`` makes one of.
            count: the number of epochs in all; None for no limit.
            name: of the position in checkpoints, as for :meth:`iterate`.

        Raises:
            TypeError: the source can be read only once.
        """
        data = dataset_of(source)
        elements = partial(self._frontiers.iterate, data, name, self.should_stop, True)
        return Epochs(data, count, elements, self.should_stop, self._hooks.observers.epochs.ended)

    produce = produce

    @in_session
    def log(self, values: Any, value: Any = None, *, step: int | None = None) -> None:
        """Log ``log(tag, value)`` or ``log({tag: value})``. Does not block; safe in any thread.

        Hooks have ``run_context.log`` and ``coord.log``, step functions ``step_context.log``.

        Args:
            values: a tag, or values by tag. A value is a number, a string, numbers in an array or a
                list (copied; their distribution is logged), or a :class:`~asyncmon.summary.Image`.
                Any other one is left out, with one warning for its tag.
            value: that of a single tag.
            step: default: the global step.

        Raises:
            TypeError: there is no tag, or the step is no whole number.
            RuntimeError: the session is not open.
        """
        self._gate.check_log()
        self._hooks.recorder.log(values, value, step=step)

    @in_session
    def log_config(self, config: Mapping[str, Any]) -> None:
        """Log hyperparameters: bools, numbers or strings by name. Later calls add to them.

        Values of other types are logged as text. ``TypeError``: it is no mapping with names.
        """
        self._gate.check_log()
        self._hooks.recorder.log_config(config)

    def should_stop(self) -> bool:
        """Return whether the body should end. Never waits, changes nothing.

        True when a stop was requested, a background task has failed, or the session is not open. An
        error that the next run recovers from does not count.

        Raises:
            RuntimeError: a loop calls this, and a coroutine function such as :meth:`run` without
                ``await``, so that it would never end.
        """
        if self._gate.state is not _OPEN or self._stops.is_requested():
            return True
        self._forgotten.asked()
        return False

    @in_session
    def request_stop(self, reason: str | None = None, *, preempted: bool = False) -> None:
        """Request the end of the body. Safe in any thread and signal handler; the first request stays.

        The current run has the grace period to complete, or no limit if the request comes from inside
        it. Later runs are not refused.

        Args:
            reason: for people, in :attr:`stop_reason` and the log.
            preempted: whether the program is to be started again, as after a signal: for a service that
                handles its signals itself. The session then leaves its cluster, if it may, instead of
                stopping it, a hook does not restore the best state, and ``am.run`` ends with 75.
        """
        if not isinstance(cast("object", reason), str | None):
            raise TypeError(f"reason must be a str or None, got {reason!r}.")
        self._stops.request(Stop(Cause.REQUEST, reason or NO_REASON, preempted=bool(preempted)))

    @property
    def stop_reason(self) -> str | None:
        """Why the session stopped, or why a stop is requested; None without a stop."""
        stop = self._stops.stop
        return None if stop is None else stop.text

    @in_session
    def pause(self, reason: str | None = None) -> None:
        """Hold all runs that have not begun, until :meth:`resume`, a stop or the close.

        The current run completes. Timers continue, such as saves by time.

        Raises:
            RuntimeError: the session is not open, or a stop is requested.
        """
        self._gate.pause(reason)

    @in_session
    def resume(self) -> None:
        """End a pause, if there is one."""
        self._gate.resume()

    @property
    def paused(self) -> bool:
        """Whether the next run would wait for :meth:`resume`."""
        return self._gate.paused

    async def save(self) -> str:
        """Save a checkpoint now, and return its prefix once it is committed.

        The first hook with ``async def save_now(session)`` saves, usually the ``CheckpointSaverHook``.
        Listeners are called, and the hook's schedule continues from this step. No step is saved twice.
        Cancelling this does not cancel the save. Its error is also reported by the hook.

        Raises:
            RuntimeError: the session is not open or has no such hook, saves are vetoed, by a NaN for
                example, or this is called from inside a run.
        """
        self._gate.check_save()
        with self._hooks.observers.entered():
            return await self._hooks.save_now(self._sessions.in_use().raw)

    async def attach(self, hook: Any) -> AttachedHook:
        """Add a hook while the session runs: ``begin``, ``after_create_session``, ``background``.

        The next run calls it. The program is finalized, so ``begin`` cannot add to it. This waits for
        the current run, unless it is called from inside it, and is interrupted as a run is.

        Raises:
            RuntimeError: the session is not open.
            TypeError, ValueError: the hook is refused, see :class:`SessionRunHook`.
        """
        self._gate.check_open()
        async with self._hooks.observers.entered(), self._gate.lock.held():
            self._gate.check_open()
            session = self._sessions.in_use()
            check_hook(hook)
            with program_scope(program_of(session.raw)):
                attach, coord = self._hooks.attach, session.coord
                await session.call("run", lambda inner, one: attach(one, inner.raw, coord), hook)
            self._opening.save_states_of([hook])
        return AttachedHook(hook, self.detach)

    async def detach(self, hook: Any) -> None:
        """Remove a hook, attached or given, after the current run: ``end``, then ``cleanup``.

        Does nothing if the session has no such hook or is closed."""
        if self._gate.state in (SessionState.CLOSING, SessionState.CLOSED):
            return
        self._gate.check_open()
        async with self._hooks.observers.entered(), self._gate.lock.held():
            if self._gate.state is _OPEN:
                self._stateful.discard(hook)
                await self._hooks.detach(hook, self._sessions.in_use().raw)

    @property
    def name(self) -> str:
        """The name of the run, in log lines, the run record, the monitor and trackers.

        Unique among the open sessions of the process, from the opening on.
        """
        return self._hooks.observers.name or "session"

    @property
    def outcome(self) -> RunRecord | None:
        """The record of the run, the last one after the close; None before the opening."""
        return self._record.now()

    @property
    def state(self) -> SessionState:
        """The phase of the session's life."""
        return self._gate.state

    @property
    def started(self) -> float | None:
        """When the session was started, in seconds since 1970, or None."""
        return self._gate.started

    @property
    def last_step(self) -> int | None:
        """The lowest step at which a hook is going to stop the session, or None."""
        return self._statistics.last_step()

    def statistics(self) -> SessionStatistics:
        """Return hooks, tasks, timers, pending saves and so on, in any phase of the session."""
        return self._statistics.now()

    async def queues(self) -> tuple[QueueStatistics, ...]:
        """Return the queues of the program's session, and the channels of its coordinator.

        A queue of a graph is listed once a run has used it. ``OpError``: its process does not answer.
        """
        return await queue_statistics(self._sessions.current)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call an observer at the start and the end of each :class:`Span`, also after a recovery.

        Steps cost nothing without an observer. An observer that raises is logged and removed.

        Returns a function that removes the observer. It is still called at the end of open spans.
        """
        return self._hooks.observers.add(observer)

    def raw_session(self) -> Any:
        """Return the session of the program, or None while none is open. TF1: same name."""
        session = self._sessions.current if self._gate.state is _OPEN else None
        return None if session is None else session.raw

    @property
    def graph(self) -> Any:
        """The program of the session, such as a ``Graph``. None while the session is not open."""
        return members_of(SessionMembers, self.raw_session()).graph

    @property
    def global_step(self) -> int | None:
        """The last known number of completed steps; None before the opening, or if not counted."""
        return self._hooks.observers.step

    @property
    def coord(self) -> Coordinator | None:
        """The coordinator of the background tasks; a recovery brings a new one."""
        return self._sessions.coord
