"""The coordinator owns tasks, stops them, and loses no error."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading

import pytest

from asyncmon.errors import AbortedError, OutOfRangeError
from asyncmon.runtime import Coordinator
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def now() -> float:
    return asyncio.get_running_loop().time()


async def forever() -> None:
    await asyncio.Event().wait()


async def fail(error: BaseException, after: float = 0) -> None:
    await asyncio.sleep(after)
    raise error


async def ignore_cancellation(until: asyncio.Event) -> None:
    while not until.is_set():
        try:
            await until.wait()
        except asyncio.CancelledError:
            continue


async def test_a_stop_is_seen_at_once_and_wakes_all_waiters_co_1() -> None:
    coord = Coordinator()
    assert not coord.should_stop()
    assert not coord.joined
    waiters = [asyncio.create_task(coord.wait_for_stop()) for _ in range(3)]
    await wait_all_tasks_blocked()
    coord.request_stop(reason="enough")
    coord.request_stop(reason="more")
    assert coord.should_stop()
    assert coord.stop_reason == "enough"
    assert await asyncio.gather(*waiters) == [True] * 3


@pytest.mark.parametrize("as_tuple", [False, True])
async def test_an_error_is_recorded_and_logged_co_2(
    as_tuple: bool, caplog: pytest.LogCaptureFixture
) -> None:
    coord = Coordinator()
    with caplog.at_level(logging.INFO, "asyncmon"):
        try:
            raise ValueError("boom")
        except ValueError as error:
            coord.request_stop(sys.exc_info() if as_tuple else error)
    assert "Error reported to Coordinator: <class 'ValueError'>, boom" in caplog.text
    assert "Traceback" in caplog.text
    with pytest.raises(ValueError, match="boom"):
        coord.raise_requested_exception()


async def test_the_first_error_is_primary_and_the_others_are_kept_co_3(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CO-3, AX-16: join raises the first each time; the later ones are logged and attached."""
    coord = Coordinator()
    coord.request_stop(ValueError("first"))
    coord.request_stop(KeyError("second"))
    for _ in range(2):
        with pytest.raises(ValueError, match="first") as caught:
            await coord.join()
    assert any("second" in note for note in caught.value.__notes__)
    assert [r.levelname for r in caplog.records if "second" in r.getMessage()] == ["ERROR"]


async def test_an_error_after_a_plain_stop_is_kept_co_4() -> None:
    coord = Coordinator()
    coord.request_stop()
    coord.request_stop(ValueError("late"))
    with pytest.raises(ValueError, match="late"):
        await coord.join()


async def test_clean_types_stop_without_being_raised_co_5() -> None:
    coord = Coordinator()
    coord.request_stop(OutOfRangeError("end"))
    assert coord.should_stop()
    await coord.join()

    custom = Coordinator(clean_stop_exception_types=[KeyError])
    custom.request_stop(OutOfRangeError("end"))
    with pytest.raises(OutOfRangeError):
        await custom.join()

    strict = Coordinator(())
    strict.request_stop(OutOfRangeError("end"))
    with pytest.raises(OutOfRangeError):
        await strict.join()


async def test_an_error_after_a_clean_one_is_kept_co_17() -> None:
    coord = Coordinator()
    coord.request_stop(OutOfRangeError("end"))
    coord.request_stop(ValueError("real"))
    with pytest.raises(ValueError, match="real"):
        await coord.join()


async def test_only_exceptions_are_reported_co_6() -> None:
    coord = Coordinator()
    with pytest.raises(TypeError, match="takes an exception"):
        coord.request_stop("no")  # type: ignore[arg-type]  # the mistake under test
    assert not coord.should_stop()


async def test_an_error_reported_after_join_is_raised_to_the_reporter_co_7() -> None:
    coord = Coordinator()
    coord.request_stop()
    await coord.join()
    coord.request_stop()
    coord.request_stop(OutOfRangeError("clean"))
    with pytest.raises(ValueError, match="too late"):
        coord.request_stop(ValueError("too late"))


async def test_clear_stop_starts_afresh_co_8() -> None:
    coord = Coordinator()
    coord.request_stop(ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        await coord.join()
    coord.clear_stop()
    assert not coord.should_stop()
    assert not coord.joined
    coord.raise_requested_exception()
    assert coord.stop_reason is None


async def test_join_waits_for_all_tasks_without_a_stop_co_9() -> None:
    coord = Coordinator()
    coord.create_task(asyncio.sleep, 1000)
    extra = asyncio.create_task(asyncio.sleep(1.2))
    await coord.join([extra], stop_grace_period_secs=1)
    assert now() == 1000
    assert coord.joined


async def test_grace_then_cancel_co_10() -> None:
    async with assert_nothing_left_behind():
        coord = Coordinator()
        polite = coord.create_task(coord.wait_for_stop)
        rude = coord.create_task(forever)
        hasty = coord.create_task(forever, cancel_on_stop=True)
        asyncio.get_running_loop().call_later(5, coord.request_stop)
        hasty_ended: list[float] = []
        hasty.add_done_callback(lambda _: hasty_ended.append(now()))
        await coord.join(stop_grace_period_secs=10)
        assert now() == 15
        assert hasty_ended == [5]
        assert polite.result() is True
        assert rude.cancelled()


async def test_stragglers_are_named_co_10(caplog: pytest.LogCaptureFixture) -> None:
    """CO-10, AX-17: a task that outlives the cancellation is named, with the line of its wait."""
    release = asyncio.Event()
    coord = Coordinator()
    tasks = [coord.create_task(ignore_cancellation, release, name=name) for name in ("b", "a")]
    await wait_all_tasks_blocked()
    coord.request_stop()
    with pytest.raises(RuntimeError, match=r"^Coordinator stopped with threads still running: a b$"):
        await coord.join(stop_grace_period_secs=-1)
    assert "Task 'a' ignores its cancellation: it waits in Event.wait (" in caplog.text
    assert coord.joined
    release.set()
    await asyncio.gather(*tasks)


async def test_live_tasks_can_be_ignored_co_10(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()
    coord = Coordinator()
    task = coord.create_task(ignore_cancellation, release, name="stuck")
    await wait_all_tasks_blocked()
    coord.request_stop()
    await coord.join(stop_grace_period_secs=0, ignore_live_tasks=True)
    assert "Coordinator stopped with threads still running: stuck" in caplog.text
    release.set()
    await task


async def test_an_error_is_raised_in_preference_to_stragglers_co_10() -> None:
    release = asyncio.Event()
    coord = Coordinator()
    task = coord.create_task(ignore_cancellation, release)
    await wait_all_tasks_blocked()
    coord.request_stop(ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        await coord.join(stop_grace_period_secs=0)
    release.set()
    await task


async def test_the_holder_of_a_lock_is_logged_after_a_second_kc_2(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coord = Coordinator()
    coord.create_task(forever, name="slow")
    coord.request_stop()
    await coord.join(stop_grace_period_secs=5)
    notice = caplog.records[0].getMessage()
    assert caplog.records[0].levelno == logging.WARNING
    assert notice.startswith("Waiting 4 s more for tasks to stop: 'slow', it waits in Event.wait (")
    assert "called from forever (" in notice
    assert "cancel_on_stop=True" in notice


async def test_joined_even_if_join_raises_and_a_later_task_is_refused_co_11() -> None:
    coord = Coordinator()
    coord.create_task(fail, ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        await coord.join()
    assert coord.joined
    with pytest.raises(RuntimeError, match="joined"):
        coord.create_task(forever)


async def test_a_registered_task_is_waited_for_and_its_error_stops_co_12() -> None:
    coord = Coordinator()
    coord.register_task(asyncio.create_task(fail(ValueError("mine"), after=2)))
    with pytest.raises(ValueError, match="mine"):
        await coord.join()
    assert now() == 2
    with pytest.raises(TypeError, match="register_task takes"):
        coord.register_task(threading.Thread())  # type: ignore[arg-type]  # the mistake under test


async def test_wait_for_stop_with_a_timeout_co_14() -> None:
    coord = Coordinator()
    assert await coord.wait_for_stop(2) is False
    assert now() == 2
    assert await coord.wait_for_stop(0) is False
    assert await coord.wait_for_stop(-1) is False
    coord.request_stop()
    assert await coord.wait_for_stop(2) is True
    assert await coord.wait_for_stop(0) is True
    assert now() == 2


async def test_stop_on_exception_reports_and_continues_co_15() -> None:
    coord = Coordinator()
    with coord.stop_on_exception():
        raise ValueError("reported")
    assert coord.should_stop()  # type: ignore[unreachable]  # the block swallows
    with pytest.raises(ValueError, match="reported"):
        await coord.join()
    with pytest.raises(KeyError), coord.stop_on_exception():
        raise KeyError("joined already")


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
async def test_cancellation_and_interrupts_are_never_held_back_co_15(kind: type[BaseException]) -> None:
    """CO-15, KC-12."""
    coord = Coordinator()
    with pytest.raises(kind), coord.stop_on_exception():
        raise kind
    assert not coord.should_stop()


async def test_an_error_in_a_task_is_raised_by_join_co_16() -> None:
    coord = Coordinator()
    coord.create_task(fail, AbortedError("gone"), 1)
    with pytest.raises(AbortedError, match="gone") as caught:
        await coord.join()
    assert "task 'fail'" in (coord.stop_reason or "")
    assert any(entry.name == "fail" for entry in caught.traceback)


async def test_a_stop_from_a_thread_wakes_the_loop_ax_18() -> None:
    coord = Coordinator()
    waiter = asyncio.create_task(coord.wait_for_stop())
    await wait_all_tasks_blocked()
    await asyncio.to_thread(coord.request_stop, None, "from a thread")
    assert await waiter
    assert coord.stop_reason == "from a thread"


async def test_a_stop_before_the_loop_was_known_is_seen() -> None:
    coord = Coordinator()
    coord.request_stop()
    assert await coord.wait_for_stop()


async def test_an_error_after_join_is_logged_ax_16(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        await ignore_cancellation(release)
        raise ValueError("very late")

    coord = Coordinator()
    task = coord.create_task(stubborn, name="stubborn")
    await wait_all_tasks_blocked()
    coord.request_stop()
    await coord.join(stop_grace_period_secs=0, ignore_live_tasks=True)
    release.set()
    await task
    assert "Task 'stubborn' failed after its coordinator was joined." in caplog.text
    assert "very late" in caplog.text


async def test_a_cancelled_join_cancels_the_tasks() -> None:
    async with assert_nothing_left_behind():
        coord = Coordinator()
        task = coord.create_task(forever)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await coord.join()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_a_coroutine_object_is_refused_with_the_right_call() -> None:
    coord = Coordinator()
    with pytest.raises(TypeError, match=r"Write coord\.create_task\(forever, \.\.\.\)"):
        coord.create_task(forever())  # type: ignore[arg-type]  # the mistake under test


async def test_tasks_started_while_stopping_are_stopped_too() -> None:
    coord = Coordinator()

    async def spawn() -> None:
        try:
            await forever()
        finally:
            coord.create_task(forever, name="late child")

    coord.create_task(spawn, cancel_on_stop=True)
    coord.request_stop()
    async with assert_nothing_left_behind():
        await coord.join(stop_grace_period_secs=1)


async def test_a_coordinator_of_no_session_has_no_samples() -> None:
    with pytest.raises(RuntimeError, match="needs the coordinator of a monitored session"):
        await Coordinator().sample("loss")
