"""Sentences about an open call: its name, and where it waits."""

from __future__ import annotations

from asyncmon.runtime.hook import SessionRunContext, hook_name
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.protocols import SessionMembers
from asyncmon.runtime.step_fn import StepContext
from asyncmon.runtime.stop.interrupt import CallScope, CallScopes
from asyncmon.system.error_text import where_it_waits, where_threads_are
from asyncmon.system.members import members_of


def describe_call(scopes: CallScopes, hooks: HookSet, scope: CallScope) -> tuple[str, str]:
    """Return the name of an open call, and where it waits or computes.

    Args:
        scopes: of the session.
        hooks: of the session.
        scope: the call.
    """
    task, run, hook, raw = scope.task, scopes.current.run, hooks.running, hooks.observers.raw
    assert task is not None, "the scope is open"
    if scope.kind in ("opening", "creation"):
        subject = "The opening of a session"
    elif scope.kind == "bare run":
        subject = "A run without hooks"
    elif scope.kind == "sample":
        return "The wait of sample() for the next run", where_it_waits(task)
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
