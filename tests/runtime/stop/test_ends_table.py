"""The table of docs/hooks.md, cell by cell: which method of a hook is called at which end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon import errors
from asyncmon.programs import FunctionProgram
from asyncmon.testing import RecordingHook, fail_at_step, fail_in

PAGE = Path(__file__).parents[3] / "docs" / "hooks.md"
ROWS = {
    row[0]: tuple(row[1:])
    for line in re.findall(r"^\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    if len(row := line.split(" | ")) == 6
}

Session = Any
Scenario = Callable[[Session], Awaitable[object]]


class LateHook(RecordingHook):
    """Records, and has its ``end`` called also where the session is cancelled."""

    ends_on_cancel = True


class Case:
    """A session that has done three steps, and its next step."""

    def __init__(self, body: Scenario | None = None, hook: Any = None, **options: Any) -> None:
        self.body = body
        self.hooks = [] if hook is None else [hook]
        self.options = options


async def run(session: Session) -> None:
    while not session.should_stop():
        await session.run("train")


async def stop_by_task(session: Session) -> None:
    session.coord.create_task(later, session.request_stop)
    await run(session)


async def later(call: Callable[[], object]) -> None:
    await asyncio.sleep(0)
    call()


async def stop_by_thread(session: Session) -> None:
    thread = threading.Thread(target=session.request_stop)
    thread.start()
    await asyncio.to_thread(thread.join)
    await run(session)


async def stop_by_signal(session: Session) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await run(session)


async def end_of_data(session: Session) -> None:
    raise StopAsyncIteration


async def out_of_range(session: Session) -> None:
    raise errors.OutOfRangeError("no more")


async def raise_value_error(session: Session) -> None:
    raise ValueError("broken")


async def raise_exit(session: Session) -> None:
    raise SystemExit(3)


async def leave_generator(session: Session) -> None:
    raise GeneratorExit


async def task_fails_in_a_run(session: Session) -> None:
    session.coord.create_task(raise_value_error, session)
    await session.run("wait")


async def task_fails_between_runs(session: Session) -> None:
    session.coord.create_task(raise_value_error, session)
    await session.coord.wait_for_stop()


async def cancel(session: Session) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await session.run("wait")


async def hang_after_a_stop(session: Session) -> None:
    session.coord.create_task(later, session.request_stop)
    await session.run("wait")


async def hang_after_a_signal(session: Session) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await session.run("wait")


async def cancel_after_a_signal(session: Session) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await session.coord.wait_for_stop()
    await cancel(session)


async def close_elsewhere(session: Session) -> None:
    async def close() -> None:
        await asyncio.sleep(1)  # virtual: the run has started by then
        await session.close()

    closing = asyncio.create_task(close())
    with pytest.raises(RuntimeError, match=r"closed while this run|a run was not complete"):
        await session.run("wait")
    await closing


CASES: dict[str, list[Case]] = {
    "the body ends, by its end or by `break`": [Case()],
    "the data ends: `OutOfRangeError`, `StopAsyncIteration` in the body": [
        Case(out_of_range),
        Case(end_of_data),
    ],
    "a stop is requested, by a hook, a task, a thread or a signal, and the body ends": [
        Case(run, am.StopAtStepHook(last_step=5)),
        Case(stop_by_task),
        Case(stop_by_thread),
        Case(stop_by_signal),
    ],
    "`close()` in another task, also during a run": [
        Case(lambda session: session.close()),
        Case(close_elsewhere, stop_grace_period_secs=1),
    ],
    "an error in the body, in a step or in a hook's `before_run` or `after_run`": [
        Case(raise_value_error),
        Case(lambda session: session.run("fail")),
        Case(run, fail_at_step(5, ValueError("broken"))),
        Case(run, fail_at_step(5, ValueError("broken"), moment="after_run")),
    ],
    "an error in a background task, during a run": [Case(task_fails_in_a_run)],
    "an error in a background task, between two runs": [Case(task_fails_between_runs)],
    "an error in a hook's `end`": [Case(None, fail_in("end", ValueError("broken")))],
    "the task is cancelled": [Case(cancel)],
    "`KeyboardInterrupt` or `SystemExit` in the body": [Case(raise_exit)],
    "a generator with the session in it is closed": [Case(leave_generator)],
    "a signal comes, and the current run is abandoned to save in time": [
        Case(hang_after_a_signal, stop_grace_period_secs=4)
    ],
    "a signal comes, and the task is cancelled": [Case(cancel_after_a_signal)],
    "a run exceeds the grace period after another stop": [
        Case(hang_after_a_stop, stop_grace_period_secs=1)
    ],
    "an error that is not recovered from any more": [
        Case(lambda session: session.run("lose"), recovery=am.Recovery(max_attempts=2))
    ],
    "the session cannot be opened": [
        Case(None, fail_in("begin", ValueError("broken"))),
        Case(None, fail_in("after_create_session", ValueError("broken"))),
    ],
}


def program() -> FunctionProgram:
    made = FunctionProgram({"value": 0.0})

    @made.step
    def train(state: Any) -> None:
        state["value"] += 1

    @made.step
    def fail(state: Any) -> None:
        raise ValueError("broken")

    @made.step
    def lose(state: Any) -> None:
        raise errors.AbortedError("gone")

    @made.step
    async def wait(state: Any) -> None:
        await asyncio.Event().wait()

    return made


async def end_session(case: Case, directory: Path) -> tuple[str, ...]:
    """Return what the cells of the page say of this end."""
    plain, late = RecordingHook("plain"), LateHook("late")
    session = am.MonitoredTrainingSession(
        program=program(), checkpoint_dir=directory, hooks=[plain, late, *case.hooks],
        save_checkpoint_steps=1000, **{"stop_grace_period_secs": 30, **case.options},
    )  # fmt: skip
    error = None
    try:
        async with session:
            for _ in range(3):
                await session.run("train")
            if case.body is not None:
                await case.body(session)
    except BaseException as leaving:
        error = leaving
    assert plain.moments().count("cleanup") == late.moments().count("cleanup") == 1
    last_step = max([-1, *plain.steps("after_run")])
    latest = await am.latest_checkpoint(directory) or ""
    return (
        said("end" in plain.moments()),
        said("end" in late.moments()),
        said(latest.endswith(f"-{last_step}")),
        name(plain.error, "`None`"),
        name(error, "nothing"),
    )


def said(called: bool) -> str:
    return "yes" if called else "no"


def name(error: BaseException | None, none: str) -> str:
    if error is None:
        return none
    return (
        "the error"
        if isinstance(error, ValueError | errors.AbortedError)
        else f"`{type(error).__name__}`"
    )


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("row", "number"),
    [pytest.param(row, i, id=f"{row}-{i}") for row, cases in CASES.items() for i in range(len(cases))],
)
async def test_the_page_says_what_is_called(row: str, number: int, tmp_path: Path) -> None:
    assert await end_session(CASES[row][number], tmp_path) == ROWS[row]


def test_every_row_of_the_page_is_checked() -> None:
    assert set(CASES) == {row for row in ROWS if row != "how the session ends"}
