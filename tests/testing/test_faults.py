"""Injected faults fire at their step or moment, the given number of times."""

from __future__ import annotations

from typing import Any

import pytest

from asyncmon.errors import AbortedError
from asyncmon.runtime.hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from asyncmon.testing import ScriptedSession, fail_at_step, fail_in

pytestmark = pytest.mark.asyncio


async def run(session: ScriptedSession, hook: SessionRunHook) -> None:
    context = SessionRunContext(SessionRunArgs("train"), session)
    await hook.before_run(context)
    await session.run("train")
    await hook.after_run(context, SessionRunValues(None, None, None, session.global_step))


async def test_the_step_is_not_done_when_its_run_fails_before() -> None:
    session, hook = ScriptedSession(), fail_at_step(3)
    await run(session, hook)
    await run(session, hook)
    with pytest.raises(AbortedError, match="before_run of step 3"):
        await run(session, hook)
    assert session.global_step == 2
    await run(session, hook)
    assert session.global_step == 3


async def test_the_step_is_done_when_its_run_fails_after() -> None:
    session, hook = (
        ScriptedSession(steps_per_run=10),
        fail_at_step(3, ValueError("x"), moment="after_run"),
    )
    with pytest.raises(ValueError, match="x"):
        await run(session, hook)
    assert session.global_step == 10


@pytest.mark.parametrize("moment", ["begin", "after_create_session", "end", "cleanup"])
async def test_a_moment_fails_as_often_as_configured(moment: Any) -> None:
    hook = fail_in(moment, KeyError("x"), times=2)
    arguments = {"begin": [], "after_create_session": [None, None]}.get(moment, [None])
    for _ in range(2):
        with pytest.raises(KeyError):
            await getattr(hook, moment)(*arguments)
    await getattr(hook, moment)(*arguments)
    await run(ScriptedSession(), hook)
