"""The opening of a session, and the layers around each raw session that is created."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from contextvars import copy_context
from typing import Any, Literal

from asyncmon.checkpoint.stateful import StatefulObjects, has_state
from asyncmon.runtime import run_names
from asyncmon.runtime.channel import Channel
from asyncmon.runtime.coordinated import Coordinated
from asyncmon.runtime.gate import Gate
from asyncmon.runtime.hook import hook_name
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.hooked import Hooked
from asyncmon.runtime.program import as_program, program_of, program_scope
from asyncmon.runtime.protocols import CreatorMembers, ProgramMembers, Session, SessionMembers, step_of
from asyncmon.runtime.recoverable import Recoverable
from asyncmon.runtime.recovery import Recovery
from asyncmon.runtime.saves import Saves
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.session_creators import SessionCreator
from asyncmon.runtime.session_state import SessionState
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.stop.process_end import process_shutdown
from asyncmon.runtime.watch import RunWatch
from asyncmon.system.cancellation import shielded
from asyncmon.system.members import members_of, warn_of_misspelled


class Opening:
    """Prepares a session once, and creates its raw sessions: at the start, and at each recovery.

    Args:
        creator: any object with the method of a ``SessionCreator``.
        hooks, stops, gate, saves: of the session.
        stateful: gets the hooks with a state, and the states of a restored checkpoint.
        recovery: its retries are those of the session's runs.
        signals: whether signals stop the session, see ``MonitoredSession``.
    """

    def __init__(
        self,
        creator: Any,
        hooks: HookSet,
        stops: StopControl,
        gate: Gate,
        stateful: StatefulObjects,
        saves: Saves,
        recovery: Recovery,
        signals: Literal["auto"] | None,
    ) -> None:
        if signals not in ("auto", None):
            raise ValueError(f"signals must be 'auto' or None, got {signals!r}.")
        warn_of_misspelled("session creator", creator, SessionCreator, CreatorMembers)
        self._creator = creator
        self._hooks = hooks
        self._stops = stops
        self._gate = gate
        self._stateful = stateful
        self._saves = saves
        self._recovery = recovery
        self._signals = signals
        self.add_channel: Callable[[Channel[Any]], None]
        """Is called with each channel of the coordinators."""
        self.undo = ExitStack()
        """Takes back what the opening has changed outside of the session."""

    async def open(self, sessions: Recoverable, watch: RunWatch) -> None:
        """Prepare the session, and create the first raw one. The caller cleans up after an error."""
        observers, scopes = self._hooks.observers, self._stops.scopes
        run_names.opened(observers)
        with observers.entered():
            self._stops.context = copy_context()

        async def create() -> None:
            self._stops.shutdown.enter()
            await self._prepare()
            watch.start()
            await sessions.open()

        scope = CallScope(scopes, "opening")
        with observers.span("opening", "start"), scope, scopes.current.phase():
            await scope.leavable(create())
        self._gate.open()

    async def _prepare(self) -> None:
        """Act on stops and signals, call ``begin`` of the hooks, and finalize the program."""
        # Signals first: from here on one ends the opening, whose first parts are then cleaned up.
        if self._signals == "auto":
            self.undo.callback(process_shutdown.get().call_on_signal(self._stops.on_signal))
        self._stops.begin()
        creator = members_of(CreatorMembers, self._creator)
        program = as_program(creator.program)
        with program_scope(program):
            await self._hooks.begin()
        unfinalize = members_of(ProgramMembers, program).unfinalize
        if unfinalize is not None and not program.finalized:
            self.undo.callback(unfinalize)
        if creator.prepare is not None:
            creator.prepare()
        self.undo.callback(self._stateful.release)
        self.save_states_of(self._hooks.hooks)

    def release(self) -> None:
        """Let the creator go, with its program: the session is closed."""
        self._creator = None

    def save_states_of(self, hooks: Iterable[Any]) -> None:
        """Save the states of hooks in checkpoints: ``hooks/<name>``, ``hooks/<name>_1`` and so on."""
        for hook in hooks:
            if has_state(hook):
                self._stateful.add_numbered(f"hooks/{hook_name(hook)}", hook)

    async def create(self) -> Coordinated:
        """Create one raw session with its layers: Coordinated(Hooked(raw))."""
        hooks, stops, gate, observers = self._hooks, self._stops, self._gate, self._hooks.observers
        with observers.span("creation", type(self._creator).__name__):
            raw = observers.raw = await self._creator.create_session()
        warn_of_misspelled("session", raw, Session, SessionMembers)
        observers.record.created(raw)
        self._adopt(raw)
        coord = SessionCoordinator(
            raw, stops, lambda: hooks.hooks, observers, hooks.recorder, self._saves, self.add_channel
        )
        self._saves.begin(raw, coord)
        session = Coordinated(Hooked(coord, hooks, gate.stop_by_hook, self._recovery), coord, gate.lock)
        try:
            start_producers = members_of(ProgramMembers, program_of(raw)).start_producers
            if start_producers is not None:
                start_producers(raw, coord)
            await hooks.created(raw, coord)
            self._stateful.restored = {}
        except BaseException:
            await shielded(session.close, 0.0, name="closing a session that did not open")
            coord.release()
            raise
        # Creators and hooks are user code: one that ignores its interruption returns after the close.
        if gate.state not in (SessionState.OPENING, SessionState.OPEN):
            await shielded(session.close, 0.0, name="closing a session that came too late")
            coord.release()
            raise gate.refusal()
        self._stateful.boundary = coord.boundary
        stops.adopt(coord._errors, coord._stop)
        return session

    def _adopt(self, raw: Session) -> None:
        """Load the states of a restored checkpoint, and take the session's part of the stops."""
        members = members_of(SessionMembers, raw)
        self._stops.scopes.inside_step, self._stops.scopes.abandon = members.inside, members.abandon
        self._stateful.adopt(raw, step_of(raw))
