"""The first half of a session's life, up to the first run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.runtime.passengers import Passengers
from asyncmon.runtime.program import as_program, program_scope

if TYPE_CHECKING:
    from contextlib import ExitStack

    from asyncmon.runtime.coordinated import Coordinated
    from asyncmon.runtime.hook_set import HookSet

__all__ = ["begin", "tell_created"]


async def begin(creator: Any, hooks: HookSet, undo: ExitStack) -> Passengers:
    """Call the hooks' ``begin``, finalize the program, and let hooks with a state travel.

    The program is the creator's, where it knows one, else the default graph; hooks find it by
    ``current_program()``.

    Args:
        creator: of sessions.
        hooks: in order.
        undo: given what is to be done once the session has ended.
    """
    program = as_program(getattr(creator, "program", None))
    with program_scope(program):
        await hooks.begin()
    unfinalize = getattr(program, "unfinalize", None)
    if unfinalize is not None and not program.finalized:
        undo.callback(unfinalize)
    prepare = getattr(creator, "prepare", None)
    if prepare is None:
        return Passengers(None)
    passengers = Passengers(prepare().saver)
    undo.callback(passengers.remove)
    passengers.add(hooks.hooks)
    return passengers


async def tell_created(session: Coordinated, hooks: HookSet) -> None:
    """Start what the program wants to run beside its sessions (queue runners), then tell the hooks."""
    program = as_program(getattr(session.raw, "graph", session.raw))
    start_producers = getattr(program, "start_producers", None)
    if start_producers is not None:
        start_producers(session.raw, session.coord)
    await hooks.created(session.raw, session.coord)
