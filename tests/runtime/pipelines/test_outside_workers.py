"""Workers outside of the loop: errors, values that are made again, ends, and commits without steps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.errors import AbortedError
from asyncmon.runtime.pipelines import Lease, Policy
from tests.faults import FailAfterCommit
from tests.runtime.pipelines.conftest import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Broken(Exception):
    pass


class Failing:
    """Fails the first calls for the element 3."""

    name = "failing"

    def __init__(self, times: int) -> None:
        self.times = times
        self.policies: list[int] = []

    async def serve(self, pipeline: Any) -> None:
        while (lease := await pipeline.lease()) is not None:
            await asyncio.sleep(0.01)
            if lease.element == 3 and self.times:
                self.times -= 1
                pipeline.fail(lease, Broken("no 3"))
            else:
                self.policies.append(lease.policy.version)
                pipeline.complete(lease, lease.element)


@pytest.mark.parametrize("group", [None, 2])
async def test_value_of_an_item_that_failed_is_made_again_by_its_workers(
    bench: Bench, group: int | None
) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(6), Failing(1), ordered=True, on_error="item", group=group)
        async for item in made:
            try:
                value = await item.result()
            except Broken:
                value = await item.result()
            await sess.run("use", {"batch": [value]})
    assert bench.used == [n if group is None else [n, n] for n in range(6)]
    assert made.name == "failing"
    assert made.statistics().running == 0


async def test_value_that_fails_again_is_an_error_again(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(4), Failing(2), ordered=True, on_error="item")
        items = [item async for item in made]
        for _ in range(2):
            with pytest.raises(Broken):
                await items[3].result()
        assert await items[3].result() == 3


async def test_worker_that_releases_such_a_call_gets_it_again(bench: Bench) -> None:
    leases: list[Lease] = []

    async def work(made: Any) -> None:
        while (lease := await made.lease()) is not None:
            leases.append(lease)
            if len(leases) == 1:
                made.fail(lease, Broken())
            elif len(leases) == 2:
                assert made.release(lease)
                assert not made.complete(lease, "late")
            else:
                assert made.complete(lease, "made")

    async with bench.session() as sess:
        made = sess.produce([0], None, on_error="item")
        worker = asyncio.create_task(work(made))
        [item] = [item async for item in made]
        with pytest.raises(Broken):
            await item.result()
        assert await item.result() == "made"
    await worker


async def test_stop_ends_the_wait_for_such_a_value_with_its_error(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce([0], None, on_error="item")
        learner = asyncio.create_task(anext(made.batches(1)))
        lease = await made.lease()
        assert lease is not None
        made.fail(lease, Broken())
        [item] = await learner
        with pytest.raises(Broken):
            await item.result()
        waits = [asyncio.create_task(item.result()) for _ in range(2)]
        await made.lease()  # of the first one
        sess.request_stop()
        done = await asyncio.gather(*waits, return_exceptions=True)
        with pytest.raises(Broken):
            await item.result()
    assert [type(one) for one in done] == [Broken, Broken]


async def test_recovery_in_the_run_of_such_a_value_lets_it_be_made(bench: Bench) -> None:
    """The repeated run calls ``result`` again."""
    async with bench.session(1000, FailAfterCommit(2)) as sess:
        made = sess.produce(range(6), Failing(1), ordered=True, on_error="item")

        async def step(step_context: am.StepContext) -> None:
            value = await item.result()
            await step_context.session.run("use", {"batch": [value]})

        async for item in made:  # noqa: B007 - the step uses it
            try:
                await sess.run_step_fn(step)
            except Broken:
                await sess.run_step_fn(step)
    assert sorted(set(bench.used)) == list(range(6))


@pytest.mark.parametrize("error", [Broken("no"), AbortedError("preempted")])
async def test_worker_that_waits_ends_after_the_error_of_another_one(
    bench: Bench, error: Exception
) -> None:
    """The error stops the session, or the body continues after one that it would recover from."""
    ended: list[Lease | None] = []

    async def wait(made: Any) -> None:
        while (lease := await made.lease()) is not None:
            ended.append(lease)
            made.complete(lease, lease.element)
        ended.append(None)

    async def train() -> None:
        async with bench.session() as sess:
            made = sess.produce(range(4), None, workers=1)
            learner = asyncio.create_task(bench.train(sess, made, 1))
            first = await made.lease()
            assert first is not None
            workers.append(asyncio.create_task(wait(made)))
            await asyncio.sleep(1)
            assert not ended
            made.fail(first, error)
            try:
                await learner
            except AbortedError:
                await bench.train(sess, made, 1)

    workers: list[asyncio.Task[None]] = []
    if isinstance(error, Broken):
        with pytest.raises(Broken):
            await train()
        assert ended == [None]
    else:
        await train()
        assert sorted(bench.used) == list(range(4))
    await workers[0]


async def test_lease_that_is_open_at_the_close_is_refused(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(4), None)
        learner = asyncio.create_task(bench.train(sess, made))
        lease = await made.lease()
        assert lease is not None
        sess.request_stop()
        await learner
    assert not lease.is_open
    assert not made.complete(lease, 0)
    assert not made.fail(lease, Broken())
    assert not made.release(lease)
    assert await made.lease() is None


async def test_executor_that_fails_stops_the_session(bench: Bench) -> None:
    class Broke:
        async def serve(self, pipeline: Any) -> None:
            await pipeline.lease()
            raise Broken("no machine")

    with pytest.raises(Broken, match="no machine"):
        async with bench.session() as sess:
            await bench.train(sess, sess.produce(range(4), Broke()))


async def test_executor_that_ends_early_stops_the_session(bench: Bench) -> None:
    class Once:
        async def serve(self, pipeline: Any) -> None:
            pipeline.complete(lease := await pipeline.lease(), lease.element)

    with pytest.raises(RuntimeError, match="has ended before the session stops"):
        async with bench.session() as sess:
            await bench.train(sess, sess.produce(range(4), Once()))


async def test_acknowledgement_waits_for_a_commit_of_a_program_without_steps(tmp_path: Path) -> None:
    with g.Graph().as_default():
        weight = g.get_variable("weight", initializer=1.0)
        add = weight.assign_add(1.0)
        saver = am.Saver()
        async with am.MonitoredSession(am.ChiefSessionCreator(am.Scaffold(saver=saver))) as sess:
            assert sess.global_step is None
            made = sess.produce(iter(range(8)), double, workers=2, depth=2)
            for number in range(3):
                await anext(made.batches(2))
                await sess.run(add)
                acknowledged = asyncio.create_task(made.wait_commit())
                await asyncio.sleep(1)
                assert not acknowledged.done()
                await saver.save(sess.raw_session(), str(tmp_path / "model"), global_step=number)
                await asyncio.sleep(1)
                assert acknowledged.done()


async def double(element: int) -> int:
    return 2 * element


@pytest.mark.parametrize("old", [{0}, {0, 1}, {1}, {0, 2}])
async def test_ordered_element_begins_though_later_results_have_all_room(
    bench: Bench, old: set[int]
) -> None:
    """Results in a checkpoint that are too old are made again, in their order."""
    go_on = asyncio.Event()

    async def make(element: int, policy: Policy) -> int:
        if element not in old:
            await go_on.wait()
            await policy.weights()
        return element

    options: dict[str, Any] = {"name": "made", "depth": 9, "keep": "results", "ordered": True}
    async with bench.session(last=6) as sess:
        made = sess.produce(range(9), make, workers=9, weights="weight", **options)
        learner = asyncio.create_task(anext(made.batches(9)))
        for _ in range(5):
            await sess.run("use", {"batch": []})
        go_on.set()
        await learner
        await sess.save()
        sess.request_stop()
    state = await bench.state("made")
    assert {int(n) for n, (version, _) in state["results"].items() if version == 0} == old
    async with bench.session() as sess:
        made = sess.produce(range(9), bench.make, workers=2, max_age=1, **options)
        await bench.train(sess, made, 2)
    assert bench.used == list(range(9))
    assert bench.calls[0] == min(old)
