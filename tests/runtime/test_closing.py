"""The end of a session in which a called function does not end as it should."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from typing import Any

import pytest

from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime import MonitoredSession
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    assert_nothing_left_behind,
    fail_in,
    wait_all_tasks_blocked,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def scripted(*hooks: Any, **kwargs: Any) -> MonitoredSession:
    return MonitoredSession(ScriptedCreator(ScriptedSession([1])), hooks, **kwargs)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Takes no notes."""

    code: int


class Unspeakable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise LookupError("no words")


async def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [Frozen(503), Unspeakable()], ids=["frozen", "unspeakable"])
@pytest.mark.parametrize("where", ["body", "beside", "end", "cleanup"])
async def test_an_exception_that_cannot_be_described_leaves_as_itself(
    where: str, error: Exception
) -> None:
    first, last = RecordingHook("first"), RecordingHook("last")
    if where in ("end", "cleanup"):
        hooks = [first, fail_in(where, error), last]  # type: ignore[arg-type]  # hooks of two types
    else:
        hooks = [first, fail_in("end", KeyError("other")), fail_in("cleanup", KeyError("other")), last]
    sess = scripted(*hooks)

    async def body() -> None:
        async with sess:
            if where == "beside":
                sess.coord.create_task(fail, error)
                await asyncio.sleep(1)
            if where == "body":
                raise error

    with pytest.raises(type(error)) as caught:
        await body()
    assert caught.value is error
    assert first.moments()[-1] == last.moments()[-1] == "cleanup"
    assert sess.should_stop()


class WaitsForACancelledTask(RecordingHook):
    """Has the slip ``self.task.cancel(); await self.task`` in one of its moments."""

    def __init__(self, moment: str, on_error: Any = "raise") -> None:
        super().__init__("slip")
        self.moment, self.on_error = moment, on_error

    async def _slip(self, moment: str) -> None:
        if moment == self.moment:
            task = asyncio.create_task(asyncio.sleep(1000))
            await asyncio.sleep(0)
            task.cancel()
            await task

    async def before_run(self, run_context: Any) -> None:
        await super().before_run(run_context)
        await self._slip("before_run")

    async def end(self, session: Any) -> None:
        await super().end(session)
        await self._slip("end")

    async def cleanup(self, error: BaseException | None) -> None:
        await super().cleanup(error)
        await self._slip("cleanup")


async def live(sess: MonitoredSession) -> None:
    async with sess:
        await sess.run("a")


@pytest.mark.parametrize("moment", ["end", "cleanup"])
async def test_an_unrequested_cancellation_is_the_error_of_its_hook_hp_13(moment: str) -> None:
    hooks = [first := RecordingHook("first"), WaitsForACancelledTask(moment), last := RecordingHook()]
    sess = scripted(*hooks)
    async with assert_nothing_left_behind():
        with pytest.raises(RuntimeError, match=rf"slip\.{moment} raised a CancelledError") as caught:
            await live(sess)
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        del caught
    assert first.moments()[-2:] == last.moments()[-2:] == ["end", "cleanup"]
    assert "slip" in (sess.stop_reason or "")


@pytest.mark.parametrize("moment", ["before_run", "end", "cleanup"])
@pytest.mark.parametrize("policy", ["log", "detach"])
async def test_on_error_holds_for_such_a_cancellation_too(
    moment: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = [WaitsForACancelledTask(moment, policy), last := RecordingHook()]
    await live(scripted(*hooks))
    assert last.moments()[-2:] == ["end", "cleanup"]
    assert f"slip.{moment} failed" in caplog.text
    assert hooks[0].moments().count("cleanup") == 1


async def test_a_detached_hook_cannot_cancel_its_detaching_task() -> None:
    async with scripted() as sess:
        handle = await sess.attach(hook := WaitsForACancelledTask("end"))
        with pytest.raises(RuntimeError, match=r"slip\.end raised a CancelledError"):
            await handle.detach()
        assert hook.moments()[-1] == "cleanup"


async def test_a_raw_session_cannot_cancel_the_closing(caplog: pytest.LogCaptureFixture) -> None:
    class Raw(ScriptedSession):
        async def close(self) -> None:
            raise asyncio.CancelledError

    await live(MonitoredSession(ScriptedCreator(Raw([1])), [hook := RecordingHook()]))
    assert hook.error is None
    assert "close() of the raw session raised a CancelledError" in caplog.text


@pytest.mark.parametrize("exit", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("moment", ["end", "cleanup"])
async def test_an_exit_at_the_end_leaves_when_everything_is_closed(
    moment: Any, exit: BaseException
) -> None:
    first, last, raw = RecordingHook("first"), RecordingHook("last"), ScriptedSession([1])
    hooks = [first, fail_in(moment, ValueError("less")), fail_in(moment, exit), last]
    async with assert_nothing_left_behind():
        with pytest.raises(type(exit)) as caught:
            await live(MonitoredSession(ScriptedCreator(raw), hooks))
        assert caught.value is exit
        del caught
        exit.__traceback__ = None
    assert any("ValueError: less" in note for note in exit.__notes__)
    assert raw.closed
    assert first.moments()[-2:] == last.moments()[-2:] == ["end", "cleanup"]
    assert first.error is exit


async def test_an_exit_out_of_the_raw_session_waits_for_the_cleanup() -> None:
    class Raw(ScriptedSession):
        async def close(self) -> None:
            raise SystemExit(4)

    with pytest.raises(SystemExit):
        await live(MonitoredSession(ScriptedCreator(Raw([1])), [hook := RecordingHook()]))
    assert hook.moments()[-1] == "cleanup"


async def test_an_interrupt_between_the_parts_of_the_end_waits_for_the_cleanup() -> None:
    class Raw(ScriptedSession):
        interrupts = False

        @property
        def global_step(self) -> int:
            if self.interrupts:
                raise KeyboardInterrupt
            return 1

    raw = Raw([1])
    sess = await MonitoredSession(ScriptedCreator(raw), [hook := RecordingHook()]).start()
    raw.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        await sess.close()
    assert hook.moments()[-1] == "cleanup"


class SlowEnd(RecordingHook):
    def __init__(self, secs: float) -> None:
        super().__init__("slow")
        self.secs = secs

    async def end(self, session: Any) -> None:
        await asyncio.sleep(self.secs)
        await super().end(session)


async def test_an_exit_leaves_also_if_the_caller_was_cancelled_before() -> None:
    sess = scripted(SlowEnd(5), fail_in("end", SystemExit(3)), last := RecordingHook())
    with pytest.raises(SystemExit):
        async with asyncio.timeout(1):
            await live(sess)
    assert asyncio.get_running_loop().time() == 5
    assert last.moments()[-1] == "cleanup"


async def test_a_cancellation_cuts_short_each_end_that_hangs_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """AX-17, AX-27: bounded by a grace period for each that hangs; those in between do their work."""
    between, last = RecordingHook("between"), SlowEnd(5)
    sess = scripted(SlowEnd(1000), between, SlowEnd(1000), last, stop_grace_period_secs=10)
    async with assert_nothing_left_behind():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await live(sess)
    assert asyncio.get_running_loop().time() == 100 + 10 + 10 + 5
    assert between.moments()[-2:] == last.moments()[-2:] == ["end", "cleanup"]
    assert caplog.messages.count("Grace period over: slow.end was cancelled.") == 2
    assert sess.stop_reason == "cancelled"
    assert isinstance(last.error, asyncio.CancelledError)


async def test_a_slip_after_a_cancellation_is_still_distinguished_from_it() -> None:
    sess = scripted(SlowEnd(1000), slip := WaitsForACancelledTask("end"), stop_grace_period_secs=10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await live(sess)
    assert asyncio.get_running_loop().time() == 110
    assert any("slip.end raised" in note for note in slip.error.__notes__)  # type: ignore[union-attr]  # it was raised


class EndsOnCancel(SlowEnd):
    ends_on_cancel = True


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), ValueError("boom")])
async def test_end_is_called_on_a_cancellation_for_hooks_that_save_then_ax_27(
    error: BaseException,
) -> None:
    other, saver = RecordingHook("other"), EndsOnCancel(5)
    with pytest.raises(type(error)):
        async with scripted(saver, other):
            raise error
    assert ("end" in saver.moments()) == (not isinstance(error, Exception))
    assert "end" not in other.moments()
    assert saver.moments()[-1] == other.moments()[-1] == "cleanup"


async def test_such_an_end_has_the_grace_period_ax_27(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt):
        async with scripted(EndsOnCancel(1000), last := EndsOnCancel(5), stop_grace_period_secs=10):
            raise KeyboardInterrupt
    assert asyncio.get_running_loop().time() == 10 + 5
    assert last.moments()[-2:] == ["end", "cleanup"]
    assert "Grace period over: slow.end was cancelled." in caplog.text


async def test_a_run_that_exceeds_the_grace_period_counts_as_cancelled_ax_27() -> None:
    sess = MonitoredSession(
        ScriptedCreator(ScriptedSession([asyncio.Event().wait])), [saver := EndsOnCancel(1)], 10
    )
    asyncio.get_running_loop().call_soon(sess.request_stop)
    with pytest.raises(DeadlineExceededError):
        await live(sess)
    assert saver.moments()[-2:] == ["end", "cleanup"]


async def test_a_cleanup_beyond_its_deadline_is_named_ax_24() -> None:
    class Slow(RecordingHook):
        deadline = 0.5

        async def cleanup(self, error: BaseException | None) -> None:
            await asyncio.sleep(1000)

    with pytest.raises(
        DeadlineExceededError, match=r"Slow\.cleanup took longer than its deadline of 0"
    ):
        await live(scripted(Slow("Slow")))


async def test_a_closed_session_does_not_hold_the_error_and_what_its_frames_hold() -> None:
    class BrokenError(Exception):
        pass

    sess = scripted()
    try:
        async with sess:
            raise BrokenError("broken")
    except BrokenError as error:
        held = weakref.ref(error)
    gc.collect()
    assert held() is None
    assert sess.stop_reason == "BrokenError: broken"


@pytest.mark.parametrize("owner", ["user", "session"])
async def test_a_run_without_hooks_ends_when_the_session_closes(owner: str) -> None:
    """It is interrupted before the tasks are joined: a task that waits in it needs no grace period."""
    errors: list[BaseException] = []

    async def produce(sess: MonitoredSession) -> None:
        try:
            await sess.run("x", hooks=False)
        except RuntimeError as error:
            errors.append(error)

    async with MonitoredSession(ScriptedCreator(ScriptedSession([asyncio.Event().wait]))) as sess:
        assert sess.coord is not None
        start = sess.coord.create_task if owner == "session" else create_task
        task = start(produce, sess)
        await asyncio.sleep(1)
    await task
    assert asyncio.get_running_loop().time() == 1
    assert [str(one) for one in errors] == ["The session was closed while this run was not complete."]


def create_task(fn: Any, *args: Any) -> asyncio.Task[None]:
    return asyncio.create_task(fn(*args))


@pytest.mark.parametrize("owner", ["coordinator", "pipeline"])
async def test_close_is_refused_in_a_task_that_the_close_waits_for(owner: str) -> None:
    refused: list[str] = []

    async def work(_: Any) -> None:
        try:
            await sess.coord.wait_for_stop()
        finally:
            try:
                await sess.close()
            except RuntimeError as error:
                refused.append(str(error))

    async with MonitoredSession(ScriptedCreator(ScriptedSession([1]))) as sess:
        if owner == "coordinator":
            sess.coord.create_task(work, None)
        else:
            waiting = asyncio.create_task(anext(sess.produce(range(1), work).batches(1)))
            waiting.add_done_callback(lambda done: done.exception())
        await wait_all_tasks_blocked()
    assert [one.partition(",")[0] for one in refused] == [
        "close() was called from inside the close of the session"
    ]
    assert asyncio.get_running_loop().time() == 0


async def test_a_close_in_another_task_ends_a_body_that_runs_without_an_error() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    sess = MonitoredSession(ScriptedCreator(ScriptedSession([hang])), stop_grace_period_secs=1)

    async def train() -> None:
        async with sess:
            await sess.run("x")

    training = asyncio.create_task(train())
    await asyncio.sleep(1)
    await sess.close()
    await training
    assert sess.stop_reason == "the body ended"
