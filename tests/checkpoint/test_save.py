"""Saves in the background: order, what happens when busy, errors, cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from asyncmon.checkpoint import Saver, latest_checkpoint, load_variable
from asyncmon.errors import CancelledError, UnknownError
from asyncmon.system.files import FileCalls


class Gate(FileCalls):
    """System calls that wait at each flush of a file until they are let through."""

    def __init__(self, *, closed: bool = True) -> None:
        self.open_gate = threading.Event()
        self.reached = threading.Semaphore(0)
        self.fail = False
        if not closed:
            self.open_gate.set()

    def fsync(self, descriptor: int) -> None:
        self.reached.release()
        assert self.open_gate.wait(10)
        if self.fail:
            raise OSError(5, "a broken disk")
        super().fsync(descriptor)

    async def wait_reached(self) -> None:
        await asyncio.to_thread(self.reached.acquire)


@pytest.mark.asyncio
async def test_the_snapshot_is_taken_at_the_call_and_steps_continue_ax_12(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """AX-11, AX-12: the file holds the state at the call, whole, despite concurrent steps."""
    gate = Gate()
    saver = Saver(calls=gate)
    session = make_session(a=np.zeros(1000), global_step=0)
    handle = saver.start_save(session, tmp_path / "m", 0)
    assert (handle.path, handle.done, saver.busy) == (str(tmp_path / "m-0"), False, True)
    for _ in range(3):
        session.step()
    await gate.wait_reached()
    session.step()
    gate.open_gate.set()
    path = await handle
    assert path == handle.path
    assert handle.done
    assert not saver.busy
    assert handle.step == 0
    assert handle.seconds is not None
    assert handle.seconds > 0
    assert handle.nbytes is not None
    assert handle.nbytes > 8000
    assert (await load_variable(str(path), "a") == 0).all()
    assert session.state["global_step"] == 4
    assert session.released == 1


@pytest.mark.asyncio
async def test_a_second_trigger_is_coalesced_into_one_pending_save_ax_12(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate()
    saver = Saver(calls=gate)
    session = make_session(global_step=1)
    handles = []
    for step in range(1, 5):
        handles.append(saver.start_save(session, tmp_path / "m", step))
        session.step()
        if step == 1:
            await gate.wait_reached()
    assert session.released == 2  # those of steps 2 and 3 wait no longer
    assert handles[1].superseded_by is handles[2]
    gate.open_gate.set()
    paths = [await handle for handle in handles]
    assert [path[-1] for path in paths if path] == ["1", "4", "4", "4"]
    assert all(handle.done and handle.error is None for handle in handles)
    assert [path[-1] for path in saver.last_checkpoints] == ["1", "4"]
    assert session.released == 4


@pytest.mark.asyncio
async def test_any_number_of_triggers_while_busy_is_one_pending_save(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate()
    saver = Saver(calls=gate)
    session = make_session(global_step=1)
    first = saver.start_save(session, tmp_path / "m", 1)
    await gate.wait_reached()
    handles = [saver.start_save(session, tmp_path / "m", step) for step in range(2, 3000)]
    await asyncio.sleep(0)
    saves = [task for task in asyncio.all_tasks() if task.get_name().startswith("save ")]
    assert len(saves) == 2  # the running one, and the pending one
    assert not handles[0].done
    gate.open_gate.set()
    assert await handles[0] == str(tmp_path / "m-2999")
    assert all(handle.done for handle in handles)
    assert session.released == session.snapshots == 2999
    assert saver.last_checkpoints == [await first, await handles[-1]]


@pytest.mark.asyncio
async def test_skip_leaves_out_what_comes_while_busy(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate()
    saver = Saver(when_busy="skip", calls=gate)
    session = make_session(global_step=1)
    first = saver.start_save(session, tmp_path / "m", 1)
    second = saver.start_save(session, tmp_path / "m", 2)
    assert second.done
    assert await second is None
    gate.open_gate.set()
    await saver.drain()
    assert saver.last_checkpoints == [await first]
    assert session.snapshots == 1


@pytest.mark.asyncio
async def test_wait_saves_everything_in_order(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    saver = Saver(when_busy="wait")
    session = make_session(global_step=1)
    handles = []
    for step in range(1, 5):
        handles.append(saver.start_save(session, tmp_path / "m", step))
        session.step()
    assert await saver.save(session, tmp_path / "m", 5) == str(tmp_path / "m-5")
    assert all(handle.done for handle in handles)
    for step in range(1, 6):
        assert await load_variable(tmp_path / f"m-{step}", "global_step") == step


@pytest.mark.asyncio
async def test_checkpoints_are_listed_in_the_order_in_which_their_states_were_captured(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    session = make_session(a=1.0)
    states = [saver.capture(session) for _ in range(4)]
    for step in (0, 1, 3, 2):
        await saver.start_save(session, tmp_path / "m", step, state=states[step])
    assert saver.last_checkpoints == [str(tmp_path / f"m-{step}") for step in range(4)]


@pytest.mark.asyncio
async def test_a_save_that_is_awaited_is_never_superseded(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate()
    saver = Saver(calls=gate)
    session = make_session(a=1.0)
    saver.start_save(session, tmp_path / "m", 1)
    saving = asyncio.create_task(saver.save(session, tmp_path / "m", 2))
    await gate.wait_reached()
    last = saver.start_save(session, tmp_path / "m", 3)
    gate.open_gate.set()
    assert await saving == str(tmp_path / "m-2")
    assert await last == str(tmp_path / "m-3")


@pytest.mark.asyncio
async def test_the_error_of_a_save_without_waiters_is_raised_once(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """KC-24: it reaches the loop at the next step, or the close."""
    gate = Gate(closed=False)
    gate.fail = True
    saver = Saver(when_busy="wait", calls=gate)
    session = make_session(a=1.0)
    handles = [saver.start_save(session, tmp_path / "m", step) for step in (1, 2)]
    saver.raise_if_failed()
    with pytest.raises(UnknownError, match=r"m-1.*a broken disk") as failed:
        await saver.drain()
    (later,) = [note for note in failed.value.__notes__ if "A later save failed too" in note]
    assert "m-2" in later
    saver.raise_if_failed()
    await saver.drain()
    assert "Saving checkpoint" in caplog.text
    assert isinstance(handles[1].error, UnknownError)
    assert session.released == 2
    gate.fail = False
    assert await saver.save(session, tmp_path / "m", 3)


@pytest.mark.asyncio
async def test_an_error_that_was_awaited_is_not_raised_again(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate(closed=False)
    gate.fail = True
    saver = Saver(calls=gate)
    handle = saver.start_save(make_session(a=1.0), tmp_path / "m", 1)
    with pytest.raises(UnknownError):
        await handle
    saver.raise_if_failed()
    with pytest.raises(UnknownError):
        await saver.save(make_session(a=1.0), tmp_path / "m", 2)
    await saver.close()


@pytest.mark.asyncio
async def test_awaiting_a_failed_handle_late_takes_the_error_from_the_saver(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate(closed=False)
    gate.fail = True
    saver = Saver(calls=gate)
    handle = saver.start_save(make_session(a=1.0), tmp_path / "m", 1)
    with pytest.raises(UnknownError):
        await saver.drain()
    other = saver.start_save(make_session(a=1.0), tmp_path / "m", 2)
    await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name().startswith("save")])
    with pytest.raises(UnknownError):
        await other
    saver.raise_if_failed()
    assert handle.done


@pytest.mark.asyncio
async def test_a_cancelled_save_leaves_nothing(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    gate = Gate()
    saver = Saver(calls=gate)
    session = make_session(a=np.zeros(10))
    saving = asyncio.create_task(saver.save(session, tmp_path / "m", 1))
    await gate.wait_reached()
    saving.cancel()
    asyncio.get_running_loop().call_soon(saving.cancel)  # an impatient caller
    await asyncio.sleep(0)
    gate.open_gate.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert names_in(tmp_path) == set()
    assert session.released == 1
    assert not saver.busy
    assert await saver.save(session, tmp_path / "m", 2)


@pytest.mark.asyncio
async def test_a_save_cancelled_before_its_turn_is_dropped(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate()
    saver = Saver(calls=gate)
    session = make_session(a=np.zeros(10))
    first = saver.start_save(session, tmp_path / "m", 1)
    await gate.wait_reached()
    saving = asyncio.create_task(saver.save(session, tmp_path / "m", 2))
    await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    gate.open_gate.set()
    await first
    await saver.drain()
    assert saver.last_checkpoints == [str(tmp_path / "m-1")]
    assert session.released == 2


@pytest.mark.asyncio
async def test_a_cancelled_save_stops_between_two_pieces(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    class Slow(Gate):
        writes = 0

        def write(self, descriptor: int, data: bytes | memoryview) -> int:
            self.writes += 1
            if self.writes == 3:
                self.reached.release()
                assert self.open_gate.wait(10)
            return super().write(descriptor, data)

    gate = Slow()
    saving = asyncio.create_task(
        Saver(calls=gate).save(make_session(a=np.zeros(4_000_000)), tmp_path / "m", 1)
    )
    await gate.wait_reached()
    saving.cancel()
    for _ in range(5):
        await asyncio.sleep(0)  # the cancellation is on its way to the thread
    gate.open_gate.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert gate.writes < 10
    assert names_in(tmp_path) == set()


@pytest.mark.asyncio
async def test_cancelling_a_waiter_of_a_handle_does_not_cancel_the_save(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate()
    saver = Saver(calls=gate)
    handle = saver.start_save(make_session(a=1.0), tmp_path / "m", 1)

    async def wait() -> str | None:
        return await handle

    for waiter in (asyncio.create_task(wait()), asyncio.create_task(saver.drain())):
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    gate.open_gate.set()
    assert await handle == str(tmp_path / "m-1")
    assert await latest_checkpoint(tmp_path) == handle.path


@pytest.mark.asyncio
async def test_a_loop_that_ends_cancels_the_save_and_says_so(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    gate = Gate()
    saver = Saver(calls=gate)
    handle = saver.start_save(make_session(a=1.0), tmp_path / "m", 1)
    await gate.wait_reached()
    (task,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("save ")]
    task.cancel()
    await asyncio.sleep(0)
    gate.open_gate.set()
    with pytest.raises(CancelledError, match="was cancelled"):
        await handle


@pytest.mark.asyncio
async def test_a_snapshot_that_fails_fails_the_save(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    session = make_session(a=1.0)

    async def snapshot() -> None:
        raise RuntimeError("no state today")

    session.snapshot = snapshot
    with pytest.raises(RuntimeError, match="no state today"):
        await Saver().save(session, tmp_path / "m", 1)


@pytest.mark.asyncio
async def test_no_task_is_left(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    """AX-8."""
    saver = Saver()
    for step in range(3):
        saver.start_save(make_session(a=1.0), tmp_path / "m", step)
    await saver.close()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_saver_continues_in_another_loop(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    saver = Saver()
    for step in (1, 2):
        assert asyncio.run(saver.save(make_session(a=1.0), tmp_path / "m", step))
    assert len(saver.last_checkpoints) == 2


@pytest.mark.asyncio
async def test_a_save_with_its_deletions_is_one_call_in_a_thread(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """The limiter of the threads shows each call while it runs."""

    class Calls(FileCalls):
        limiter = anyio.to_thread.current_default_thread_limiter()

        def __init__(self) -> None:
            self.calls: dict[str, Any] = {}

        def fsync(self, descriptor: int) -> None:
            self.calls["write"] = self.limiter.statistics().borrowers
            super().fsync(descriptor)

        def unlink(self, path: Path) -> None:
            self.calls[path.name] = self.limiter.statistics().borrowers
            super().unlink(path)

    calls = Calls()
    saver = Saver(max_to_keep=1, calls=calls)
    for step in (1, 2):
        calls.calls.clear()
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    assert {"write", "m-1.safetensors"} <= calls.calls.keys()
    assert {len(borrowers) for borrowers in calls.calls.values()} == {1}
    assert len({*calls.calls.values()}) == 1
