"""EarlyStoppingHook and its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver
from asyncmon.hooks import CheckpointSaverHook, EarlyStoppingHook, EvalHook, stop_if
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.runtime.session_creators import ChiefSessionCreator

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

NAN = float("nan")


def scored(scores: Sequence[float]) -> FunctionProgram:
    """Step n scores the n-th of some numbers."""
    program = FunctionProgram(state={"n": 0})

    @program.step
    def train(state: Any) -> None:
        state["n"] += 1

    @program.step(read_only=True)
    def test(state: Any) -> dict[str, float]:
        return {"score": scores[int(state["n"]) - 1]}

    return program


async def steps_until_stop(
    scores: Sequence[float], make: Callable[..., EarlyStoppingHook] = stop_if, **rule: Any
) -> tuple[int, str | None]:
    evaluation = EvalHook("test", every_steps=1, concurrent=False)
    hooks = [evaluation, make(evaluation, "score", **rule)]
    sess = MonitoredSession(ChiefSessionCreator(program=scored(scores)), hooks)
    step = 0
    async with sess:
        while not sess.should_stop() and step < len(scores):
            await sess.run("train")
            step += 1
    return step, sess.stop_reason


@pytest.mark.parametrize(
    ("scores", "patience", "expected"),
    [
        ([5, 4, 4.5, 4, 3, 3, 3, 3, 9, 9], 3, 8),
        ([5, 6, 7], 1, 2),
        ([5, 4, 3, 2], 1, 4),
        ([NAN, NAN, 1], 2, 2),
    ],
)
async def test_no_decrease(scores: list[float], patience: int, expected: int) -> None:
    step, reason = await steps_until_stop(scores, no_decrease_in=patience)
    assert step == expected
    if step < len(scores):
        assert str(reason).startswith(
            f"no decrease of 'score' in {patience} evaluations up to step {step}"
        )


async def test_no_increase() -> None:
    step, reason = await steps_until_stop([1, 2, 2, 1.5, 9], no_increase_in=2)
    assert step == 4
    assert reason == ("no increase of 'score' in 2 evaluations up to step 4; the best was 2, at step 2")


async def test_a_little_better_can_be_not_enough() -> None:
    scores = [1, 1.05, 1.08, 1.2, 1.25]
    assert (await steps_until_stop(scores, no_increase_in=2, min_delta=0.1))[0] == 3
    assert (await steps_until_stop(scores, no_increase_in=2))[0] == 5


async def test_early_evaluations_do_not_stop() -> None:
    assert (await steps_until_stop([1, 1, 1, 1, 1, 1], no_increase_in=1, min_steps=5))[0] == 5
    assert (await steps_until_stop([9, 9, 9, 9], above=1, min_steps=3))[0] == 3


async def test_an_evaluation_before_the_first_step_may_stop() -> None:
    evaluation = EvalHook("test", every_steps=1, concurrent=False, at_start=True)
    hooks = [evaluation, stop_if(evaluation, "score", no_decrease_in=1)]
    async with MonitoredSession(ChiefSessionCreator(program=scored([NAN])), hooks) as sess:
        assert sess.should_stop()


async def test_thresholds() -> None:
    assert await steps_until_stop([1, 2, 2.5, 9], above=2) == (
        3,
        "'score' = 2.5 at step 3, above 2",
    )
    assert await steps_until_stop([5, 2, 1.5, 0], below=2) == (
        3,
        "'score' = 1.5 at step 3, below 2",
    )
    assert (await steps_until_stop([2, 2, NAN], above=2))[0] == 3


async def test_an_unknown_metric_is_named() -> None:
    evaluation = EvalHook("test", every_steps=1)
    hooks = [evaluation, stop_if(evaluation, "accuracy", above=1)]
    sess = MonitoredSession(ChiefSessionCreator(program=scored([1] * 9)), hooks)

    async def train() -> None:
        async with sess:
            for _ in range(5):
                await sess.run("train")

    with pytest.raises(
        KeyError, match=r"There is no metric 'accuracy'; the evaluation has \['score'\]"
    ):
        await train()


async def test_an_evaluation_that_is_not_among_the_hooks_is_missed() -> None:
    evaluation = EvalHook("test", every_steps=1)
    hooks = [stop_if(evaluation, "score", above=1)]
    sess = MonitoredSession(ChiefSessionCreator(program=scored([1] * 9)), hooks)
    with pytest.raises(RuntimeError, match="the EvalHook that makes them is not among the session's"):
        await sess.start()


async def test_a_new_session_begins_again() -> None:
    """Where nothing is restored: neither the stop nor the best value of the first session counts."""
    evaluation = EvalHook("test", every_steps=1, concurrent=False)
    hooks = [evaluation, stop_if(evaluation, "score", no_decrease_in=2)]
    for scores in ([1, 2, 2], [9, 8, 7, 7, 7]):
        sess = MonitoredSession(ChiefSessionCreator(program=scored(scores)), hooks)
        async with sess:
            for _ in scores:
                assert not sess.should_stop()
                await sess.run("train")
            assert sess.should_stop()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "takes exactly one of no_decrease_in, no_increase_in, above, below, got {}"),
        ({"above": 1.0, "below": 0.0}, "exactly one of .* got {'above': 1.0, 'below': 0.0}"),
        ({"no_decrease_in": 0}, "invalid no_decrease_in=0"),
        ({"no_increase_in": 0}, "invalid no_increase_in=0"),
        ({"above": 1.0, "min_delta": 0.1}, "min_delta=0.1 has no meaning with above="),
    ],
)
async def test_wrong_rules_are_refused(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stop_if(EvalHook("test", every_steps=1), "score", **rule)


async def test_a_hook_listens_only_while_its_session_is_open() -> None:
    """Construction registers nothing, and a later session of the evaluation is not stopped."""
    evaluation = EvalHook("test", every_steps=1, concurrent=False)
    asked: list[int] = []

    class Rule:
        def __call__(self, step: int, metrics: Mapping[str, float]) -> str | None:
            asked.append(step)
            return None

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    stop = EarlyStoppingHook(evaluation, Rule())
    for hooks in ([evaluation], [evaluation, stop], [evaluation], [stop, evaluation]):
        async with MonitoredSession(ChiefSessionCreator(program=scored([1])), hooks) as sess:
            await sess.run("train")
    assert asked == [1, 1]  # once in each session that it is a hook of


async def test_the_state_travels_in_the_checkpoints(tmp_path: Path) -> None:
    """Two misses before the restart and one after it are three; a stopped one stays stopped."""
    scores = [5, 4, 4, 4, 4, 4, 4]
    ends = []
    for runs in (4, 9, 9):
        scaffold = Scaffold(saver=Saver())
        evaluation = EvalHook("test", every_steps=1, concurrent=False)
        hooks = [
            evaluation,
            stop_if(evaluation, "score", no_decrease_in=3),
            CheckpointSaverHook(tmp_path, save_steps=100, scaffold=scaffold),
        ]
        creator = ChiefSessionCreator(scaffold, program=scored(scores), checkpoint_dir=str(tmp_path))
        async with MonitoredSession(creator, hooks) as sess:
            for _ in range(runs):
                if sess.should_stop():
                    break
                await sess.run("train")
            raw = sess.raw_session()
            ends.append(None if raw is None else raw.global_step)
    assert ends == [4, 5, 5]


@pytest.mark.parametrize(
    ("first", "then", "steps"),
    [
        ({"no_decrease_in": 2}, {"no_decrease_in": 4}, [3, 5]),
        ({"no_decrease_in": 4}, {"no_decrease_in": 2}, [4, 4]),
        ({"no_decrease_in": 2}, {"no_decrease_in": 2, "min_steps": 6}, [3, 6]),
        ({"above": 3}, {"above": 10}, [1, 7]),
        ({"above": 10}, {"above": 3}, [4, 4]),
        ({"no_decrease_in": 2}, {"no_increase_in": 2}, [3, 6]),
        ({"above": 3}, {"no_decrease_in": 2}, [1, 4]),
    ],
)
async def test_a_restored_verdict_is_judged_again_with_other_arguments(
    tmp_path: Path, first: dict[str, Any], then: dict[str, Any], steps: list[int]
) -> None:
    ends = []
    for rule, runs in ((first, 4), (then, 7)):
        scaffold = Scaffold(saver=Saver())
        evaluation = EvalHook("test", every_steps=1, concurrent=False)
        hooks = [
            evaluation,
            stop_if(evaluation, "score", **rule),
            CheckpointSaverHook(tmp_path, save_steps=100, scaffold=scaffold),
        ]
        creator = ChiefSessionCreator(
            scaffold, program=scored([4, 4, 4, 4, 4, 4, 4]), checkpoint_dir=str(tmp_path)
        )
        async with MonitoredSession(creator, hooks) as sess:
            while not sess.should_stop() and sess.global_step < runs:
                await sess.run("train")
            ends.append(sess.global_step)
    assert ends == steps


async def test_a_rule_of_ones_own() -> None:
    class Odd:
        def __call__(self, step: int, metrics: Mapping[str, float]) -> str | None:
            return "an odd score" if metrics["score"] % 2 else None

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    step, reason = await steps_until_stop(
        [2, 4, 7, 8], lambda evaluation, _: EarlyStoppingHook(evaluation, Odd())
    )
    assert (step, reason) == (3, "an odd score")


async def test_an_attached_hook_listens_until_it_is_detached() -> None:
    evaluation = EvalHook("test", every_steps=1, concurrent=False)
    creator = ChiefSessionCreator(program=scored([5] * 9))
    async with MonitoredSession(creator, [evaluation]) as sess:
        attached = await sess.attach(stop_if(evaluation, "score", no_decrease_in=2))
        await sess.run("train")
        await sess.run("train")
        await attached.detach()
        for _ in range(3):
            await sess.run("train")
        assert not sess.should_stop()
