"""The monitored session: a turn for each caller, and hooks that come and go."""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from asyncmon.runtime.attached import AttachedHook
from asyncmon.runtime.batches import Batches
from asyncmon.runtime.life import OTHER_LOOP, SessionLife
from asyncmon.runtime.phase import Phase
from asyncmon.runtime.program import as_program, program_scope
from asyncmon.runtime.step_fn import AFTER_STOP, StepContext, check_step_fn

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable

    from asyncmon.runtime.coordinator import Coordinator

__all__ = ["MonitoredBase"]

T = TypeVar("T")

_OPEN = Phase.OPEN  # looked at in each run, and looking up a member takes long


class MonitoredBase(SessionLife):
    """What the kinds of monitored session share. See :class:`~asyncmon.MonitoredSession`."""

    # -- running ------------------------------------------------------------------------------------

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

        Calls from several tasks come one after another, hooks included, in the order of the calls.
        Cancelled, the step is done or not, never in part; no ``after_run`` is called, and the session
        stays usable.

        Args:
            fetches: what to compute, in any nesting; the result has the same structure.
            feed_dict: values for this run.
            options: a ``RunOptions``.
            run_metadata: a ``RunMetadata`` to be filled.
            hooks: False for a run beside the others: no hook sees it, and it does not wait for its
                turn, so that it can produce what a step is waiting for.

        Raises:
            RuntimeError: the session is not open, a hook has requested a stop, or this is called from
                inside a run or in another event loop.
            Exception: what the step or a hook raised; or, in its place, what a task beside the steps
                reported, which also interrupts a run that is waiting.
        """
        if self._phase is not _OPEN or self._hooks.stop_requested:
            self._refuse(hooks)
        task = asyncio.current_task(self._loop)
        if task is None or get_ident() != self._thread:
            raise RuntimeError(OTHER_LOOP)
        if self._budget.spent():
            await self._budget.pause()
        if not hooks:
            return await self._session.run_bare(self._turn, (fetches, feed_dict, options, run_metadata))
        turn = self._turn
        if turn.holder is None:
            turn.holder = task
        else:
            await turn.wait()
        try:
            if self._phase is not _OPEN:  # closed while this waited
                self._refuse()
            return await self._session.run(fetches, feed_dict, options, run_metadata)
        finally:
            turn.release()

    async def run_step_fn(self, step_fn: Callable[[StepContext], Any]) -> Any:
        """Call a step function with a :class:`StepContext`, and return what it returns. TF1: same name.

        The function may be plain or async. It has the session's turn to itself. A preemption error
        anywhere inside repeats the whole function, with a fresh context, in the new session.

        Raises:
            ValueError: the function does not take exactly one argument.
            RuntimeError, Exception: as :meth:`run`.
        """
        check_step_fn(step_fn)
        if self._phase is not Phase.OPEN or self._hooks.stop_requested:
            self._refuse()
        self._check_loop()
        if self._budget.spent():
            await self._budget.pause()
        async with self._turn.held(reentrant=False):
            if self._phase is not Phase.OPEN:
                self._refuse()
            return await self._session.run_step_fn(step_fn)

    def _refuse(self, hooks: bool = True) -> None:
        if self._phase is not Phase.OPEN:
            raise self._not_open()
        if hooks:
            raise RuntimeError(AFTER_STOP)

    async def sample(self, fetches: Any) -> Any:
        """Fetch something together with the next run of this session. It also waits over recoveries.

        Raises:
            RuntimeError: the session is not open, or ended before another run was complete.
        """
        coord = self._stops.current
        if self._phase is not Phase.OPEN or coord is None:
            raise self._not_open()
        self._check_loop()
        return await coord.sample(fetches)

    async def peek(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Compute fetches that change no state on one consistent version, delaying no step.

        Raises:
            RuntimeError: the session is not open, or a recovery is under way.
        """
        return await self._current().raw.peek(fetches, feed_dict)

    def iterate(self, source: AsyncIterable[T] | Iterable[T], *, name: str | None = None) -> Batches[T]:
        """Return an async iterator over a source that also ends when the session is to stop.

        A source with a position (``am.data``, or any with ``state_dict`` and ``load_state_dict``)
        travels in the session's checkpoints: a restored session goes on with the item after the last
        one whose step the checkpoint has seen. See :class:`~asyncmon.runtime.TravellingSource`.

        Args:
            source: an iterable or an async iterable.
            name: of the position in checkpoints. Default: ``data``, ``data_1`` and so on, in the order
                of the calls; a source that was given before keeps its name.

        Example::

            async for batch in sess.iterate(source):
                await sess.run(train_op, {x: batch})
        """
        travelling = self._passengers.add_source(source, name, self._session.step)
        return Batches(
            source, self.should_stop, self._stops.raise_pending, self._stops.waits, travelling
        )

    # -- hooks that come and go ---------------------------------------------------------------------

    async def attach(self, hook: Any) -> AttachedHook:
        """Add a hook while the session runs: ``begin``, ``after_create_session``, ``background``.

        Its part in runs begins with the next one. The program is finalized, so ``begin`` cannot add
        to it. Waits for the run that is under way, unless it is called from inside of it. Ends as a
        run does: when something fails beside, or when it takes too long after a stop.

        Raises:
            RuntimeError: the session is not open.
            TypeError, ValueError: the hook is refused, see :class:`SessionRunHook`.
        """
        self._check_loop()
        async with self._turn.held():
            session = self._current()
            with program_scope(as_program(getattr(session.raw, "graph", session.raw))):
                await session.call(self._hooks.attach, hook, session.raw, session.coord)
            self._passengers.add([hook])
        return AttachedHook(hook, self._detach)

    async def _detach(self, hook: Any) -> None:
        if self._phase is not Phase.OPEN:
            return
        self._check_loop()
        async with self._turn.held():
            if self._phase is Phase.OPEN:
                self._passengers.remove(hook)
                await self._hooks.detach(hook, self._current().raw)

    # -- access -------------------------------------------------------------------------------------

    def raw_session(self) -> Any:
        """Return the session of the program, or None while there is none. TF1: same name."""
        session = self._session.current
        return session.raw if session is not None and self._phase is Phase.OPEN else None

    @property
    def graph(self) -> Any:
        """The program that runs: a ``Graph`` or another. None while the session is not open."""
        return getattr(self.raw_session(), "graph", None)

    @property
    def global_step(self) -> int | None:
        """The number of completed steps, or None where nobody counts or the session is not open."""
        return getattr(self.raw_session(), "global_step", None)

    @property
    def coord(self) -> Coordinator | None:
        """The coordinator of the tasks beside the steps; a recovery brings a new one."""
        return self._stops.current
