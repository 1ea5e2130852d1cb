"""Hooks that come and go while the session runs; samples; hooks with a state."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import anyio
import pytest

from asyncmon.errors import AbortedError, DeadlineExceededError
from asyncmon.runtime import MonitoredSession, SessionRunHook
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    fail_in,
    wait_all_tasks_blocked,
)
from tests.runtime.conftest import World, graph_world

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def scripted(script: list[Any], *, hooks: Any = None, **kwargs: Any) -> MonitoredSession:
    return MonitoredSession(ScriptedCreator(ScriptedSession(script)), hooks, **kwargs)


LIFE = ["begin", "after_create_session", "before_run", "after_run", "end", "cleanup"]


class Background(RecordingHook):
    async def background(self, session: Any, coord: Any) -> None:
        self._note("background", None)
        try:
            await asyncio.Event().wait()
        finally:
            self._note("cancelled", None)


async def test_an_attached_hook_has_its_whole_life(world: World) -> None:
    hook = Background()
    async with world.session() as sess:
        await sess.run(world.train, world.feed())
        handle = await sess.attach(hook)
        await wait_all_tasks_blocked()
        await sess.run(world.train, world.feed())
        await handle.detach()
        await handle.detach()
        await sess.run(world.train, world.feed())
    await handle.detach()
    assert hook.moments() == [
        "begin", "after_create_session", "background", "before_run", "after_run", "cancelled", "end",
        "cleanup",
    ]  # fmt: skip


async def test_an_attached_hook_ends_with_the_session(world: World) -> None:
    async with world.session() as sess:
        async with await sess.attach(first := RecordingHook()):
            await sess.run(world.train, world.feed())
        await sess.attach(last := RecordingHook())
        await sess.run(world.train, world.feed())
    assert first.moments() == last.moments() == LIFE


async def test_an_attached_hook_is_there_after_a_recovery() -> None:
    raws = [ScriptedSession([AbortedError("x")]), ScriptedSession([1])]
    async with MonitoredSession(ScriptedCreator(*raws)) as sess:
        await sess.attach(hook := RecordingHook())
        await sess.run("a")
    assert hook.sessions == raws


async def test_a_hook_can_be_attached_and_detached_from_inside_a_run(world: World) -> None:
    class Attaching(SessionRunHook):
        handle: Any = None

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            if self.handle is None:
                self.handle = await sess.attach(inner)
            else:
                await self.handle.detach()

    inner = RecordingHook()
    async with world.session([Attaching()]) as sess:
        for _ in range(3):
            await sess.run(world.train, world.feed())
    assert inner.moments() == ["begin", "after_create_session", "before_run", "end", "cleanup"]


async def test_attaching_waits_for_the_run_under_way(world: World) -> None:
    class Slow(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            await asyncio.sleep(5)

    async with world.session([Slow()]) as sess:
        run = asyncio.create_task(sess.run(world.train, world.feed()))
        await wait_all_tasks_blocked()
        await sess.attach(RecordingHook())
        assert run.done()


@pytest.mark.parametrize("moment", ["begin", "after_create_session"])
async def test_a_hook_that_fails_while_it_is_attached_is_not(world: World, moment: Any) -> None:
    async with world.session() as sess:
        with pytest.raises(ValueError, match="no"):
            await sess.attach(fail_in(moment, ValueError("no")))
        assert await sess.run(world.train, world.feed()) == 1.0


async def test_a_hook_that_left_while_another_failed_to_be_attached_stays_away() -> None:
    leave, left = asyncio.Event(), asyncio.Event()

    class Leaving(RecordingHook):
        on_error = "detach"

        async def background(self, session: Any, coord: Any) -> None:
            await leave.wait()
            raise ValueError("gone")

        async def cleanup(self, error: BaseException | None) -> None:
            await super().cleanup(error)
            left.set()

    class Failing(SessionRunHook):
        async def begin(self) -> None:
            leave.set()
            await left.wait()
            raise KeyError("no")

    async with scripted([1], hooks=[hook := Leaving()]) as sess:
        with pytest.raises(KeyError):
            await sess.attach(Failing())
        assert await sess.run("a") == 1
    assert hook.moments() == ["begin", "after_create_session", "cleanup"]


async def test_wrong_hooks_and_hooks_that_are_there_are_refused(world: World) -> None:
    async with world.session([hook := RecordingHook()]) as sess:
        with pytest.raises(ValueError, match="is there twice"):
            await sess.attach(hook)
        with pytest.raises(TypeError, match="is no hook"):
            await sess.attach(5)


async def test_an_error_in_end_leaves_detach_and_cleanup_is_called(world: World) -> None:
    class Failing(RecordingHook):
        async def end(self, session: Any) -> None:
            raise ValueError("no")

    async with world.session() as sess:
        handle = await sess.attach(hook := Failing())
        with pytest.raises(ValueError, match="no"):
            await handle.detach()
    assert hook.moments() == ["begin", "after_create_session", "cleanup"]
    assert isinstance(hook.error, ValueError)


async def test_sample_joins_the_next_run(world: World) -> None:
    async with world.session() as sess:
        asked = [asyncio.create_task(sess.sample({"w": world.weight})) for _ in range(2)]
        await wait_all_tasks_blocked()
        assert not asked[0].done()
        await sess.run(world.train, world.feed(3.0))
        assert [list(values) for values in await asyncio.gather(*asked)] == [["w"]] * 2


async def test_a_sample_that_no_run_answers_raises_at_the_end(world: World) -> None:
    async with world.session() as sess:
        asked = asyncio.create_task(sess.sample(world.weight))
        await wait_all_tasks_blocked()
    with pytest.raises(RuntimeError, match="ended before another run"):
        await asked


async def test_a_failed_run_keeps_the_sample_and_names_its_caller(world: World) -> None:
    async with world.session() as sess:
        asked = asyncio.create_task(sess.sample(world.weight), name="the asker")
        await wait_all_tasks_blocked()
        with pytest.raises(Exception, match="x") as caught:
            await sess.run(world.train)
        assert "The run also fetched samples for: the asker." in caught.value.__notes__
        await sess.run(world.train, world.feed())
        await asked


async def test_a_sample_of_a_name_outside_the_graph_fails_no_run() -> None:
    world = graph_world()
    async with world.session() as sess:
        asked = asyncio.create_task(sess.sample(["weight", "los:0"]))
        await wait_all_tasks_blocked()
        await sess.run(world.train, world.feed())
        with pytest.raises(ValueError, match="los:0"):
            await asked


async def test_a_hooks_state_travels_in_the_checkpoint(world: World, tmp_path: Path) -> None:
    class Counting(SessionRunHook):
        count = 0

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            self.count += 1

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.count = state["count"]

    async def run(hooks: list[Counting]) -> None:
        creator = world.creator(checkpoint_dir=tmp_path)
        async with MonitoredSession(creator, hooks) as sess:
            assert [hook.count for hook in hooks] == [sess.global_step] * 2
            for _ in range(3):
                await sess.run(world.train, world.feed())
            saver = creator.scaffold.saver
            await saver.save(sess, tmp_path / "model.ckpt", global_step=sess.global_step)
        await saver.close()

    for _ in range(2):
        await run([Counting(), Counting()])


async def test_a_hook_whose_attaching_hangs_is_given_up_after_a_stop() -> None:
    class Hanging(RecordingHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            await asyncio.Event().wait()

    hook = Hanging()
    async with scripted([1], stop_grace_period_secs=10) as sess:
        asyncio.get_running_loop().call_later(5, sess.request_stop)
        with pytest.raises(DeadlineExceededError, match="The hook hook did not finish"):
            await sess.attach(hook)
        assert asyncio.get_running_loop().time() == 15
        assert hook.moments() == ["begin", "cleanup"]
        assert await sess.run("a") == 1


async def test_a_cancelled_attach_cleans_up_beside_other_errors() -> None:
    class Slow(RecordingHook):
        async def begin(self) -> None:
            await asyncio.sleep(100)

        async def cleanup(self, error: BaseException | None) -> None:
            await asyncio.sleep(10)
            await super().cleanup(error)

    hook = Slow()
    async with scripted([1]) as sess:
        with anyio.move_on_after(1):
            await sess.attach(hook)
        assert hook.moments() == ["cleanup"]
        assert asyncio.get_running_loop().time() == 11


async def test_a_background_that_ignores_its_cancellation_does_not_hold_a_detach(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    class Stubborn(RecordingHook):
        async def background(self, session: Any, coord: Any) -> None:
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()

    hook = Stubborn()
    async with scripted([1]) as sess:
        attached = await sess.attach(hook)
        await asyncio.sleep(1)
        await attached.detach()
        assert hook.moments()[-2:] == ["end", "cleanup"]
        release.set()
    assert "'hook.background' ignores its cancellation: it waits in" in caplog.text


@pytest.mark.parametrize("policy", ["log", "detach"])
async def test_a_failing_cleanup_obeys_on_error_too(policy: Any) -> None:
    class Failing(SessionRunHook):
        on_error = policy

        async def cleanup(self, error: BaseException | None) -> None:
            raise ValueError("spilt")

    async with scripted([1], hooks=[Failing()]) as sess:
        await sess.run("a")
    assert sess.stop_reason == "the body ended"
