"""The life of a monitored session: start, bodies that end in every way, close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from asyncmon.errors import AbortedError, CancelledError, OutOfRangeError
from asyncmon.runtime import MonitoredSession, SessionRunHook
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    assert_nothing_left_behind,
    fail_in,
    wait_all_tasks_blocked,
)
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def forever() -> None:
    await asyncio.Event().wait()


async def test_nothing_happens_before_start_and_start_and_close_do_without_with_ms_1(
    world: World,
) -> None:
    hook = RecordingHook()
    sess = world.session([hook])
    assert hook.moments() == []
    assert sess.raw_session() is None
    await sess.start()
    assert await sess.run(world.train, world.feed()) == 1.0
    await sess.close()
    assert hook.moments()[-2:] == ["end", "cleanup"]


async def test_the_last_results_stay_readable_after_the_close(world: World) -> None:
    sess = world.session([RecordingHook()])
    assert sess.last_results is None
    async with sess:
        results = await sess.run([world.train], world.feed())
        await sess.run(world.train, world.feed(), hooks=False)
    assert sess.last_results is results
    with pytest.raises(RuntimeError, match=r"`last_results` stay readable\. Fetch other values before"):
        await sess.peek(world.train)


async def test_start_and_close_from_different_tasks(world: World) -> None:
    """DESIGN: a service's lifespan, a test fixture, a notebook cell each."""
    hook = RecordingHook()
    async with assert_nothing_left_behind():
        sess = world.session([hook])
        await asyncio.create_task(sess.start())
        await asyncio.create_task(sess.run(world.train, world.feed()))
        await asyncio.create_task(sess.close())
    assert hook.moments()[-2:] == ["end", "cleanup"]


@pytest.mark.parametrize(
    "error", [OutOfRangeError("end"), StopIteration("end"), StopAsyncIteration("end")]
)
async def test_the_end_of_the_data_ends_the_body_cleanly_ms_2_ms_3(
    world: World, error: Exception
) -> None:
    hook = RecordingHook()
    async with world.session([hook]) as sess:
        raise error
    assert hook.moments()[-2:] == ["end", "cleanup"]  # type: ignore[unreachable]  # the block swallows
    assert hook.error is None
    assert sess.stop_reason == f"end of data ({type(error).__name__}: end)"


async def test_subclasses_count_too_ms_4(world: World) -> None:
    class MyEnd(OutOfRangeError):
        pass

    hook = RecordingHook()
    async with world.session([hook]):
        raise MyEnd("end")
    assert "end" in hook.moments()  # type: ignore[unreachable]  # the block swallows


async def test_stop_iteration_through_a_coroutine_and_a_group_counts_too_ax_1(world: World) -> None:
    async def next_batch() -> Any:
        return next(iter([]))

    hooks = [RecordingHook(), RecordingHook()]
    async with world.session(hooks[:1]):
        await next_batch()
    async with world.session(hooks[1:]), asyncio.TaskGroup() as group:
        group.create_task(next_batch())
    assert all("end" in hook.moments() for hook in hooks)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("boom"),
        AbortedError("by hand"),
        CancelledError("of an operation"),
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        asyncio.CancelledError(),
        ExceptionGroup("two", [OutOfRangeError("end"), ValueError("boom")]),
    ],
)
async def test_any_other_exception_leaves_and_end_is_not_called_ms_5_hp_12(
    world: World, error: BaseException
) -> None:
    """MS-5, MS-6, MS-17, HP-12, ER-3: and the session is closed."""
    hook = RecordingHook()
    sess = world.session([hook])

    async def body() -> None:
        async with sess:
            sess.coord.create_task(forever, cancel_on_stop=True)
            raise error

    async with assert_nothing_left_behind():
        with pytest.raises(type(error)) as caught:
            await body()
    assert caught.value is error
    assert hook.moments() == ["begin", "after_create_session", "cleanup"]
    assert hook.error is error
    assert sess.should_stop()


async def test_should_stop_ms_7(world: World) -> None:
    async with world.session() as sess:
        assert not sess.should_stop()
        sess.request_stop("enough")
        assert sess.should_stop()
        assert sess.stop_reason == "enough"
    assert sess.should_stop()
    assert sess.stop_reason == "enough"
    async with world.session() as sess:
        sess.coord.request_stop(reason="by the coordinator")
        assert sess.should_stop()
    assert sess.stop_reason == "by the coordinator"


async def test_end_then_stop_then_join_then_close_ms_8() -> None:
    events: list[str] = []

    class Raw(ScriptedSession):
        async def close(self) -> None:
            events.append("closed")

    class Hook(SessionRunHook):
        async def background(self, session: Any, coord: Any) -> None:
            try:
                await forever()
            finally:
                events.append("background cancelled")

        async def end(self, session: Any) -> None:
            events.append("end")

        async def cleanup(self, error: BaseException | None) -> None:
            events.append("cleanup")

    async def polite(coord: Any) -> None:
        await coord.wait_for_stop()
        events.append("told to stop")
        await asyncio.sleep(5)
        events.append("stopped")

    async with MonitoredSession(ScriptedCreator(Raw()), [Hook()]) as sess:
        sess.coord.create_task(polite, sess.coord)
        await wait_all_tasks_blocked()
    assert events[0] == "end"
    assert set(events[1:3]) == {"told to stop", "background cancelled"}
    assert events[3:] == ["stopped", "closed", "cleanup"]


async def test_an_error_of_the_raw_close_is_logged_ms_9(caplog: pytest.LogCaptureFixture) -> None:
    class Raw(ScriptedSession):
        async def close(self) -> None:
            raise ValueError("will not close")

    async with MonitoredSession(ScriptedCreator(Raw())):
        pass
    assert "will not close" in caplog.text


async def test_after_close_everything_says_so_ms_10(world: World) -> None:
    async with world.session() as sess:
        assert sess.graph is not None
    assert sess.should_stop()
    assert sess.graph is None
    assert sess.raw_session() is None
    assert sess.global_step == 0  # the last known step stays readable
    for call in (
        lambda: sess.run(world.train),
        lambda: sess.run(world.train, hooks=False),
        lambda: sess.run_step_fn(lambda step_context: None),
        lambda: sess.sample(world.weight),
        lambda: sess.peek(world.weight),
        lambda: sess.attach(RecordingHook()),
        sess.start,
    ):
        with pytest.raises(RuntimeError, match="session is closed"):
            await call()


@pytest.mark.parametrize("fails", [False, True])
async def test_the_step_and_the_reason_stay_readable(world: World, fails: bool) -> None:
    seen = []

    class Reads(RecordingHook):
        async def cleanup(self, error: Any) -> None:
            seen.append(sess.global_step)

    sess = world.session([Reads()])
    assert sess.global_step is None
    try:
        async with sess:
            await sess.run(world.train, world.feed())
            await sess.run(world.train, world.feed())
            sess.request_stop("enough")
            if fails:
                raise ValueError("of the body")
    except ValueError:
        assert fails
    assert (sess.global_step, seen, sess.statistics().step) == (2, [2], 2)
    assert (sess.stop_reason == "enough") is not fails
    assert sess.stop_reason is not None
    with pytest.raises(RuntimeError, match=r"Fetch other values before.*load_variable"):
        await sess.peek(world.weight)


async def test_before_start_everything_says_so(world: World) -> None:
    sess = world.session()
    with pytest.raises(RuntimeError, match="not open yet"):
        await sess.run(world.train)
    async with sess:
        with pytest.raises(RuntimeError, match="open already"):
            await sess.start()


async def test_close_is_idempotent_and_end_is_called_once_ms_11_kc_21(world: World) -> None:
    """MS-11, KC-21, AX-28: also inside the block, and from several tasks at once."""
    hook = RecordingHook()
    async with world.session([hook]) as sess:
        await asyncio.gather(sess.close(), sess.close(), sess.close())
        await sess.close()
    await sess.close()
    assert hook.moments().count("end") == 1
    assert hook.moments().count("cleanup") == 1


async def test_a_session_that_never_started_closes_too(world: World) -> None:
    hook = RecordingHook()
    sess = world.session([hook])
    await sess.close()
    assert hook.moments() == []
    with pytest.raises(RuntimeError, match="is closed"):
        await sess.start()


async def test_an_error_beside_the_body_is_raised_after_end_ms_12(world: World) -> None:
    hook = RecordingHook()

    async def body() -> None:
        async with world.session([hook]) as sess:
            sess.coord.request_stop(ValueError("beside"))
            assert sess.should_stop()

    with pytest.raises(ValueError, match="beside"):
        await body()
    assert hook.moments()[-2:] == ["end", "cleanup"]
    assert isinstance(hook.error, ValueError)


async def test_the_end_of_the_data_beside_the_body_is_a_clean_end_ms_12(world: World) -> None:
    hook = RecordingHook()
    async with world.session([hook]) as sess:
        sess.coord.request_stop(OutOfRangeError("the producer is through"))
    assert hook.error is None
    assert "the producer is through" in (sess.stop_reason or "")


@pytest.mark.parametrize("singular", [False, True])
async def test_an_unseen_preemption_beside_the_body_ms_12(
    world: World, singular: bool, caplog: pytest.LogCaptureFixture
) -> None:
    hook = RecordingHook()
    sess = world.singular([hook]) if singular else world.session([hook])

    async def body() -> None:
        async with sess:
            sess.coord.request_stop(AbortedError("gone"))

    if singular:
        with pytest.raises(AbortedError, match="gone"):
            await body()
    else:
        await body()
        assert "An error occurred when attempting to close the session." in caplog.text
    assert "end" in hook.moments()


async def test_the_error_beside_the_body_explains_that_of_the_body_ms_13(world: World) -> None:
    with pytest.raises(ValueError, match="root") as caught:
        await _fail_twice(world, ValueError("root"))
    assert isinstance(caught.value.__context__, KeyError)
    assert "The body of the session raised KeyError: 'consequence'" in caught.value.__notes__


async def test_a_preemption_beside_the_body_does_not_ms_13(world: World) -> None:
    with pytest.raises(KeyError, match="consequence"):
        await _fail_twice(world, AbortedError("gone"))


async def _fail_twice(world: World, beside: Exception) -> None:
    async with world.session() as sess:
        sess.coord.request_stop(beside)
        raise KeyError("consequence")


async def test_an_error_while_stopping_is_raised_ms_14(world: World) -> None:
    async def fails_late(coord: Any) -> None:
        await coord.wait_for_stop()
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        async with world.session() as sess:
            sess.coord.create_task(fails_late, sess.coord)


async def test_break_and_a_requested_stop_are_clean_ms_16_ms_24(world: World) -> None:
    hook = RecordingHook()
    async with world.session([hook]) as sess:
        while not sess.should_stop():
            await sess.run(world.train, world.feed())
            if sess.global_step == 3:
                sess.coord.request_stop()
    assert hook.moments()[-2:] == ["end", "cleanup"]
    while True:
        async with world.session([RecordingHook()]) as sess:
            break


async def test_graph_and_raw_session_ms_21_ss_3(world: World) -> None:
    for sess in (world.session(), world.singular()):
        async with sess:
            assert sess.raw_session().graph is sess.graph
            assert await sess.raw_session().run(world.weight) == 0
        assert sess.raw_session() is None


async def test_what_hooks_are_given_hp_3_hp_5() -> None:
    raw = ScriptedSession()
    hook = RecordingHook()
    async with MonitoredSession(ScriptedCreator(raw), [hook]) as sess:
        assert hook.sessions == [raw]
        assert hook.coords == [sess.coord]
        sess.coord.request_stop(OutOfRangeError("an error here"))
        with pytest.raises(OutOfRangeError):
            sess.coord.raise_requested_exception()
    assert hook.moments().count("begin") == 1


async def test_an_error_in_begin_leaves_and_only_what_began_is_cleaned_up_hp_7(world: World) -> None:
    first, last = RecordingHook("first"), RecordingHook("last")
    sess = world.session([first, fail_in("begin", ValueError("no")), last])
    with pytest.raises(ValueError, match="no"):
        await sess.start()
    assert first.moments() == ["begin", "cleanup"]
    assert last.moments() == []
    assert not world.program.finalized
    with pytest.raises(RuntimeError, match="is closed"):
        await sess.run(world.train)


async def test_an_error_in_after_create_session_closes_what_was_opened_hp_8() -> None:
    raw = ScriptedSession()

    class Starter(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            coord.create_task(forever)

    hooks = [Starter(), fail_in("after_create_session", ValueError("no")), last := RecordingHook()]
    async with assert_nothing_left_behind():
        with pytest.raises(ValueError, match="no"):
            async with MonitoredSession(ScriptedCreator(raw), hooks, 0):
                pytest.fail("not reached")
    assert raw.closed
    assert last.moments() == ["begin", "cleanup"]


async def test_every_end_is_called_and_the_first_error_raised_hp_13(world: World) -> None:
    hooks = [
        fail_in("end", ValueError("first")),
        RecordingHook(),
        fail_in("end", KeyError("second")),
    ]
    sess = world.session(hooks)
    with pytest.raises(ValueError, match="first") as caught:
        async with sess:
            raise OutOfRangeError("end")
    assert hooks[1].moments()[-2:] == ["end", "cleanup"]
    assert "At the end failed KeyError: 'second'" in caught.value.__notes__
    assert isinstance(caught.value.__context__, OutOfRangeError)
    assert sess.should_stop()


async def test_a_preemption_in_end_is_not_recovered_from_hp_13(world: World) -> None:
    with pytest.raises(AbortedError, match="in the end"):
        async with world.session([fail_in("end", AbortedError("in the end"))]):
            pass


async def test_end_gets_a_live_session_after_a_stop_hp_14(world: World) -> None:
    class Reader(SessionRunHook):
        async def end(self, session: Any) -> None:
            self.value = await session.run(world.weight)

    hook = Reader()
    async with world.session([hook]) as sess:
        await sess.run(world.train, world.feed(4.0))
        sess.request_stop()
    assert hook.value == 4.0


async def test_an_error_in_cleanup_is_attached_and_all_others_are_called(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = [RecordingHook("A"), fail_in("cleanup", KeyError("leak")), RecordingHook("B")]
    with pytest.raises(ValueError, match="boom") as caught:
        async with world.session(hooks):
            raise ValueError("boom")
    assert "The cleanup of a hook failed: KeyError: 'leak'" in caught.value.__notes__
    assert "_Fault.cleanup failed." in caplog.text
    assert all(hook.moments()[-1] == "cleanup" for hook in (hooks[0], hooks[2]))


async def test_an_error_in_cleanup_leaves_where_nothing_else_does(world: World) -> None:
    hooks = [fail_in("cleanup", KeyError("one")), fail_in("cleanup", KeyError("leak"))]
    with pytest.raises(KeyError, match="leak") as caught:
        async with world.session(hooks) as sess:
            await sess.run(world.train, world.feed())
    assert "The cleanup of a hook failed: KeyError: 'one'" in caught.value.__notes__
    assert sess.stop_reason == "The cleanup of a hook failed: KeyError: 'leak'"


async def test_the_last_line_says_how_and_at_which_step_it_ended(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "asyncmon"):
        async with world.session() as sess:
            await sess.run(world.train, world.feed())
            sess.request_stop("that is enough")
        with pytest.raises(ValueError, match="boom"):
            async with world.session():
                raise ValueError("boom")
    lines = [r for r in caplog.records if r.getMessage().startswith("Session ended")]
    assert [r.getMessage() for r in lines] == [
        "Session ended at step 1: that is enough.",
        "Session ended at step 0: ValueError: boom.",
    ]
    assert [r.levelname for r in lines] == ["INFO", "WARNING"]


async def test_an_async_generator_that_holds_a_session_closes_it_ax_22(world: World) -> None:
    hook = RecordingHook()

    async def results() -> AsyncIterator[Any]:
        async with world.session([hook]) as sess:
            while True:
                yield await sess.run(world.train, world.feed())

    async with assert_nothing_left_behind():
        generator = results()
        assert [await anext(generator) for _ in range(2)] == [1.0, 2.0]
        await generator.aclose()
    assert hook.moments()[-1] == "cleanup"
    assert "end" not in hook.moments()


async def test_peek_reads_without_a_step(world: World) -> None:
    async with world.session([hook := RecordingHook()]) as sess:
        await sess.run(world.train, world.feed(2.0))
        assert await sess.peek(world.weight) == 2.0
        with pytest.raises(Exception, match=r"train|Assign"):
            await sess.peek(world.train, world.feed())
    assert hook.moments().count("before_run") == 1


async def test_a_run_without_hooks(world: World) -> None:
    """KC-5, MT-26."""
    async with world.session([hook := RecordingHook()]) as sess:
        assert await sess.run(world.train, world.feed(), hooks=False) == 1.0
    assert "before_run" not in hook.moments()


async def test_signals_accepts_only_its_documented_values(world: World) -> None:
    with pytest.raises(ValueError, match="signals must be 'auto' or None"):
        world.session(signals="yes")


async def test_a_session_is_for_async_with(world: World) -> None:
    with pytest.raises(TypeError, match="A MonitoredSession is awaited: write `async with`"):
        world.session().__enter__()


async def test_an_end_that_takes_long_is_named_kc_2(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class SlowEnd(SessionRunHook):
        async def end(self, session: Any) -> None:
            await asyncio.sleep(11)

    caplog.set_level(logging.INFO, "asyncmon")
    async with world.session([SlowEnd()]):
        pass
    assert "Waiting for SlowEnd.end." in caplog.messages


async def test_a_session_shows_where_it_is(world: World) -> None:
    sess = world.session()
    assert repr(sess) == "<MonitoredSession: new>"
    async with sess:
        await sess.run(world.train, world.feed())
        assert repr(sess) == "<MonitoredSession: open at step 1>"
    assert repr(sess) == "<MonitoredSession: closed at step 1>"


async def test_a_reason_that_is_no_text_is_refused_at_once(world: World) -> None:
    async with world.session() as sess:
        with pytest.raises(TypeError, match="reason must be a str or None, got ValueError"):
            sess.request_stop(ValueError("mine"))
        assert not sess.should_stop()
