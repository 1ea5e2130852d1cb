"""Sentences about a session: what a call waits for, and which state is not saved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asyncmon.runtime.hook import HookMembers, SessionRunContext, hook_name
from asyncmon.runtime.protocols import SessionMembers
from asyncmon.runtime.step_fn import StepContext
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.system.error_text import where_it_waits, where_threads_are
from asyncmon.system.members import members_of


def describe_call(scope: CallScope, run: object, hook: Any, raw: Any) -> tuple[str, str]:
    """Return the name of an open call, and where it waits or computes.

    Args:
        scope: the call.
        run: the context of the current run with hooks, or of the current step function.
        hook: the hook that is awaited in the current run, or None.
        raw: the raw session.
    """
    task = scope.task
    assert task is not None, "the scope is open"
    if scope.kind in ("opening", "creation"):
        subject = "The opening of a session"
    elif scope.kind == "bare run":
        subject = "A run without hooks"
    elif scope.kind == "data":
        return "The wait for data", where_it_waits(task)
    elif hook is not None:
        subject = f"The hook {hook_name(hook)}"
    elif isinstance(run, SessionRunContext):
        subject = f"The run of {run.original_args.fetches!r}"
    else:
        subject = "The step function" if isinstance(run, StepContext) else "The run"
    members = members_of(SessionMembers, raw)
    if hook is None and members.computing is not None and (threads := members.computing()):
        return subject, where_threads_are(threads) or where_it_waits(task)
    pending = members.pending_operations
    if hook is None and pending is not None and (operations := pending()):
        return subject, f"it waits for {', '.join(map(repr, operations))}"
    return subject, where_it_waits(task)


def unsaved_state(step: int | None, first_step: int | None, hooks: Iterable[Any]) -> str | None:
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
