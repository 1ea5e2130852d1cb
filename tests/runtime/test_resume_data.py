"""Input continues where the session's state continues: an iterated source is in checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from asyncmon.checkpoint import Saver, load_checkpoint
from asyncmon.data import Dataset, ReplayBuffer, from_iterable
from asyncmon.errors import AbortedError
from asyncmon.hooks import CheckpointSaverHook, CheckpointSaverListener
from asyncmon.runtime import MonitoredSession, Scaffold, SessionRunHook
from asyncmon.testing import assert_nothing_left_behind
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def data() -> Dataset:
    """Return 60 numbers in an order of their own, read and prepared ahead."""

    async def prepare(number: int) -> float:
        await asyncio.sleep(number % 7 * 0.01)
        return float(number)

    numbers = from_iterable(lambda: iter(range(60)))
    return numbers.shuffle(16, seed=3).map(prepare, concurrency=4).prefetch(5)


class Crash(Exception):
    pass


def session(world: World, directory: Path) -> tuple[MonitoredSession, Saver]:
    saver = Saver()
    scaffold = Scaffold(saver=saver, program=world.program)
    creator = world.creator(scaffold=scaffold, checkpoint_dir=directory)
    return MonitoredSession(creator), saver


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_crash_no_element_is_lost_or_seen_twice(
    world: World, tmp_path: Path, seed: int
) -> None:
    """Saves come at any moment: between steps, during one, after an element was given."""
    whole = [x async for x in data()]
    dice = random.Random(seed)
    seen: list[float] = []

    async def train(crash_after: int) -> None:
        sess, saver = session(world, tmp_path)
        async with sess:
            step = sess.global_step or 0
            del seen[step:]  # what the checkpoint has not seen is gone
            async for number in sess.iterate(data()):
                if dice.random() < 0.2:
                    await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)
                if crash_after == 0:
                    raise Crash
                crash_after -= 1
                await sess.run(world.train, world.feed(number))
                seen.append(number)
                if dice.random() < 0.2:
                    await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)

    async with assert_nothing_left_behind(descriptors=False):
        for _ in range(4):
            with pytest.raises(Crash):
                await train(dice.randrange(3, 15))
        await train(1000)
    assert seen == whole


async def test_a_recovery_takes_the_data_back_with_the_state(world: World, tmp_path: Path) -> None:
    """The interrupted run is repeated with its element, which does not come again."""
    sess, saver = session(world, tmp_path)
    given: list[float] = []
    async with sess:
        source = from_iterable([float(n) for n in range(8)])
        async for number in sess.iterate(source):
            given.append(number)
            if len(given) == 6:
                fail_next_run(sess)
            await sess.run(world.train, world.feed(number))
            if len(given) == 3:
                await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)
    assert given == [0, 1, 2, 3, 4, 5, 3, 4, 6, 7]


def fail_next_run(sess: Any) -> None:
    raw = sess.raw_session()
    run = raw.run

    async def fail(*args: Any, **kwargs: Any) -> Any:
        raw.run = run
        raise AbortedError("preempted")

    raw.run = fail


async def test_a_source_is_one_object_however_often_it_is_iterated(
    world: World, tmp_path: Path
) -> None:
    sess, saver = session(world, tmp_path)
    first, second = from_iterable([1.0, 2.0]), from_iterable([3.0])
    async with sess:
        for _ in range(2):
            async for number in sess.iterate(first):
                await sess.run(world.train, world.feed(number))
        async for number in sess.iterate(second):
            await sess.run(world.train, world.feed(number))
        path = await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)
    assert path is not None
    reader = await load_checkpoint(path)
    assert sorted(await reader.states()) == ["data", "data_1"]


async def test_a_source_without_position_is_just_iterated(world: World, tmp_path: Path) -> None:
    class Plain:
        position = 0

        def __iter__(self) -> Any:
            return iter([1.0, 2.0])

        def state_dict(self) -> dict[str, int]:
            return {"position": 5}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.position = state["position"]

    for expected in (0, 5):
        sess, saver = session(world, tmp_path)
        own = Plain()
        async with sess:
            async for number in sess.iterate(own):
                await sess.run(world.train, world.feed(number))
            await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)
        assert own.position == expected


class Counting(SessionRunHook):
    """Counts the runs, as a state in checkpoints."""

    runs = 0

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.runs += 1

    def state_dict(self) -> dict[str, int]:
        return {"runs": self.runs}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.runs = state["runs"]


@pytest.mark.parametrize("by", ["hook", "save", "listener", "own saver", "partial saver"])
async def test_every_saver_of_a_session_writes_its_states(
    world: World, tmp_path: Path, by: str
) -> None:
    """Not only the scaffold's: each checkpoint has the positions of the data and the hooks' states."""
    given: list[list[float]] = []
    other = Saver(["weight", "global_step"] if by == "partial saver" else None, allow_empty=True)

    class Listener(CheckpointSaverListener):
        async def after_save(self, session: Any, global_step_value: int) -> None:
            if by == "listener" and global_step_value == 4:
                await other.save(session, tmp_path / "other" / "model.ckpt", 4)

    for hook_saver in (Saver(allow_empty=True), Saver(allow_empty=True)):
        hooked = CheckpointSaverHook(
            tmp_path / "hook", saver=hook_saver, save_steps=4, listeners=[Listener()]
        )
        counting = Counting()
        folder = tmp_path / ("hook" if by in ("hook", "save") else "other")
        creator = world.creator(checkpoint_dir=folder)
        given.append([])
        with contextlib.suppress(Crash):
            async with MonitoredSession(creator, [hooked, counting]) as sess:
                assert counting.runs == (sess.global_step or 0)
                async for number in sess.iterate(from_iterable([float(n) for n in range(8)])):
                    given[-1].append(number)
                    await sess.run(world.train, world.feed(number))
                    if sess.global_step == 4:
                        await sess.save()
                        if by in ("own saver", "partial saver"):
                            await other.save(sess, tmp_path / "other" / "model.ckpt", 4)
                    if sess.global_step == 6:
                        raise Crash
    assert given == [[0, 1, 2, 3, 4, 5], [4, 5]]


async def test_states_are_left_out_by_an_argument_only(world: World, tmp_path: Path) -> None:
    without = Saver(session_states=False, allow_empty=True)
    async with MonitoredSession(world.creator(), [counting := Counting()]) as sess:
        async for number in sess.iterate(from_iterable([0.0, 1.0])):
            await sess.run(world.train, world.feed(number))
        with_all = await Saver(allow_empty=True).save(sess, tmp_path / "a", 2)
        with_none = await without.save(sess, tmp_path / "b", 2)
        assert with_all is not None
        assert with_none is not None
        assert sorted(await (await load_checkpoint(with_all)).states()) == ["data", "hooks/Counting"]
        assert await (await load_checkpoint(with_none)).states() == {}
        counting.runs = 7
        await without.restore(sess, with_all)
        assert counting.runs == 7
        await Saver(allow_empty=True).restore(sess, with_all)
        assert counting.runs == 2


async def test_a_warm_start_leaves_the_states(world: World, tmp_path: Path) -> None:
    """They belong to the global step, which a restore of some variables does not set."""
    async with MonitoredSession(world.creator(), [Counting()]) as sess:
        async for number in sess.iterate(from_iterable([0.0, 1.0])):
            await sess.run(world.train, world.feed(number))
        path = await Saver(allow_empty=True).save(sess, tmp_path / "model.ckpt", 2)

    async def warm_start(scaffold: Any, session: Any) -> None:
        await Saver(["weight"]).restore(session, path)

    scaffold = Scaffold(program=world.program, init_fn=warm_start)
    async with MonitoredSession(world.creator(scaffold=scaffold), [counting := Counting()]) as sess:
        assert counting.runs == 0
        assert [n async for n in sess.iterate(from_iterable([5.0, 6.0]))] == [5.0, 6.0]


async def test_a_name_belongs_to_the_session_or_to_the_saver(world: World, tmp_path: Path) -> None:
    saver = Saver(allow_empty=True)
    saver.add_stateful("data", Counting())
    async with MonitoredSession(world.creator()) as sess:
        aiter(sess.iterate(from_iterable([1.0])))
        with pytest.raises(ValueError, match="both have a stateful object named 'data'"):
            await saver.save(sess, tmp_path / "model.ckpt", 0)


async def test_a_session_needs_no_weak_references(tmp_path: Path) -> None:
    class Slotted:
        __slots__ = ("values",)
        graph = None

        async def run(self, *_args: Any, **_options: Any) -> None: ...

        async def snapshot(self) -> dict[str, Any]:
            return {"w": np.zeros(1)}

        async def load(self, values: Any) -> None: ...

        async def close(self) -> None: ...

    class Creator:
        async def create_session(self) -> Any:
            return Slotted()

    async with MonitoredSession(cast("Any", Creator()), [counting := Counting()]) as sess:
        await sess.run("a")
        path = await Saver(allow_empty=True).save(sess, tmp_path / "model.ckpt", 0)
        counting.runs = 7
        await Saver(allow_empty=True).restore(sess, path)
        assert counting.runs == 1
    await Saver(allow_empty=True).save(Slotted(), tmp_path / "bare.ckpt", 0)


async def test_last_save_has_the_items_and_priorities_set_after_the_last_step(
    world: World, tmp_path: Path
) -> None:
    """The saves come at each step, and the buffer changes again before the end."""
    buffer = ReplayBuffer(10, sampling="prioritised", seed=1)
    buffer.add(0.0)
    saved: list[int] = []

    class Saved(CheckpointSaverListener):
        async def after_save(self, session: Any, global_step_value: int) -> None:
            saved.append(global_step_value)

    hook = CheckpointSaverHook(tmp_path, save_steps=1, listeners=[Saved()])
    creator = world.creator(scaffold=Scaffold(program=world.program), checkpoint_dir=tmp_path)
    async with MonitoredSession(creator, [hook]) as sess:
        samples = sess.iterate(buffer.batches(1))
        _, indices, _ = await anext(samples)
        await sess.run(world.train, world.feed(1.0))
        buffer.add(1.0)
        buffer.update(indices, [0.25])
    assert saved == [0, 1, 1]
    again = ReplayBuffer(10, sampling="prioritised")
    creator = world.creator(scaffold=Scaffold(program=world.program), checkpoint_dir=tmp_path)
    async with MonitoredSession(creator) as sess:
        sess.iterate(again.batches(1))
        assert len(again) == 2
        assert again.state_dict()["priorities"].tolist() == [0.25, 1.0]
