"""StopAtStepHook: HK-STOP-1 to 6."""

from __future__ import annotations

from typing import Any

import pytest

from asyncmon import graph as g
from asyncmon.errors import AbortedError
from asyncmon.hooks import StopAtStepHook
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "One of num_steps or last_step must be specified."),
        ({"num_steps": 1, "last_step": 1}, "Only one of num_steps or last_step can be specified."),
    ],
)
async def test_one_of_the_two_is_needed_hk_stop_1(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StopAtStepHook(**arguments)


@pytest.mark.parametrize("value", [2.5, "3", None, [1]])
async def test_a_step_is_a_whole_number_hk_stop_1(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        StopAtStepHook(num_steps=value)


async def test_a_global_step_is_needed_hk_stop_1() -> None:
    with g.Graph().as_default(), pytest.raises(RuntimeError) as caught:
        await StopAtStepHook(1).begin()
    assert str(caught.value) == "Global step should be created to use StopAtStepHook."
    assert "am.get_or_create_global_step()" in caught.value.__notes__[0]


async def test_the_run_that_reaches_the_step_completes_and_is_the_last_hk_stop_2(train: Train) -> None:
    recorder = RecordingHook()
    session = await train(StopAtStepHook(last_step=5), recorder)
    assert session.global_step == 5
    assert recorder.steps("after_run") == [1, 2, 3, 4, 5]
    assert recorder.moments()[-2:] == ["end", "cleanup"]


async def test_num_steps_counts_from_the_first_step_hk_stop_3(train: Train) -> None:
    session = await train(
        StopAtStepHook(num_steps=10), session=ScriptedSession(state={"global_step": 250})
    )
    assert session.global_step == 260


async def test_a_recovery_does_not_count_from_zero_hk_stop_3() -> None:
    """WR-15: the target keeps; the steps are 1, 2, 1, 2, 3, 4."""
    recorder = RecordingHook()
    creator = ScriptedCreator(ScriptedSession([None, None, AbortedError("gone")]), ScriptedSession())
    async with MonitoredSession(creator, [StopAtStepHook(num_steps=4), recorder]) as sess:
        while not sess.should_stop():
            await sess.run("train")
    assert recorder.steps("after_run") == [1, 2, 1, 2, 3, 4]


@pytest.mark.parametrize("num_steps", [0, -5])
async def test_no_step_is_done_with_num_steps_of_zero_or_less_hk_stop_5(
    train: Train, num_steps: int
) -> None:
    session = await train(
        StopAtStepHook(num_steps=num_steps), session=ScriptedSession(state={"global_step": 250})
    )
    assert session.global_step == 250


async def test_num_steps_counts_from_zero_in_a_second_session(train: Train) -> None:
    hook = StopAtStepHook(num_steps=5)
    for first in (0, 5, 10):
        session = await train(hook, session=ScriptedSession(state={"global_step": first}))
        assert session.global_step == first + 5


async def test_runs_that_jump_stop_beyond_the_step_hk_stop_4(train: Train) -> None:
    session = await train(StopAtStepHook(last_step=10), session=ScriptedSession(steps_per_run=7))
    assert session.global_step == 14


async def test_runs_that_do_no_step_do_not_stop_hk_stop_4(train: Train) -> None:
    script = [None, {"global_step": 1}, {"global_step": 1}, None]
    session = await train(StopAtStepHook(last_step=2), session=ScriptedSession(script))
    assert len(session.runs) == 4


@pytest.mark.parametrize("arguments", [{"last_step": 250}, {"last_step": 9}, {"num_steps": 0}])
async def test_nothing_is_run_when_the_step_is_reached_already_hk_stop_5(
    train: Train, arguments: dict[str, int]
) -> None:
    """Also MT-21: a restart at the last step does no further step."""
    recorder = RecordingHook()
    session = ScriptedSession(state={"global_step": 250})
    await train(StopAtStepHook(**arguments), recorder, session=session)
    assert session.runs == []
    assert recorder.moments() == ["begin", "after_create_session", "end", "cleanup"]


async def test_the_earliest_of_two_wins_hk_stop_6(train: Train) -> None:
    session = await train(StopAtStepHook(last_step=7), StopAtStepHook(last_step=3))
    assert session.global_step == 3


async def test_the_reason_says_which_step() -> None:
    sess = MonitoredSession(ScriptedCreator(ScriptedSession()), [StopAtStepHook(last_step=2)])
    async with sess:
        while not sess.should_stop():
            await sess.run("train")
    assert "step 2 reached the last step, 2" in str(sess.stop_reason)
