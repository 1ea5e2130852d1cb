"""The run that consumes an element, and the elements given again after a recovery or restart."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.checkpoint import Saver, load_checkpoint
from asyncmon.checkpoint.packing import has_changed
from asyncmon.data import Dataset, from_iterable
from asyncmon.errors import RecoveredError
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.intervals import merged, without
from tests.faults import FailAfterCommit

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def program(used: list[Any]) -> FunctionProgram:
    made = FunctionProgram({"steps": 0})

    @made.step
    async def use(state: Any, x: Any) -> None:
        await asyncio.sleep(0.1)
        state["steps"] += 1
        used.append(x)

    return made


class Bench:
    """Sessions in one directory, and the elements that their steps used."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.used: list[Any] = []

    @asynccontextmanager
    async def session(
        self, last: int = 100, *hooks: Any, save_steps: int = 1, repeat_runs: bool = True
    ) -> AsyncIterator[am.MonitoredSession]:
        async with am.MonitoredTrainingSession(
            program=program(self.used), checkpoint_dir=self.directory, signals=None,
            hooks=[am.StopAtStepHook(last_step=last), *hooks], save_checkpoint_steps=save_steps,
            save_checkpoint_secs=None, save_summaries_steps=0, log_step_count_steps=0,
            recovery=am.Recovery(first_delay_secs=0, repeat_runs=repeat_runs),
        ) as sess:  # fmt: skip
            yield sess

    async def places(self) -> dict[str, Any]:
        """Return the positions in the newest checkpoint."""
        async with await load_checkpoint(str(self.directory)) as reader:
            states = await reader.states()
        return {name: state for name, state in states.items() if name.startswith("data")}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# -- which run consumes an element


async def buffered(sess: Any, elements: Any, pause: float) -> None:
    element = await anext(elements, None)
    while element is not None and not sess.should_stop():
        following = asyncio.create_task(anext(elements, None))
        if pause:
            await asyncio.sleep(pause)
        await sess.run("use", {"x": element})
        element = await following


async def gathered(sess: Any, elements: Any, pause: float) -> None:
    element = await anext(elements, None)
    while element is not None and not sess.should_stop():
        element, _ = await asyncio.gather(anext(elements, None), sess.run("use", {"x": element}))
        await asyncio.sleep(pause)


async def fetched_by_a_helper(sess: Any, elements: Any, pause: float) -> None:
    async def fetch() -> Any:
        return await anext(elements, None)

    element = await fetch()
    while element is not None and not sess.should_stop():
        following = asyncio.create_task(fetch())
        await asyncio.sleep(pause)
        await sess.run("use", {"x": element})
        element = await following


@pytest.mark.parametrize("pause", [0, 0.05])
@pytest.mark.parametrize("body", [buffered, gathered, fetched_by_a_helper])
@pytest.mark.parametrize("last", [1, 2, 5])
async def test_element_fetched_beside_a_step_belongs_to_the_next(
    bench: Bench, body: Any, pause: float, last: int
) -> None:
    for stop in (last, 100):
        async with bench.session(stop) as sess:
            await body(sess, sess.iterate(from_iterable(range(8))), pause)
    assert bench.used == list(range(8))


async def test_element_is_consumed_with_the_first_of_several_steps(bench: Bench) -> None:
    for stop in (4, 100):  # in the middle of the second element
        async with bench.session(stop) as sess:
            async for x in sess.iterate(from_iterable(range(4))):
                for _ in range(3):
                    if not sess.should_stop():
                        await sess.run("use", {"x": x})
    assert bench.used == [0, 0, 0, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("failing", [5, 6])
async def test_element_of_several_steps_stays_with_the_body_in_a_recovery(
    bench: Bench, failing: int
) -> None:
    """The second element is in use at step 4, the last one that is saved. It is not given again."""
    async with bench.session(100, FailAfterCommit(failing), save_steps=4) as sess:
        async for x in sess.iterate(from_iterable(range(4))):
            for _ in range(3):
                await sess.run("use", {"x": x})
    assert [bench.used.count(x) for x in (0, 2, 3)] == [3, 3, 3]


async def test_elements_of_tasks_belong_to_their_own_runs(bench: Bench) -> None:
    """One of two learners has an element while the other makes steps."""
    async with bench.session() as sess:
        elements = sess.iterate(from_iterable(range(8)))
        received, go_on = asyncio.Event(), asyncio.Event()

        async def waits() -> None:
            element = await anext(elements)
            received.set()
            await go_on.wait()
            await sess.run("use", {"x": element})

        waiting = asyncio.create_task(waits())
        await received.wait()
        for _ in range(3):
            await sess.run("use", {"x": await anext(elements)})
        path = await sess.save()
        go_on.set()
        await waiting
    async with await load_checkpoint(path) as reader:
        assert (await reader.states())["data"]["outstanding"] == [[0, 1]]
    assert (await bench.places())["data"]["outstanding"] == []


async def test_elements_that_a_task_passes_on_are_consumed_by_another(bench: Bench) -> None:
    for stop in (3, 100):
        queue: asyncio.Queue[Any] = asyncio.Queue(1)

        async def feed(elements: Any, queue: asyncio.Queue[Any] = queue) -> None:
            async for element in elements:
                await queue.put(element)
                await queue.join()
            await queue.put(None)

        async with bench.session(stop) as sess:
            feeding = asyncio.create_task(feed(sess.iterate(from_iterable(range(6)))))
            while not sess.should_stop() and (element := await queue.get()) is not None:
                await sess.run("use", {"x": element})
                queue.task_done()
            await asyncio.wait([feeding])
    assert bench.used == list(range(6))


async def test_element_of_a_cancelled_task_is_outstanding(bench: Bench) -> None:
    async with bench.session() as sess:
        elements = sess.iterate(from_iterable(range(4)))
        received = asyncio.Event()

        async def waits() -> None:
            await anext(elements)
            received.set()
            await asyncio.Event().wait()

        waiting = asyncio.create_task(waits())
        await received.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        await sess.run("use", {"x": await anext(elements)})
    async with bench.session() as sess:
        assert [x async for x in sess.iterate(from_iterable(range(4)))] == [0, 2, 3]


async def test_step_function_consumes_its_element(bench: Bench) -> None:
    def using(x: int) -> Callable[[Any], Any]:
        return lambda context: context.run_with_hooks("use", {"x": x})

    for stop in (2, 100):
        async with bench.session(stop) as sess:
            async for x in sess.iterate(from_iterable(range(4))):
                await sess.run_step_fn(using(x))
    assert bench.used == list(range(4))


async def test_elements_of_an_evaluation_take_one_place_in_the_state(bench: Bench) -> None:
    async with bench.session() as sess:
        data = from_iterable(range(500))
        assert len([x async for x in sess.iterate(data)]) == 500
        assert sess._frontiers.all[0].state_dict()["outstanding"] == [[0, 500]]


# -- recoveries


async def test_element_of_a_first_step_that_fails_is_given_again(bench: Bench, tmp_path: Path) -> None:
    """There is no checkpoint, and runs are not repeated."""
    creator = am.ChiefSessionCreator(program=program(bench.used))
    recovery = am.Recovery(repeat_runs=False)
    async with am.MonitoredSession(creator, [FailAfterCommit(1)], recovery=recovery) as sess:
        async for x in sess.iterate(from_iterable(range(5))):
            with suppress(RecoveredError):
                await sess.run("use", {"x": x})
        assert sess.global_step == 5
    assert bench.used == [0, *range(5)]


async def test_recovery_with_an_unordered_map_has_each_element_once(bench: Bench) -> None:
    seconds = iter([0.3, 0.1, 0.2, 0, 0.5, 0.1, 0, 0.4] * 10)

    async def wait(x: int) -> int:
        await asyncio.sleep(next(seconds))
        return x

    data = from_iterable(range(16)).map(wait, concurrency=4, ordered=False)
    async with bench.session(100, FailAfterCommit(9), FailAfterCommit(11), save_steps=7) as sess:
        kept: list[Any] = []
        async for x in sess.iterate(data):
            await sess.run("use", {"x": x})
            del kept[(sess.global_step or 0) - 1 :]
            kept.append(x)
        assert sess.global_step == 16
    assert sorted(kept) == list(range(16))


async def test_unordered_map_before_a_shuffle_is_named_after_a_loss(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def same(x: int) -> int:
        return x

    data = from_iterable(range(16)).map(same, concurrency=4, ordered=False).shuffle(4)
    async with bench.session(100, FailAfterCommit(9), save_steps=7) as sess:
        async for x in sess.iterate(data):
            await sess.run("use", {"x": x})
    assert "mixes the results of map(ordered=False)" in caplog.text


async def test_iterator_of_another_library_is_made_again_after_a_loss(bench: Bench) -> None:
    class Loader:
        """Reads from a position that was loaded only in a new iterator."""

        def __init__(self) -> None:
            self.begin = self.position = 0

        def __iter__(self) -> Any:
            self.position, self.begin = self.begin, 0
            for number in range(self.position, 8):
                self.position = number + 1
                yield number

        def state_dict(self) -> dict[str, int]:
            return {"position": self.position}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.begin = self.position = state["position"]

    async with bench.session(100, FailAfterCommit(5), save_steps=3) as sess:
        async for x in sess.iterate(Loader()):
            await sess.run("use", {"x": x})
        assert sess.global_step == 8
    assert bench.used == [0, 1, 2, 3, 4, 4, 3, 5, 6, 7]


# -- identity


def made_anew() -> Dataset:
    return from_iterable(range(6)).shuffle(6, seed=1)


async def passes(sess: Any, make: Callable[[], Any] = made_anew) -> list[list[Any]]:
    seen: list[list[Any]] = []
    while not sess.should_stop():
        seen.append([])
        async for x in sess.iterate(make()):
            seen[-1].append(x)
            await sess.run("use", {"x": x})
    return seen


@pytest.mark.parametrize("stop", [2, 6, 7, 14])
async def test_dataset_made_again_for_each_pass_continues_its_pass(bench: Bench, stop: int) -> None:
    whole = [x async for x in made_anew()] * 4
    for last in (stop, 24):
        async with bench.session(last, save_steps=5) as sess:
            await passes(sess)
        assert list(await bench.places()) == ["data"]
    assert bench.used == whole


async def test_dataset_made_again_is_not_kept(bench: Bench) -> None:
    alive = weakref.WeakSet[Dataset]()

    def make() -> Dataset:
        alive.add(data := made_anew())
        return data

    async with bench.session(60, save_steps=1000) as sess:
        await passes(sess, make)
        gc.collect()
        assert len(alive) <= 1


async def test_left_dataset_is_continued_by_the_next_of_its_description(bench: Bench) -> None:
    async with bench.session() as sess:
        got = []
        for _ in range(3):
            async for x in sess.iterate(made_anew()):
                got.append(x)
                await sess.run("use", {"x": x})
                break
    async with bench.session() as sess:
        got += [x async for x in sess.iterate(made_anew())]
    assert got == [x async for x in made_anew()]


async def test_sources_of_other_descriptions_have_places_of_their_own(bench: Bench) -> None:
    def evaluation() -> Dataset:
        return from_iterable(range(100, 103))

    async with bench.session() as sess:
        for _ in range(3):
            for make in (made_anew, evaluation):
                async for x in sess.iterate(make()):
                    await sess.run("use", {"x": x})
                    if sess.global_step == 25:  # in the third evaluation
                        break
    assert list(await bench.places()) == ["data", "data_1"]
    async with bench.session() as sess:  # in another order of the calls
        assert [x async for x in sess.iterate(evaluation())] == [101, 102]
        assert len([x async for x in sess.iterate(made_anew())]) == 6


async def test_sources_of_many_descriptions_are_forgotten(bench: Bench) -> None:
    async with bench.session() as sess:
        for count in range(1, 30):
            async for x in sess.iterate(from_iterable(range(count))):
                if x == count - 1:
                    await sess.run("use", {"x": x})
    assert len(await bench.places()) < 12


@pytest.mark.parametrize("name", [None, "train"])
async def test_changed_dataset_is_refused_with_the_ways_out(bench: Bench, name: str | None) -> None:
    def data(size: int) -> Dataset:
        return from_iterable(range(12)).batch(size)

    async with bench.session(2) as sess:
        async for x in sess.iterate(data(2), name=name):
            await sess.run("use", {"x": x})
    async with bench.session() as sess:
        with pytest.raises(
            ValueError, match=r"batch\(size=2\) where this one has batch\(size=3\)"
        ) as e:
            sess.iterate(data(3), name=name)
        assert "iterate(source, name=...)" in str(e.value)
        assert "sess.epochs" in str(e.value)
        assert len([x async for x in sess.iterate(data(3), name="other")]) == 4
        await sess.run("use", {"x": 0})
    async with bench.session() as sess:  # the position that was refused is still there
        assert len([x async for x in sess.iterate(data(2), name=name)]) == 4


async def test_name_keeps_the_place_of_a_dataset_made_again(bench: Bench) -> None:
    for last in (8, 18):
        async with bench.session(last) as sess:
            while not sess.should_stop():
                async for x in sess.iterate(made_anew(), name="train"):
                    await sess.run("use", {"x": x})
    assert bench.used == [x async for x in made_anew()] * 3


async def test_ended_epochs_stay_counted(bench: Bench) -> None:
    for _ in range(2):
        async with bench.session() as sess:
            async for epoch in sess.epochs(made_anew(), 2):
                async for x in epoch:
                    await sess.run("use", {"x": x})
    assert len(bench.used) == 12


# -- the state


async def test_an_epoch_that_is_left_changes_what_a_save_has_without_a_step(bench: Bench) -> None:
    async with bench.session() as sess:
        saver = Saver()
        async for epoch in sess.epochs(made_anew(), 2):
            async for x in epoch:
                await sess.run("use", {"x": x})
                break
            before = await saver.fingerprints(sess)
            assert not has_changed(before, await saver.fingerprints(sess))
        assert has_changed(before, await saver.fingerprints(sess))


async def test_intervals_are_merged_and_cut() -> None:
    assert merged([(4, 6), (0, 2), (2, 3), (5, 5), (5, 9)]) == [(0, 3), (4, 9)]
    assert without([(0, 3), (4, 9)], 2, 5) == [(0, 2), (5, 9)]
    assert without([(0, 3)], 5, 6) == [(0, 3)]
