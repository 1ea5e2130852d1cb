"""The items of channels in checkpoints: a stop, a crash and a recovery lose none."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncmon as am
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import Channel
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Crash(Exception):
    pass


class Failing:
    """A program that counts each number that it has seen, and fails where the test orders it."""

    def __init__(self) -> None:
        self.failures: set[int] = set()
        self.program = program = FunctionProgram({"seen": np.zeros(64, int)})

        @program.step
        async def count(state: Any, number: Any) -> int:
            if number in self.failures:
                self.failures.discard(number)
                raise am.errors.UnavailableError(f"at {number}")
            seen = state["seen"].copy()
            seen[number] += 1
            state["seen"] = seen
            return int(number)

    def session(self, directory: Path, steps: int | None = 1, **options: Any) -> Any:
        recovery = am.Recovery(**options)
        creator = am.ChiefSessionCreator(program=self.program, checkpoint_dir=directory)
        hooks = [] if steps is None else [am.CheckpointSaverHook(directory, save_steps=steps)]
        return am.MonitoredSession(creator, hooks=hooks, recovery=recovery)


async def seen(sess: Any) -> list[int]:
    return list((await sess.peek("seen"))[:12])


async def count_all(sess: Any, channel: Any) -> None:
    async for number in sess.iterate(channel):
        await sess.run("count", {"number": number})


@pytest.mark.parametrize("iterates", [True, False])
async def test_items_not_received_at_a_stop_are_received_by_the_next_session(
    tmp_path: Path, iterates: bool
) -> None:
    async with Failing().session(tmp_path) as sess:
        channel = sess.coord.channel(8)
        for number in range(8):
            await channel.send(number, version=3)
        channel.version = 4
        for _ in range(4):
            number = await (anext(sess.iterate(channel)) if iterates else channel.receive())
            await sess.run("count", {"number": number})
    async with Failing().session(tmp_path) as sess:
        channel = sess.coord.channel(8, max_staleness=1)
        assert channel.version == 4
        channel.close()
        assert await channel.receive_versioned() == (4, 3)
        await count_all(sess, channel)
        assert await seen(sess) == [1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0]


async def test_an_item_whose_step_failed_is_in_the_last_checkpoint(tmp_path: Path) -> None:
    failing = Failing()
    with contextlib.suppress(Crash):
        async with failing.session(tmp_path, None) as sess:
            channel = sess.coord.channel(8)
            for number in range(6):
                await channel.send(number)
            items = sess.iterate(channel)
            await sess.run("count", {"number": await anext(items)})
            await anext(items)
            await am.Saver().save(sess, tmp_path / "model.ckpt", 1)
            raise Crash
    async with failing.session(tmp_path) as sess:
        channel = sess.coord.channel(2)  # fewer than there are
        sending = asyncio.ensure_future(channel.send(6))
        await wait_all_tasks_blocked()
        assert not sending.done()
        for number in range(1, 7):
            assert await channel.receive() == number
        await sending


async def test_the_sender_may_wait_for_a_checkpoint_with_its_item(tmp_path: Path) -> None:
    async with assert_nothing_left_behind(descriptors=False):
        async with Failing().session(tmp_path, None) as sess:
            channel = sess.coord.channel(8)
            accepted = asyncio.ensure_future(channel.send(5, ack="commit"))
            await wait_all_tasks_blocked()
            assert not accepted.done()
            await sess.run("count", {"number": 0})
            await am.Saver().save(sess, tmp_path / "model.ckpt", 1)
            await accepted
            late = asyncio.ensure_future(channel.send(6, ack="commit"))
            await wait_all_tasks_blocked()
        with pytest.raises(am.errors.CancelledError, match="closed before a checkpoint"):
            await late
        async with Failing().session(tmp_path) as sess:
            assert await sess.coord.channel(8).receive() == 5


async def test_an_acknowledgement_that_cannot_come_is_refused() -> None:
    plain: Channel[Any] = Channel(2)
    with pytest.raises(TypeError, match="needs a channel of a monitored session"):
        await plain.send(1, ack="commit")
    async with am.MonitoredSession(am.ChiefSessionCreator(program=Failing().program)) as sess:
        channel = sess.coord.channel(2)
        with pytest.raises(TypeError, match="a checkpoint cannot have <object"):
            await channel.send(object(), ack="commit")
        with pytest.raises(ValueError, match="'commit', not 'now'"):
            await channel.send(1, ack="now")  # type: ignore[arg-type]  # refused
        assert channel.statistics().sent == 0


class Pair(NamedTuple):
    left: int
    right: int


@pytest.mark.parametrize("item", [object(), Pair(1, 2), [{1}], np.array([None])], ids=range(4))
async def test_items_that_a_checkpoint_cannot_have_are_named_in_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, item: Any
) -> None:
    async with Failing().session(tmp_path) as sess:
        channel = sess.coord.channel(8, name="rollouts")
        await channel.send(item)
        await channel.send(1)
        await sess.run("count", {"number": 0})
        await sess.run("count", {"number": 0})
    [warning] = [one for one in caplog.messages if "checkpoints cannot have" in one]
    assert warning.startswith("Channel 'rollouts': ")
    assert type(item).__name__ in warning
    async with Failing().session(tmp_path) as sess:
        assert await sess.coord.channel(8, name="rollouts").receive() == 1


async def test_a_recovery_gives_an_item_of_a_lost_step_again(tmp_path: Path) -> None:
    failing = Failing()
    failing.failures = {5}
    async with failing.session(tmp_path, 3) as sess:
        channel = sess.coord.channel(16)
        for number in range(10):  # each is sent after the checkpoints of the steps before
            await channel.send(number)
            await sess.run("count", {"number": await anext(sess.iterate(channel))})
        channel.close()
        async for number in sess.iterate(channel):
            await sess.run("count", {"number": number})
        assert await seen(sess) == [1] * 10 + [0, 0]


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("steps", [1, 3, 100, None])
async def test_a_recovery_loses_no_item_that_a_checkpoint_has(
    tmp_path: Path, steps: int | None, repeats: bool
) -> None:
    failing = Failing()
    failing.failures = {0, 5, 7}
    async with failing.session(tmp_path, steps, repeat_runs=repeats) as sess:
        channel = sess.coord.channel(16)
        for number in range(10):
            await channel.send(number)
        if steps is not None:
            await am.Saver().save(sess, tmp_path / "model.ckpt", 0)
        channel.close()
        async for number in sess.iterate(channel):
            try:
                await sess.run("count", {"number": number})
            except am.errors.RecoveredError:
                continue
        found = await seen(sess)
    if steps is None:  # the restarts have lost the items consumed before them, and nothing else
        assert found[7:] == [1, 1, 1, 0, 0]
    else:
        assert found == [1] * 10 + [0, 0]


async def test_the_channel_of_the_body_is_closed_by_a_stop_after_a_recovery(tmp_path: Path) -> None:
    failing = Failing()
    failing.failures = {1}
    async with failing.session(tmp_path) as sess:
        channel = sess.coord.channel(4)
        await channel.send(1)
        await sess.run("count", {"number": await channel.receive()})
        assert sess.statistics().recoveries == 1
        assert [one.name for one in await sess.queues()] == ["channel"]
        sess.request_stop()
        with pytest.raises(am.errors.OutOfRangeError):
            await channel.receive()


async def test_an_error_of_a_task_that_is_recovered_from_closes_no_channel(tmp_path: Path) -> None:
    class Fails(am.SessionRunHook):
        failed = False

        async def background(self, session: Any, coord: Any) -> None:
            await asyncio.sleep(1)
            if not self.failed:
                self.failed = True
                raise am.errors.UnavailableError("cut off")

    creator = am.ChiefSessionCreator(program=Failing().program)
    async with am.MonitoredSession(creator, hooks=[Fails()]) as sess:
        channel = sess.coord.channel(4)
        await asyncio.sleep(2)
        await channel.send(1)
        await sess.run("count", {"number": await channel.receive()})
        assert sess.statistics().recoveries == 1
        await channel.send(2)
    assert channel.closed


async def test_a_channel_that_a_hook_makes_again_continues_with_the_items(tmp_path: Path) -> None:
    class Makes(am.SessionRunHook):
        channel: Any = None

        async def after_create_session(self, session: Any, coord: Any) -> None:
            self.channel = coord.channel(4, name="made")

    failing, hook = Failing(), Makes()
    failing.failures = {1}
    creator = am.ChiefSessionCreator(program=failing.program)
    async with am.MonitoredSession(creator, hooks=[hook]) as sess:
        first, body = hook.channel, sess.coord.channel(4)
        await first.send(7)
        await body.send(8)
        await sess.run("count", {"number": 1})
        assert hook.channel is not first
        assert await hook.channel.receive() == 7
        assert await body.receive() == 8
        assert [one.name for one in await sess.queues()] == ["made", "channel"]


async def test_channels_have_names_of_their_own(tmp_path: Path) -> None:
    async with Failing().session(tmp_path) as sess:
        first, second = sess.coord.channel(2), sess.coord.channel(2)
        assert (first.name, second.name) == ("channel", "channel_1")
        with pytest.raises(ValueError, match="another channel of the name 'channel_1'"):
            sess.coord.channel(2, name="channel_1")
        first.close()
        assert sess.coord.channel(2).name == "channel"  # the first one is over


async def test_many_short_channels_leave_nothing(tmp_path: Path) -> None:
    async with Failing().session(tmp_path) as sess:
        listeners = len(sess.coord.saves.on_committed)
        for number in range(12):
            channel = sess.coord.channel(2)
            await channel.send(number)
            channel.close()
            await count_all(sess, channel)
        assert [one.name for one in await sess.queues()] == ["channel"]
        assert len(sess.coord.saves.on_committed) == listeners + 1
        assert await seen(sess) == [1] * 12


@pytest.mark.campaign(short=5)
async def test_each_accepted_item_counts_once(tmp_path: Path, seed: int) -> None:
    """Stops, crashes, failed steps and saves at random, with a sender that waits for commits."""
    dice, failing, accepted = random.Random(seed), Failing(), set[int]()

    async def send(sess: Any, channel: Any, number: int) -> None:
        with contextlib.suppress(am.errors.CancelledError):
            for each in range(number, 64):
                ack = dice.choice([None, "commit"])
                await channel.send(each, ack=ack)
                if ack is not None:
                    accepted.add(each)
            channel.close()

    async def save(sess: Any) -> None:
        while True:
            await asyncio.sleep(0.01)
            with contextlib.suppress(RuntimeError):  # in a recovery, or at the end
                await sess.save()

    async def train() -> None:
        failing.failures = set(dice.sample(range(64), 6))
        left, crashes = dice.randrange(2, 15), dice.random() < 0.5
        async with failing.session(tmp_path, dice.choice([1, 2, 5])) as sess:
            channel = sess.coord.channel(dice.choice([1, 3, 8]))
            done = np.flatnonzero(await sess.peek("seen")).tolist()
            known = {*done, *(one.item for one in channel.undelivered())}
            assert accepted <= known
            sending = asyncio.ensure_future(send(sess, channel, max(known, default=-1) + 1))
            saving = asyncio.ensure_future(save(sess))
            try:
                async for number in sess.iterate(channel):
                    await asyncio.sleep(0.003)
                    await sess.run("count", {"number": number})
                    left -= 1
                    if left <= 0 and crashes:
                        raise Crash
                    if left <= 0:
                        sess.request_stop()
            finally:
                saving.cancel()
        await sending

    async with assert_nothing_left_behind(descriptors=False):
        for _ in range(12):
            with contextlib.suppress(Crash):
                await train()
        failing.failures = set()
        async with failing.session(tmp_path) as sess:
            channel = sess.coord.channel(8)
            channel.close()
            await count_all(sess, channel)
            found = await sess.peek("seen")
    assert max(found) == 1
    assert {number for number in accepted if not found[number]} == set()
    assert len(accepted) > 10
