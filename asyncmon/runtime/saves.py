"""The saves of a session, over recoveries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asyncmon.runtime.gate import Gate
from asyncmon.runtime.hook import HookMembers
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.protocols import CreatorMembers, step_of
from asyncmon.runtime.recoverable import Recoverable
from asyncmon.runtime.stop.control import StopControl
from asyncmon.system.members import members_of


class Saves:
    """The saves of one session.

    Args:
        creator: of the session; one that is no chief has no state to save.
        hooks, stops, gate, sessions: of the session.
    """

    def __init__(
        self, creator: Any, hooks: HookSet, stops: StopControl, gate: Gate, sessions: Recoverable
    ) -> None:
        self._creator = creator
        self._hooks = hooks
        self._stops = stops
        self._gate = gate
        self._sessions = sessions
        self.step_at_end: int | None = None
        """The global step at the end of the session, as the close has found it."""

    async def save(self) -> str:
        """Save now. See ``MonitoredSession.save``."""
        self._gate.check_open()
        scopes = self._stops.scopes
        if self._gate.lock.is_mine() or scopes.is_awaited() or scopes.listens("before_save"):
            raise RuntimeError(
                "save() was called from inside a run or a save, which it waits for. Call it later: in "
                "the body, in the `background` of a hook or in a task of the body."
            )
        session = self._sessions.in_use()
        for hook in self._hooks.hooks:
            if (save_now := members_of(HookMembers, hook).save_now) is not None:
                return await save_now(session.raw)
        raise RuntimeError(
            "No hook of this session saves checkpoints. Pass a CheckpointSaverHook in hooks, or a "
            "checkpoint_dir to MonitoredTrainingSession."
        )

    def secs(self) -> float:
        """Return the expected time of the last save, in seconds."""
        return self._hooks.end_secs

    def unsaved(self) -> str | None:
        """Return which state is lost if the process ends now, or None. Safe in any thread."""
        session = self._sessions.current
        if session is None or not members_of(CreatorMembers, self._creator).is_chief:
            return None  # there is no state, as during a recovery, or it is not in this process
        step = step_of(session.raw) if self.step_at_end is None else self.step_at_end
        return _unsaved(step, session.first_step, self._hooks.hooks)


def _unsaved(step: int | None, first_step: int | None, hooks: Iterable[Any]) -> str | None:
    """Return a phrase about the state of a step if no hook has saved it, or None.

    Args:
        step: the last completed one, or None if steps are not counted.
        first_step: the step of the state that was initialised or restored.
        hooks: of the session.
    """
    members = [members_of(HookMembers, hook) for hook in hooks]
    saved = [hook.saved_step for hook in members if hook.saved_step is not None]
    is_new = step == first_step and any(hook.end_secs > 0 for hook in members)
    if step is not None and (is_new or step in saved):
        return None
    last = f"the last saved state is that of step {max(saved)}" if saved else "no hook saves it"
    what = "the state" if step is None else f"the state of step {step}"
    return f"{what} is not saved: {last}"
