"""The end of a session, where what it calls does not end as it should."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from asyncmon.runtime import MonitoredSession
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession, fail_in

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def scripted(*hooks: Any, **kwargs: Any) -> MonitoredSession:
    return MonitoredSession(ScriptedCreator(ScriptedSession([1])), hooks, **kwargs)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Takes no notes."""

    code: int


class Unspeakable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise LookupError("no words")


async def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [Frozen(503), Unspeakable()], ids=["frozen", "unspeakable"])
@pytest.mark.parametrize("where", ["body", "beside", "end", "cleanup"])
async def test_an_exception_that_cannot_be_described_leaves_as_itself(
    where: str, error: Exception
) -> None:
    first, last = RecordingHook("first"), RecordingHook("last")
    if where in ("end", "cleanup"):
        hooks = [first, fail_in(where, error), last]  # type: ignore[arg-type]
    else:
        hooks = [first, fail_in("end", KeyError("other")), fail_in("cleanup", KeyError("other")), last]
    sess = scripted(*hooks)

    async def body() -> None:
        async with sess:
            if where == "beside":
                sess.coord.create_task(fail, error)  # type: ignore[union-attr]
                await asyncio.sleep(1)
            if where == "body":
                raise error

    with pytest.raises(type(error)) as caught:
        await body()
    assert caught.value is error
    assert first.moments()[-1] == last.moments()[-1] == "cleanup"
    assert sess.should_stop()
