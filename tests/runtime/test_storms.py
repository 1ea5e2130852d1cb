"""Stops from everywhere, tasks that do not listen, and error after error: it always ends, and right."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from asyncmon.checkpoint import Saver
from asyncmon.data import from_iterable
from asyncmon.errors import AbortedError, UnavailableError
from asyncmon.hooks import CheckpointSaverHook, CheckpointSaverListener
from asyncmon.runtime import (
    ChiefSessionCreator,
    LooperTask,
    MonitoredSession,
    Scaffold,
    SessionRunHook,
)
from asyncmon.testing import RecordingHook, assert_nothing_left_behind, wait_all_tasks_blocked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

ITEMS = 22


PLACES = (
    "creation", "restored", "after_create_session", "before_run", "run", "run, after its commit",
    "after_run", "background", "background, sampled", "looper", "before_save", "metrics", "snapshot",
    "close",
)  # fmt: skip


class Weather:
    """Says, at random, when a storm strikes; which places are in danger is a matter of the seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.chances = {place: self.dice.choice([0, 0.03, 0.1, 0.2]) for place in PLACES}
        self.struck: list[str] = []

    def strike(self, where: str) -> None:
        if self.dice.random() < self.chances[where]:
            self.struck.append(where)
            error = self.dice.choice([AbortedError, UnavailableError])
            raise error(f"injected in {where}")


class Stormy(SessionRunHook):
    def __init__(self, weather: Weather) -> None:
        self.weather = weather

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self.weather.strike("after_create_session")
        LooperTask.loop(coord, 0.3, self.weather.strike, ["looper"])

    async def before_run(self, run_context: Any) -> None:
        self.weather.strike("before_run")

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.weather.strike("after_run")

    async def background(self, session: Any, coord: Any) -> None:
        async for _ in coord.every(0.7):
            self.weather.strike("background")
            await coord.sample([])
            self.weather.strike("background, sampled")


class StormyListener(CheckpointSaverListener):
    def __init__(self, weather: Weather) -> None:
        self.weather = weather

    async def before_save(self, session: Any, global_step: int) -> None:
        self.weather.strike("before_save")


class StormyCreator:
    """Makes sessions when it can, which run, are saved and closed when they can."""

    def __init__(self, creator: ChiefSessionCreator, weather: Weather) -> None:
        self.creator, self.weather = creator, weather
        self.program, self.prepare = creator.program, creator.prepare

    async def create_session(self) -> Any:
        weather = self.weather
        weather.strike("creation")
        raw = await self.creator.create_session()
        run, snapshot, close = raw.run, raw.snapshot, raw.close

        async def stormy_run(*args: Any, **kwargs: Any) -> Any:
            weather.strike("run")
            result = await run(*args, **kwargs)
            await asyncio.sleep(weather.dice.choice([0, 0, 0, 0.4]))
            weather.strike("run, after its commit")
            return result

        def stormy_snapshot() -> Any:
            weather.strike("snapshot")
            return snapshot()

        async def stormy_close() -> None:
            await close()
            weather.strike("close")

        raw.run, raw.close = stormy_run, stormy_close  # type: ignore[method-assign]
        raw.snapshot = raw.snapshot_to_write = stormy_snapshot  # type: ignore[method-assign]
        weather.strike("restored")
        return raw


async def ride_out(world: World, directory: Path, seed: int) -> Weather:
    """WR-2, WR-3: every step is saved, so nothing is lost: each item is used once, in its order."""
    weather = Weather(seed)

    def metrics() -> dict[str, float]:
        weather.strike("metrics")
        return {}

    scaffold = Scaffold(saver=Saver(), program=world.program)
    creator = ChiefSessionCreator(scaffold, checkpoint_dir=directory, program=world.program)
    saves = CheckpointSaverHook(
        directory, save_steps=1, scaffold=scaffold, save_graph_def=False, metrics=metrics,
        listeners=[StormyListener(weather)],
    )  # fmt: skip
    hooks = [Stormy(weather), saves]
    stormy: Any = StormyCreator(creator, weather)
    given: list[float] = []
    order = [float(2**number) for number in range(ITEMS)]  # whose sums tell which were used
    async with (
        assert_nothing_left_behind(directory),
        MonitoredSession(stormy, hooks, 3) as sess,
    ):
        async for number in sess.iterate(from_iterable(order)):
            given.append(number)
            await sess.run(world.train, world.feed(number))
            await asyncio.sleep(0.1)
        assert sess.global_step == ITEMS
        assert float(await sess.raw_session().peek(world.weight)) == sum(order)
    assert given == order
    return weather


@pytest.mark.campaign("errors", short=5)
async def test_a_storm_of_errors_leads_to_the_state_of_a_quiet_run(
    world: World, tmp_path: Path, seed: int
) -> None:
    await ride_out(world, tmp_path, seed)


@pytest.mark.campaign("stops", short=20)
async def test_stops_from_tasks_and_threads_end_a_session_once(world: World, seed: int) -> None:
    dice = random.Random(seed)
    record = RecordingHook()
    threads: list[threading.Thread] = []
    reasons = [f"reason {number}" for number in range(dice.randrange(1, 6))]

    async def stop_later(sess: Any, reason: str) -> None:
        await asyncio.sleep(dice.choice([0, 0.1, dice.uniform(0, 2)]))
        stop = dice.choice([sess.request_stop, lambda reason: sess.coord.request_stop(reason=reason)])
        if dice.random() < 0.5:
            stop(reason)
        else:
            thread = threading.Thread(target=stop, args=[reason])
            threads.append(thread)
            thread.start()

    async with assert_nothing_left_behind():
        async with world.session([record], stop_grace_period_secs=1) as sess:
            stoppers = [asyncio.create_task(stop_later(sess, reason)) for reason in reasons]
            while not sess.should_stop():
                await sess.run(world.train, world.feed())
                await asyncio.sleep(dice.choice([0, 0.1, 0.3]))
            steps = sess.global_step
        await asyncio.gather(*stoppers)
        for thread in threads:
            thread.join()
    assert sess.stop_reason in reasons
    moments = record.moments()
    assert [moments.count(one) for one in ("begin", "end", "cleanup")] == [1, 1, 1]
    assert moments.count("after_run") == steps


class Deaf(SessionRunHook):
    """Does not listen to cancellations, for a long time, in the background or in the run."""

    def __init__(self, where: str, tired: asyncio.Event) -> None:
        self.where, self.tired = where, tired

    async def _sleep_on(self, where: str) -> None:
        while where == self.where and not self.tired.is_set():
            try:
                await self.tired.wait()
            except asyncio.CancelledError:
                continue

    async def background(self, session: Any, coord: Any) -> None:
        await self._sleep_on("background")

    async def before_run(self, run_context: Any) -> None:
        await self._sleep_on("before_run")


async def test_a_background_that_ignores_its_cancellation_is_left_behind_and_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    tired, record = asyncio.Event(), RecordingHook()
    async with world.session([Deaf("background", tired), record], stop_grace_period_secs=3) as sess:
        await sess.run(world.train, world.feed())
    assert asyncio.get_running_loop().time() < 20
    assert record.moments()[-2:] == ["end", "cleanup"]
    assert "Coordinator stopped with threads still running: Deaf.background" in caplog.text
    assert "ignores its cancellation: it waits in" in caplog.text
    tired.set()
    await wait_all_tasks_blocked()


async def test_a_run_that_ignores_its_interruption_is_left_behind_and_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    tired, record = asyncio.Event(), RecordingHook()
    sess = world.session([Deaf("before_run", tired), record], stop_grace_period_secs=3)
    await sess.start()
    run = asyncio.create_task(sess.run(world.train, world.feed()))
    await wait_all_tasks_blocked()
    await sess.close()
    assert asyncio.get_running_loop().time() < 20
    assert record.moments()[-2:] == ["end", "cleanup"]
    assert "A run did not finish before the session was closed, in the hook Deaf." in caplog.text
    assert "ignores its interruption; it is left behind." in caplog.text
    tired.set()
    with pytest.raises(RuntimeError, match="closed"):
        await run
