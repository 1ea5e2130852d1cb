"""Pipelines: options, order, groups, errors, versions, leases, and what a checkpoint has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from asyncmon.data import from_iterable
from asyncmon.errors import CancelledError, OutOfRangeError
from asyncmon.runtime.pipelines import Item, Lease, Policy
from asyncmon.testing import assert_nothing_left_behind
from tests.faults import FailAfterCommit
from tests.runtime.pipelines.conftest import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers=.* must be 1 or more, got 0"),
        ({"workers": True}, "workers=.* must be 1 or more, got True"),
        ({"depth": 0}, "depth=.* must be 1 or more"),
        ({"max_age": -1}, "max_age=.* must be 0 or more, got -1"),
        ({"group": 0}, "group=.* must be 1 or more"),
        ({"retries": -1}, "retries=.* must be 0 or more"),
        ({"on_stale": "wait"}, r"on_stale=.* must be one of \('pace', 'drop'\), got 'wait'"),
        ({"on_error": "skip"}, "on_error=.* must be one of"),
        ({"keep": "all"}, "keep=.* must be one of"),
        ({"ordered": "yes"}, "ordered=.* must be one of"),
        ({"name": 3}, "name=.* must be a text"),
    ],
)
async def test_wrong_options_are_refused(bench: Bench, options: Any, message: str) -> None:
    async with bench.session() as sess:
        with pytest.raises(ValueError, match=message):
            sess.produce([1], bench.make, **options)


async def test_plain_function_is_refused(bench: Bench) -> None:
    async with bench.session() as sess:
        with pytest.raises(TypeError, match="takes an `async def` function"):
            sess.produce([1], len)  # type: ignore[arg-type]  # refused


async def test_async_generator_function_is_refused_with_the_remedy(bench: Bench) -> None:
    async def make(element: int) -> Any:
        yield element

    async with bench.session() as sess:
        with pytest.raises(TypeError, match="return the results of an element as one value"):
            sess.produce([1], make)


@pytest.mark.parametrize("size", [5, 0, 2.0, "3", None])
async def test_batch_that_never_fills_is_refused(bench: Bench, size: Any) -> None:
    async with bench.session() as sess:
        with pytest.raises(ValueError, match="would never fill"):
            sess.produce([1], bench.make, depth=4).batches(size)


async def test_source_has_one_reader(bench: Bench) -> None:
    data = from_iterable(range(4))
    async with bench.session() as sess:
        sess.produce(data, bench.make)
        with pytest.raises(ValueError, match="is read by another pipeline"):
            sess.produce(data, bench.make)
        with pytest.raises(ValueError, match="is read by a pipeline"):
            sess.iterate(data)


@pytest.mark.parametrize("count", range(13))
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("max_age", [None, 0, 2])
async def test_data_ends_at_each_element(
    bench: Bench, count: int, ordered: bool, max_age: int | None
) -> None:
    async with assert_nothing_left_behind(descriptors=False), bench.session() as sess:
        made = sess.produce(range(count), bench.make, workers=3, ordered=ordered, max_age=max_age)
        await bench.train(sess, made)
        statistics = made.statistics()
    assert sorted(bench.used) == list(range(count))
    assert statistics.ended
    assert statistics.consumed == statistics.made == count


async def test_rest_is_dropped_on_request(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(10), bench.make)
        sizes = []
        async for batch in made.batches(4, drop_remainder=True):
            sizes.append(len(batch))
            await sess.run("use", {"batch": [item.value for item in batch]})
    assert sizes == [4, 4]


async def test_order_is_that_of_the_source(bench: Bench) -> None:
    async def slow_first(element: int) -> int:
        await asyncio.sleep(1.0 / (1 + element))
        return element

    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(12), slow_first, ordered=True))
    assert bench.used == list(range(12))


async def test_oldest_finished_elements_come_first_without_order(bench: Bench) -> None:
    async def slow_first(element: int) -> int:
        await asyncio.sleep(1.0 / (1 + element))
        return element

    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(12), slow_first), 2)
    assert sorted(bench.used) == list(range(12)) != bench.used


async def test_single_items(bench: Bench) -> None:
    async with bench.session() as sess:
        items = [item async for item in sess.produce([5, 6], bench.make)]
    assert sorted((item.ordinal, item.element, item.value) for item in items) == [(0, 5, 5), (1, 6, 6)]
    assert [(item.version, item.age, item.attempts) for item in items] == [(0, 0, 1)] * 2


async def test_group_is_delivered_whole(bench: Bench) -> None:
    count = 0

    async def number(element: int) -> tuple[int, int]:
        nonlocal count
        count += 1
        await asyncio.sleep(0.01 * (count * 7 % 5))
        return element, count

    async with bench.session() as sess:
        async for batch in sess.produce(range(6), number, workers=5, group=3).batches(2):
            for item in batch:
                assert [element for element, _ in item.value] == [item.element] * 3
            await sess.run("use", {"batch": [item.element for item in batch]})
    assert sorted(bench.used) == list(range(6))
    assert count == 18


# -- errors


class Broken(Exception):
    pass


def failing(times: int) -> Any:
    """Return a function that fails the first times for the element 3."""
    failures = 0

    async def make(element: int) -> int:
        nonlocal failures
        await asyncio.sleep(0.01)
        if element == 3 and failures < times:
            failures += 1
            raise Broken(f"no {element}")
        return element

    return make


async def test_error_stops_the_session_as_itself(bench: Bench) -> None:
    with pytest.raises(Broken, match="no 3"):
        async with bench.session() as sess:
            await bench.train(sess, sess.produce(range(8), failing(1)))


async def test_end_of_other_data_in_a_call_is_an_error(bench: Bench) -> None:
    async def make(element: int) -> int:
        raise OutOfRangeError("the queue is closed")

    with pytest.raises(OutOfRangeError):
        async with bench.session() as sess:
            await bench.train(sess, sess.produce(range(20), make))


async def test_error_interrupts_a_run(bench: Bench) -> None:
    async def run_beside() -> None:
        async with bench.session() as sess:
            await anext(sess.produce(range(8), failing(1), workers=1).batches(2))
            await asyncio.wait_for(sess.run("use", {"batch": range(1)}), 0.05)

    with pytest.raises(Broken, match="no 3"):
        await run_beside()


@pytest.mark.parametrize("retries", [1, 3])
async def test_call_is_repeated(bench: Bench, retries: int) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(8), failing(retries), retries=retries)
        await bench.train(sess, made)
    assert sorted(bench.used) == list(range(8))
    assert made.statistics().failures == retries


async def test_element_that_fails_is_dropped(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(8), failing(9), on_error="drop", group=2)
        async for batch in made.batches(4):
            await sess.run("use", {"batch": [item.element for item in batch]})
    assert sorted(bench.used) == [0, 1, 2, 4, 5, 6, 7]
    assert made.statistics().dropped == 1
    assert "Element 3 is dropped: Broken: no 3" in caplog.text


async def test_error_is_raised_in_the_run_of_its_item(bench: Bench) -> None:
    raised: list[int] = []
    async with bench.session() as sess:
        made = sess.produce(range(8), failing(1), ordered=True, on_error="item")
        async for item in made:
            try:
                value = await item.result()
            except Broken:
                raised.append(item.element)
                value = await item.result()  # a further call makes it, as in a repeated run
            await sess.run("use", {"batch": [value]})
    assert raised == [3]
    assert bench.used == list(range(8))


async def test_calls_begin_in_the_order_of_the_source(bench: Bench) -> None:
    async def make(element: int) -> int:
        bench.calls.append(element)
        await asyncio.sleep(0.01 * (element * 7 % 3))
        return element

    async with bench.session() as sess:
        made = sess.produce(range(60), make, workers=5, depth=7, ordered=True)
        await bench.train(sess, made, 1)
    assert bench.calls == bench.used == list(range(60))


async def test_function_that_cancels_itself_has_failed(bench: Bench) -> None:
    async def cancelled(element: int) -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="raised a CancelledError, and was not cancelled"):
        async with bench.session() as sess:
            await bench.train(sess, sess.produce(range(8), cancelled))


async def test_error_of_the_source_stops_the_session(bench: Bench) -> None:
    def broken() -> Any:
        yield 1
        raise Broken("no data")

    with pytest.raises(Broken, match="no data"):
        async with bench.session() as sess:
            await bench.train(sess, sess.produce(from_iterable(broken), bench.make))


# -- versions


async def test_weights_of_a_version_are_fetched_once(bench: Bench) -> None:
    seen: list[tuple[int, float]] = []

    async def look(element: int, policy: Policy) -> int:
        weight = await policy.weights()
        seen.append((policy.version, weight))
        return element

    async with bench.session() as sess:
        raw, peeks = sess.raw_session(), []
        peek = raw.peek

        async def counted(fetches: Any, feed_dict: Any = None) -> Any:
            peeks.append(fetches)
            return await peek(fetches, feed_dict)

        raw.peek = counted
        await bench.train(sess, sess.produce(range(16), look, max_age=1, weights="weight"))
    assert all(version == weight for version, weight in seen)
    assert len(peeks) == len({version for version, _ in seen})


async def test_weights_need_their_fetches(bench: Bench) -> None:
    async def look(element: int, policy: Policy) -> Any:
        return await policy.weights()

    with pytest.raises(ValueError, match="needs the fetches of the weights"):
        async with bench.session() as sess:
            await bench.train(sess, sess.produce(range(4), look))


async def test_call_gives_way_to_a_newer_version(bench: Bench) -> None:
    async def generate(element: int, policy: Policy) -> list[int]:
        versions = [policy.version]
        if element == 4:  # it continues with the newer version
            policy = await policy.wait_newer()
            versions.append(policy.version)
        return versions

    items: list[Item] = []
    async with bench.session() as sess:
        async for batch in sess.produce(range(5), generate, workers=5).batches(2):
            items += batch
            await sess.run("use", {"batch": [item.element for item in batch]})
    slow = next(item for item in items if item.element == 4)
    assert slow.value == [0, 1]
    assert slow.version == 0  # the oldest one that had a part in it


async def test_stale_item_is_refused_for_ever_on_request(bench: Bench) -> None:
    async def make(element: int) -> int:
        await asyncio.sleep(0.5 if element == 1 else 0.01)
        return element

    refused: list[tuple[int, int]] = []

    def refuse(item: Item) -> bool:
        refused.append((item.ordinal, item.age))
        return True

    async with bench.session() as sess:
        made = sess.produce(range(12), make, workers=2, max_age=1, on_stale=refuse)
        await bench.train(sess, made, 1)
    assert 1 in [number for number, _ in refused]
    assert all(age > 1 for _, age in refused)
    assert sorted(bench.used) == [n for n in range(12) if n not in [one for one, _ in refused]]
    assert made.statistics().dropped == len(refused)


# -- the state


async def test_elements_of_a_generator_are_in_the_checkpoint(bench: Bench) -> None:
    numbers = iter(range(20))
    async with bench.session(last=2) as sess:
        await bench.train(sess, sess.produce(numbers, bench.make, workers=3))
    state = await bench.state()
    outstanding = [n for first, end in state["outstanding"] for n in range(first, end)]
    assert state["elements"] == {str(n): n for n in outstanding}
    async with bench.session() as sess:
        await bench.train(sess, sess.produce(numbers, bench.make, workers=3))
    assert sorted(bench.used) == list(range(20))


async def test_position_of_another_kind_of_source_is_refused(bench: Bench) -> None:
    async with bench.session(last=2) as sess:
        await bench.train(sess, sess.produce(range(20), bench.make))
    with pytest.raises(ValueError, match="type range_iterator, which is read once"):
        async with bench.session() as sess:
            sess.produce(iter(range(20)), bench.make)


async def test_elements_of_a_generator_survive_a_recovery(bench: Bench) -> None:
    async with bench.session(1000, FailAfterCommit(4), save_steps=3) as sess:
        await bench.train(sess, sess.produce(iter(range(40)), bench.make, workers=3))
        weight = await sess.peek("weight")
    assert weight == 10
    assert sorted(set(bench.used)) == list(range(40))


async def test_finished_results_are_kept_on_request(bench: Bench) -> None:
    async with bench.session(last=2) as sess:
        made = sess.produce(range(20), bench.make, workers=8, depth=16, keep="results")
        await bench.train(sess, made)
        await asyncio.sleep(1)  # all results are there
    calls = len(bench.calls)
    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(20), bench.make, keep="results"))
    assert sorted(bench.used) == list(range(20))
    assert calls + 20 - len((await bench.state())["results"]) > len(bench.calls) - calls


async def test_acknowledgement_waits_for_a_commit(bench: Bench) -> None:
    done: list[int] = []

    async def acknowledge(sess: Any, made: Any) -> None:
        await made.wait_commit()
        done.append(sess.global_step)

    async with bench.session(save_steps=3) as sess:
        made = sess.produce(range(40), bench.make)
        async for batch in made.batches(4):
            if sess.global_step == 1:
                waiting = asyncio.create_task(acknowledge(sess, made))
            await sess.run("use", {"batch": [item.value for item in batch]})
        await waiting
    assert done == [3] or done == [4]
    with pytest.raises(CancelledError):
        await made.wait_commit()


async def test_stop_ends_an_acknowledgement_in_a_task_and_no_other(bench: Bench) -> None:
    """The last save follows the end of tasks."""
    ends: list[str] = []

    async def wait(made: Any, who: str) -> None:
        try:
            await made.wait_commit()
            ends.append(f"{who}: committed")
        except CancelledError as error:
            ends.append(f"{who}: {error}")

    async with bench.session(save_steps=1000) as sess:
        made = sess.produce(range(4), bench.make)
        sess.coord.create_task(wait, made, "early")
        await sess.run("use", {"batch": []})
        await sess.save()
        await sess.run("use", {"batch": []})
        sess.request_stop()
        in_body = asyncio.create_task(wait(made, "body"))
        sess.coord.create_task(wait, made, "late")
    await in_body
    text = "The session stops, and waits for this task before its last checkpoint."
    assert ends == ["early: committed", f"late: {text}", "body: committed"]


async def test_recovery_without_loss_leaves_calls_alone(bench: Bench) -> None:
    cancelled: list[int] = []

    async def slow(element: int) -> int:
        try:
            await asyncio.sleep(0.05 if element < 8 else 3)
        except asyncio.CancelledError:
            cancelled.append(element)
            raise
        return element

    async with bench.session(1000, FailAfterCommit(2)) as sess:
        made = sess.produce(range(12), slow, workers=12, depth=12)
        await bench.train(sess, made)
    assert not cancelled
    assert made.statistics().made == 12
    assert sorted(bench.used)[:8] == list(range(8)) or sorted(set(bench.used)) == list(range(12))


# -- workers with leases


async def test_outside_workers_complete_leases(bench: Bench) -> None:
    results: list[bool] = []

    async def work(made: Any) -> None:
        while (lease := await made.lease()) is not None:
            await asyncio.sleep(0.01)
            results.append(made.complete(lease, lease.element))
            results.append(made.complete(lease, "late"))

    async with bench.session() as sess:
        made = sess.produce(range(12), None, workers=3)
        workers = [asyncio.create_task(work(made)) for _ in range(3)]
        await bench.train(sess, made)
    await asyncio.gather(*workers)  # the end of the session ends the waits
    assert sorted(bench.used) == list(range(12))
    assert results == [True, False] * 12


async def test_lease_of_a_dead_worker_is_given_again(bench: Bench) -> None:
    attempts: list[int] = []
    dead: list[Lease] = []

    async def work(made: Any) -> None:
        while (lease := await made.lease()) is not None:
            if lease.element == 2 and not dead:
                dead.append(lease)
                assert made.release(lease)
                assert not made.release(lease)
                continue
            attempts.append(lease.attempt)
            assert made.complete(lease, lease.element)

    async with bench.session() as sess:
        made = sess.produce(range(6), None, workers=2)
        worker = asyncio.create_task(work(made))
        await bench.train(sess, made, 2)
        assert not made.complete(dead[0], "late")
    await worker
    assert sorted(bench.used) == list(range(6))
    assert sorted(attempts) == [1, 1, 1, 1, 1, 2]
    assert made.statistics().lost == 1


async def test_cancelled_wait_for_a_lease_loses_no_call(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(4), None, workers=4)
        waits = [asyncio.create_task(made.lease()) for _ in range(4)]
        learner = asyncio.create_task(bench.train(sess, made))
        await asyncio.wait(waits[:1])
        for wait in waits:
            wait.cancel()
        leases = [
            r for r in await asyncio.gather(*waits, return_exceptions=True) if isinstance(r, Lease)
        ]
        while len(leases) < 4:
            lease = await made.lease()
            assert lease is not None
            leases.append(lease)
        for lease in leases:
            made.complete(lease, lease.element)
        await learner
    assert sorted(bench.used) == list(range(4))


async def test_executor_serves_a_pipeline(bench: Bench) -> None:
    class Doubling:
        async def serve(self, pipeline: Any) -> None:
            while (lease := await pipeline.lease()) is not None:
                pipeline.complete(lease, 2 * lease.element)

    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(4), Doubling()))
    assert sorted(bench.used) == [0, 2, 4, 6]


# -- ends


async def test_workers_are_used_again_and_end_with_the_data(bench: Bench) -> None:
    tasks = set[Any]()

    async def make(element: int) -> int:
        tasks.add(asyncio.current_task())
        return element

    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(24), make, workers=3, depth=4))
        await asyncio.sleep(0)
        assert len(tasks) == 3
        assert all(task.done() for task in tasks)
    assert bench.used == list(range(24))


async def test_stop_cancels_calls_and_loses_nothing(bench: Bench) -> None:
    async def endless(element: int) -> Any:
        if element == 7:
            await asyncio.Event().wait()
        return await bench.make(element)

    async with assert_nothing_left_behind(descriptors=False), bench.session(last=2) as sess:
        await bench.train(sess, sess.produce(range(12), endless, name="made"), 3)
    async with bench.session() as sess:
        await bench.train(sess, sess.produce(range(12), bench.make, name="made"), 3)
    assert sorted(bench.used) == list(range(12))


async def test_call_that_ignores_its_cancellation_ends_with_the_grace_period(bench: Bench) -> None:
    ignored: list[int] = []

    async def stubborn(element: int) -> int:
        while element == 5:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                ignored.append(element)
                if len(ignored) > 1:
                    raise
        return element

    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with bench.session(last=1, stop_grace_period_secs=2) as sess:
        await bench.train(sess, sess.produce(range(8), stubborn), 2)
    assert loop.time() - begun < 10


async def test_pipeline_is_listed_in_the_statistics(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(8), bench.make, name="rollouts")
        await anext(made.batches(2))
        [found] = sess.statistics().pipelines
        assert found.name == "rollouts"
        assert found.held == 2
        assert any("worker of make" in task.name for task in sess.statistics().tasks)
    [found] = sess.statistics().pipelines
    assert found.mean_age == 0


async def test_state_of_another_name_is_pointed_out(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.session(last=1) as sess:
        await bench.train(sess, sess.produce(range(8), bench.make))
    async with bench.session(last=1) as sess:
        sess.produce(range(8), bench.make, name="made")
    assert "no place of the pipeline 'made', but of 'make'" in caplog.text


async def test_async_generator_is_read_once(bench: Bench) -> None:
    async def prompts() -> AsyncIterator[int]:
        for number in range(10):
            await asyncio.sleep(0.02)
            yield number

    async with assert_nothing_left_behind(descriptors=False), bench.session() as sess:
        await bench.train(sess, sess.produce(prompts(), bench.make))
    assert sorted(bench.used) == list(range(10))
