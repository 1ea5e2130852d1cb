"""Processes that train together: one state at the start, and one step before which all stop."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from asyncmon.checkpoint.dtypes import Array
from asyncmon.checkpoint.packing import Fingerprints, fingerprints_of, pack_all, pack_later, unpack
from asyncmon.checkpoint.stateful import stateful_of
from asyncmon.errors import FailedPreconditionError, OutOfRangeError
from asyncmon.programs.named_fetches import leaves
from asyncmon.runtime import GUARD, SAVER, SessionRunContext, SessionRunHook
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.stop.control import NO_REASON
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.system.files import in_thread

OWN_STATES = "data"
"""The entry of the states of a process's data and hooks, as JSON; their arrays are below it."""

_HOOKS = "hooks/"


async def own_states_of(session: Any, known: Fingerprints) -> dict[str, Any]:
    """Return the states of a process's data and hooks as entries, to save with those of the first.

    Args:
        session: of the process.
        known: :func:`hook_fingerprints` of the first process. Equal states are left out: large ones, as
            averages of weights, are alike in all.
    """
    objects, own = stateful_of(session), await hook_fingerprints(session)
    now, later = objects.states(with_pending=True)
    alike = {name for name, one in own.items() if known.get(name) == one}
    now = {name: state for name, state in now.items() if name not in alike}
    packed = pack_all(now)  # before the objects change
    more = await objects.copy_in_thread(partial(pack_later, later))
    return await in_thread(_entries, {**packed[0], **more[0]}, {**packed[1], **more[1]})


async def restored_states_of(session: Any) -> dict[str, Any]:
    """Return the states that the first process has restored for its data and hooks as entries."""
    restored = stateful_of(session).restored
    return await in_thread(lambda: _entries(*pack_all(restored)))


async def hook_fingerprints(session: Any) -> Fingerprints:
    """Return the fingerprints of the states of the hooks of a process."""
    hooks = {n: obj for n, obj in stateful_of(session).objects.items() if n.startswith(_HOOKS)}
    # Not copied: an array that changes during the call has another fingerprint in each process.
    packed = pack_all({name: hook.state_dict() for name, hook in hooks.items()}, copies=False)
    return await in_thread(fingerprints_of, *packed, {})


async def load_own_states(session: Any, first: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Let the data and the hooks of a process continue at their states.

    Args:
        session: of the process.
        first: entries of the first process, of whose hooks those of this one get the states.
        own: entries of the process, which prevail.
    """
    objects = stateful_of(session)
    hooks = {n: one for n, one in (await in_thread(_unpacked, first)).items() if n.startswith(_HOOKS)}
    states = {**hooks, **await in_thread(_unpacked, own)}
    known = {n: one for n, one in states.items() if n in objects.objects or not n.startswith(_HOOKS)}
    if known:
        objects.load(known)


def _entries(states: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return packed states as entries. Blocking."""
    entries = {f"{OWN_STATES}/{key}": np.asarray(array) for key, array in arrays.items()}
    return {OWN_STATES: np.array(json.dumps(states), object), **entries}


def _unpacked(entries: Mapping[str, Any]) -> dict[str, Any]:
    packed = json.loads(str(np.asarray(entries[OWN_STATES]).item()))
    prefix = f"{OWN_STATES}/"
    arrays = {n.removeprefix(prefix): one for n, one in entries.items() if n.startswith(prefix)}
    return {name: unpack(state, arrays) for name, state in packed.items()}


class DifferentRunsError(Exception):
    """Processes begin runs of different steps."""


class ProcessGroupHook(SessionRunHook, ABC):
    """Start with the state of the first process, and stop all processes before the same step.

    Before each run all processes exchange whether they continue. If one stops, all stop: the run
    raises :class:`~asyncmon.errors.OutOfRangeError`, which ends a monitored session as the end of data
    does. A lost process makes the exchange fail; sessions do not recover from that.

    Subclasses exchange by the means of their engine.
    """

    member = "process"
    """What a process is called."""

    priority = SAVER - 1
    """After all other hooks but savers: they save the step at which all have stopped."""

    def __init__(self) -> None:
        self._session: Any
        self._coord: SessionCoordinator
        self._agreed = False
        self.joined = False
        """Whether all processes have the state of the first."""

    @abstractmethod
    async def share_state(self, session: Any) -> None:
        """Load the state of the first process, which is restored or initialised, into the others.

        With the states of their data and hooks, see :func:`load_own_states`.
        """

    @abstractmethod
    async def gather_stops(self, own: dict[str, Any] | None, run: int) -> list[dict[str, Any] | None]:
        """Return what each process gives; an empty list if all give None. Waits for all to call it.

        Raises:
            DifferentRunsError: all give None, and not the same ``run``.
        """

    def hooks(self) -> list[SessionRunHook]:
        """Return this hook, and the one that lets it join before other hooks see the session."""
        return [_JoinHook(self), self]

    async def join(self, session: Any) -> None:
        """Let all processes begin alike.

        Raises:
            FailedPreconditionError: this is a recovery.
        """
        if self.joined:
            raise FailedPreconditionError(
                "A single process cannot recover: the others are at another step. Let it end, and "
                "start all again from the last checkpoint, as torchrun --max-restarts=N does."
            )
        await self.share_state(session)
        self.joined = True

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self._session, self._coord = session, coord

    async def before_run(self, run_context: SessionRunContext) -> None:
        """Continue if all processes do.

        Raises:
            OutOfRangeError: a process stops.
            FailedPreconditionError: another process runs other steps.
        """
        known = self._session.graph.steps
        names = leaves(run_context.original_args.fetches)
        steps = sorted({name for name in names if isinstance(name, str) and name in known})
        run = zlib.crc32(repr(steps).encode()) >> 1  # some engines exchange it as an int32
        try:
            stop = await self._stop_of_all(self._coord.stops.event.stop, run)
        except DifferentRunsError:
            raise FailedPreconditionError(
                f"This {self.member} runs the steps {steps}, and another one runs others: each makes "
                "the same runs. To evaluate on one of them, use sess.peek or an EvalHook."
            ) from None
        if stop is not None:
            self._coord.request(stop)
            raise OutOfRangeError(f"All processes stop before this step: {stop.text}.")

    async def end(self, session: Any) -> None:
        """Stop the other processes, which wait before their next run."""
        if not self._agreed:
            own = self._coord.stops.event.stop or Stop(Cause.BODY, "the body ended")
            await self._stop_of_all(own, 0)

    async def _stop_of_all(self, own: Stop | None, run: int) -> Stop | None:
        """Return the stop of the first process that stops."""
        for number, wire in enumerate(await self.gather_stops(own and own.to_wire(), run)):
            if wire is not None:
                self._agreed = True
                first = Stop.from_wire(wire)
                text = f"{self.member} {number} stops: {first.text or NO_REASON}"
                return first._replace(cause=Cause.CLUSTER, text=text, of=first.of or first.cause)
        return None


class _JoinHook(SessionRunHook):
    """Join a group before other hooks read the step or the variables of the session."""

    priority = GUARD - 2

    def __init__(self, group: ProcessGroupHook) -> None:
        self._group = group

    async def after_create_session(self, session: Any, coord: Any) -> None:
        await self._group.join(session)
