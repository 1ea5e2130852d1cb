"""``RecordingHook`` writes down the calls of its methods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon.runtime.hook import SessionRunArgs, SessionRunContext, SessionRunValues
from asyncmon.testing import Recorded, RecordingHook, ScriptedSession

pytestmark = pytest.mark.asyncio


async def live(session: ScriptedSession, *hooks: RecordingHook) -> None:
    """Call the hooks' methods as a session with one run does."""
    coord: Any = object()
    context = SessionRunContext(SessionRunArgs("train"), session)
    for hook in hooks:
        await hook.begin()
    for hook in hooks:
        await hook.after_create_session(session, coord)
    for hook in hooks:
        await hook.before_run(context)
    await session.run("train")
    for hook in hooks:
        await hook.after_run(context, SessionRunValues(None, None, None, session.global_step))
    for hook in hooks:
        await hook.end(session)
    for hook in reversed(hooks):
        await hook.cleanup(KeyError("x"))


async def test_calls_are_recorded_in_order_with_their_steps() -> None:
    hook, session = RecordingHook("A"), ScriptedSession(state={"global_step": 7})
    await live(session, hook)
    assert hook.record == [
        Recorded("A", "begin", None),
        Recorded("A", "after_create_session", 7),
        Recorded("A", "before_run", 7),
        Recorded("A", "after_run", 8),
        Recorded("A", "end", 8),
        Recorded("A", "cleanup", None),
    ]
    assert hook.moments()[-2:] == ["end", "cleanup"]
    assert hook.steps("after_run") == [8]
    assert hook.sessions == [session]
    assert isinstance(hook.error, KeyError)


async def test_hooks_share_a_record() -> None:
    record: list[Recorded] = []
    await live(ScriptedSession(), RecordingHook("A", record=record), RecordingHook("B", record=record))
    assert [entry.hook for entry in record] == ["A", "B"] * 5 + ["B", "A"]


async def test_it_requests_fetches_only_if_so_configured() -> None:
    context = SessionRunContext(SessionRunArgs("train"), ScriptedSession())
    assert await RecordingHook().before_run(context) is None
    asking = RecordingHook(fetches="loss", feed_dict={"x": 1})
    assert await asking.before_run(context) == SessionRunArgs("loss", {"x": 1})
    assert await RecordingHook(fetches=[]).before_run(context) == SessionRunArgs([])
    await asyncio.sleep(0)
