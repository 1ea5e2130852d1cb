"""Faults of public trainers, which a pipeline cannot have. A comment names the report of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest

import asyncmon as am
from asyncmon.data import from_iterable
from asyncmon.errors import AbortedError, RecoveredError
from asyncmon.runtime.pipelines import Item, Policy
from asyncmon.testing import assert_nothing_left_behind
from tests.faults import FailAfterCommit
from tests.runtime.pipelines.conftest import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def spans(state: dict[str, Any]) -> list[int]:
    return [number for first, end in state["outstanding"] for number in range(first, end)]


# NVIDIA-NeMo/RL#3599: the saved cursor runs ahead of training; work in flight is saved nowhere
async def test_slow_elements_are_outstanding_in_a_checkpoint(bench: Bench) -> None:
    async def make(element: int) -> int:
        await asyncio.sleep(60 if element % 10 == 0 else 0.01)
        return element

    async with bench.session(last=6) as sess:
        await bench.train(sess, sess.produce(range(40), make, workers=8, depth=16, name="made"))
    state = await bench.state("made")
    assert {0, 10, 20} <= set(spans(state))
    assert sorted([*bench.used, *spans(state)]) == list(range(state["taken"]))
    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(40), make, workers=8, name="made"))
    assert sorted(bench.used) == list(range(40))


# OpenRLHF#1322: rollouts that were made and not trained are dropped on resume
async def test_finished_and_unused_elements_come_again(bench: Bench) -> None:
    async with bench.session(last=1) as sess:
        await bench.train(sess, sess.produce(range(12), bench.make, workers=12, depth=12))
    assert len(bench.calls) == 12
    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(12), bench.make))
    assert sorted(bench.used) == list(range(12))


# OpenRLHF#1322: an epoch that has ended starts again on resume
@pytest.mark.parametrize("source", [range(8), from_iterable(range(8)).shuffle(4, seed=1)])
async def test_data_that_has_ended_does_not_begin_again(bench: Bench, source: Any) -> None:
    async with bench.session() as sess:
        await bench.train(sess, sess.produce(from_iterable(source), bench.make))
    async with bench.session() as sess:
        await bench.train(sess, sess.produce(from_iterable(source), bench.make))
        assert sess.global_step == 2
    assert len(bench.calls) == 8


# NVIDIA-NeMo/RL#3480: other options on resume throw parked groups away
async def test_options_may_change_on_resume(bench: Bench) -> None:
    async def number(element: int) -> Any:
        return await bench.make(element)

    first = {"workers": 8, "depth": 16, "max_age": 3, "group": 2, "keep": "results"}
    other = {"workers": 2, "depth": 4, "ordered": True, "group": 4}
    for last, options in ((2, first), (1000, other)):
        async with bench.session(last=last) as sess:
            made = sess.produce(range(20), number, name="made", **options)
            async for batch in made.batches(4):
                assert {len(item.value) for item in batch} == {options["group"]}
                await sess.run("use", {"batch": [item.element for item in batch]})
    assert sorted(bench.used) == list(range(20))


@pytest.mark.parametrize("groups", [(4, None), (None, 4)])
async def test_kept_results_of_other_groups_are_made_again(
    bench: Bench, groups: tuple[int | None, ...]
) -> None:
    async def play(element: int) -> list[int]:
        return [await bench.make(element)] * 4

    for last, group in zip((2, 1000), groups, strict=True):
        async with bench.session(last=last) as sess:
            made = sess.produce(range(20), play, group=group, keep="results")
            async for item in made:
                one = [item.element] * 4
                assert item.value == (one if group is None else [one] * 4)
                await sess.run("use", {"batch": [item.element]})
    assert sorted(bench.used) == list(range(20))


# NVIDIA-NeMo/RL#2651: reservations leak when workers fail
async def test_failed_calls_return_their_permits(bench: Bench) -> None:
    failures = Counter[int]()

    async def make(element: int) -> int:
        await asyncio.sleep(0.01)
        failures[element] += 1
        if failures[element] <= element % 4:
            raise ValueError(element)
        return element

    async with bench.session() as sess:
        made = sess.produce(range(40), make, workers=3, depth=4, retries=2, on_error="drop")
        await bench.train(sess, made)
    assert sorted(bench.used) == [n for n in range(40) if n % 4 < 3]
    assert made.statistics().running == made.statistics().queued == 0


# tinker-cookbook#107: hangs when the data ends. #480: a stale sample cannot be put back
@pytest.mark.parametrize("on_stale", ["pace", "drop"])
async def test_end_of_data_with_stale_samples_ends_the_training(bench: Bench, on_stale: Any) -> None:
    async def make(element: int) -> int:
        await asyncio.sleep(1 if element == 2 else 0.01)
        return element

    async with assert_nothing_left_behind(descriptors=False), bench.session() as sess:
        made = sess.produce(range(9), make, workers=8, depth=8, max_age=1, on_stale=on_stale)
        await bench.train(sess, made, 1)
    assert sorted(bench.used) == list(range(9))


# TRL#5320: a blocking put ignores the stop
async def test_stop_with_a_full_pipeline_ends_at_once(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    async with bench.session() as sess:
        made = sess.produce(range(1000), bench.make, workers=8, depth=8)
        await anext(made.batches(2))
        await asyncio.sleep(10)  # all places are taken
        sess.request_stop()
        begun = loop.time()
    assert loop.time() - begun < 0.5


# TRL#5320: a failed generation hangs its group
async def test_failed_member_ends_its_group_alone(bench: Bench) -> None:
    calls = 0

    async def make(element: int) -> int:
        nonlocal calls
        calls += 1
        if element == 1 and calls % 3 == 0:
            raise ValueError(element)
        await asyncio.sleep(0.1)
        return element

    async with bench.session() as sess:
        made = sess.produce(range(6), make, workers=6, group=3, on_error="drop")
        async for batch in made.batches(2):
            await sess.run("use", {"batch": [item.element for item in batch]})
    assert sorted(bench.used) == [0, 2, 3, 4, 5]


# TRL#7035: one step more when resumed at the target
async def test_no_call_is_made_at_a_target_that_is_reached(bench: Bench) -> None:
    for calls in (8, 0):
        bench.calls.clear()
        async with bench.session(last=2) as sess:
            await bench.train(sess, sess.produce(range(40), bench.make, workers=4, depth=4))
            assert sess.global_step == 2
        assert (len(bench.calls) >= calls) if calls else not bench.calls


# TRL#5911: resume replays batches through the live generator
async def test_consumed_elements_are_not_made_again(bench: Bench) -> None:
    data = from_iterable(range(60)).shuffle(16, seed=2)
    async with bench.session(last=5) as sess:
        await bench.train(sess, sess.produce(data, bench.make, workers=2, depth=4))
    used = set(bench.used)
    bench.calls.clear()
    async with bench.session() as sess:
        again = from_iterable(range(60)).shuffle(16, seed=2)
        await bench.train(sess, sess.produce(again, bench.make, workers=2, depth=4))
    assert not used & set(bench.calls)
    assert sorted(bench.used) == list(range(60))


# TRL#5749: a stop is lost between process and loop
async def test_stop_before_the_first_request_is_seen(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(40), bench.make)
        sess.request_stop()
        assert [batch async for batch in made.batches(2)] == []
    assert not bench.calls


# SkyRL#1446: saves on the loop stall generation
async def test_calls_continue_beside_a_save(bench: Bench) -> None:
    finished, progress = list[int](), list[int]()

    class Listener(am.CheckpointSaverListener):
        async def before_save(self, session: Any, global_step_value: int) -> None:
            before = len(finished)
            await asyncio.sleep(1)
            progress.append(len(finished) - before)

    async def make(element: int) -> int:
        await asyncio.sleep(0.05)
        finished.append(element)
        return element

    saver = am.CheckpointSaverHook(str(bench.directory), save_steps=2, listeners=[Listener()])
    async with bench.session(4, saver, save_steps=None) as sess:
        made = sess.produce(range(100), make, workers=2, depth=60)
        await bench.train(sess, made, 2)
    assert progress[1] > 2  # the first save is that of step 0, the last one comes to full places


def straggler(made: Counter[int]) -> Any:
    async def make(element: int) -> int:
        made[element] += 1
        await asyncio.sleep(2 if element == 5 else 0.05)
        return element

    return make


# tinker-cookbook#822: discarding wastes work, and the typical age sits at the bound
# prime-rl#491: the trainer jumps ahead and trains on stale rollouts
@pytest.mark.parametrize("max_age", [1, 2, 4])
async def test_learner_waits_for_a_straggler_and_nothing_is_made_twice(
    bench: Bench, max_age: int
) -> None:
    made, items = Counter[int](), list[Item]()
    async with bench.session() as sess:
        pipeline = sess.produce(range(80), straggler(made), workers=8, depth=16, max_age=max_age)
        async for batch in pipeline.batches(4):
            items += batch
            assert all(sess.global_step - item.version <= max_age for item in batch)
            await sess.run("use", {"batch": [item.value for item in batch]})
    assert set(made.values()) == {1}
    assert sorted(bench.used) == list(range(80))
    assert max(item.age for item in items) <= max_age
    assert pipeline.statistics().mean_age < max_age


# slime#1800: no versions, no partial rollouts
async def test_interrupted_call_keeps_the_oldest_version(bench: Bench) -> None:
    async def generate(element: int, policy: Policy) -> list[int]:
        versions = [policy.version]
        for _ in range(4):
            await asyncio.sleep(0.1)
            if policy.newer:
                await policy.weights()
                versions.append(policy.version)
        return versions

    async with bench.session() as sess:
        made = sess.produce(range(24), generate, workers=8, max_age=8, weights="weight")
        async for batch in made.batches(2):
            assert all(item.version == item.value[0] for item in batch)
            assert all(item.value == sorted(set(item.value)) for item in batch)
            await sess.run("use", {"batch": [item.element for item in batch]})


# torchtitan#3642: learner done and producer crashed at the same time: which one wins?
@pytest.mark.parametrize("crash_first", [True, False])
async def test_first_end_is_the_reason(bench: Bench, crash_first: bool) -> None:
    crash = asyncio.Event()

    async def make(element: int) -> int:
        if element == 9:
            await crash.wait()
            raise ValueError("crashed")
        return element

    async def train() -> Any:
        async with bench.session() as sess:
            pipeline = sess.produce(range(20), make, workers=12)
            await anext(pipeline.batches(2))
            if crash_first:
                crash.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                await asyncio.sleep(0.1)
            sess.request_stop("done")
            crash.set()
            await bench.train(sess, pipeline)
        return sess

    if crash_first:
        with pytest.raises(ValueError, match="crashed"):
            await train()
    else:
        assert (await train()).stop_reason == "done"


# UniRL#310, miles#1697: an age is counted in batches here, in optimizer steps there
async def test_age_counts_committed_steps(bench: Bench) -> None:
    items: list[Item] = []
    async with bench.session() as sess:
        made = sess.produce(range(48), bench.make, workers=8, depth=16, max_age=4)
        async for batch in made.batches(4):
            items += batch
            for _ in range(4):
                await sess.run("use", {"batch": []})
    assert sess.global_step == 48
    assert {item.version % 4 for item in items if isinstance(item.version, int)} <= {0, 1, 2, 3}
    assert 0 < max(item.age for item in items) <= 4


async def test_recovery_that_loses_steps_uses_each_element_once(bench: Bench) -> None:
    async with bench.session(1000, FailAfterCommit(5), save_steps=3) as sess:
        made = sess.produce(range(40), bench.make, workers=4, max_age=2)
        await bench.train(sess, made)
        assert await sess.peek("weight") == 10
    lost = Counter(bench.used)
    assert set(lost) == set(range(40))


async def test_started_group_ends_before_a_released_one_begins_again(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(2), None, workers=3, group=2, max_age=0)
        pair = asyncio.create_task(anext(made.batches(2)))
        leases = [await made.lease() for _ in range(3)]
        pair.cancel()
        await asyncio.wait([pair])
        for lease in leases[:2]:
            assert lease is not None
            made.release(lease)
        single = asyncio.create_task(anext(made.batches(1)))  # which leaves room for one element
        async with asyncio.timeout(10):
            following = await made.lease()
        assert following is not None
        assert (following.ordinal, following.member) == (1, 1)
        single.cancel()


async def test_fetch_that_waits_continues_after_a_recovery(bench: Bench) -> None:
    async with bench.session(1000, FailAfterCommit(2), save_steps=None) as sess:
        batches = sess.produce(range(20), bench.make, max_age=0).batches(4)
        batch = await anext(batches, None)
        async with asyncio.timeout(60):
            while batch is not None:
                following = asyncio.create_task(anext(batches, None))
                await sess.run("use", {"batch": [item.value for item in batch]})
                batch = await following
        assert sess.global_step == 5


async def test_fetch_does_not_wait_for_the_run_of_a_task_that_has_ended(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(20), bench.make, max_age=0)

        async def leave() -> None:
            await anext(made.batches(4))
            await asyncio.sleep(1)

        async with asyncio.timeout(60):
            await asyncio.gather(leave(), bench.train(sess, made))
        assert made.statistics().consumed == 20


async def test_batch_of_a_task_that_fails_is_made_again(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(20), bench.make)

        async def fail() -> None:
            await anext(made.batches(4))
            raise ValueError

        await asyncio.gather(fail(), bench.train(sess, made), return_exceptions=True)
        assert made.statistics().consumed == 16
    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(20), bench.make))
    assert sorted(bench.used) == list(range(20))


class SaveAgain(am.SessionRunHook):
    """Captures the state of a pipeline as a saver does that saves what a recovery has restored."""

    def __init__(self) -> None:
        self.made: Any = None
        self.states: list[Any] = []

    async def after_create_session(self, session: Any, coord: Any) -> None:
        if self.made is not None:
            self.states.append(self.made.state_dict())

    async def before_run(self, run_context: Any) -> None:
        if run_context.session.global_step == 3 and not self.states:
            raise AbortedError("preempted")


async def test_state_that_is_saved_in_a_recovery_is_the_restored_one(bench: Bench) -> None:
    hook = SaveAgain()
    async with bench.session(1000, hook, save_steps=2) as sess:
        hook.made = sess.produce(range(20), bench.make, ordered=True)
        await bench.train(sess, hook.made)
    [state] = hook.states
    assert state["step"] == 2
    assert state["outstanding"] == [[8, 20]]


async def test_state_of_lost_steps_is_not_that_of_a_later_commit(bench: Bench) -> None:
    calls = Counter[int]()

    async def make(element: int) -> int:
        calls[element] += 1
        await asyncio.sleep(10 if calls[element] == 2 and element < 4 else 0.01)
        return element

    hook = SaveAgain()
    async with bench.session(1000, hook, save_steps=1000, repeat_runs=False) as sess:
        made = hook.made = sess.produce(iter(range(40)), make)
        async for batch in made.batches(4):
            if sess.global_step == 3 and not hook.states:
                made.state_dict()  # of a save that does not commit
            with contextlib.suppress(RecoveredError):
                await sess.run("use", {"batch": [item.value for item in batch]})
            if sess.global_step >= 3 and hook.states:
                await sess.save()
        assert made.statistics().consumed == 40
