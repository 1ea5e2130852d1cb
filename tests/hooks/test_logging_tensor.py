"""LoggingTensorHook: HK-LOG-1 to 11."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from asyncmon.errors import AbortedError
from asyncmon.hooks import LoggingTensorHook
from asyncmon.runtime.hook import overrides
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.testing import ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

Lines = Callable[[str], list[str]]
Lasting = Callable[..., Iterable[Any]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

WRONG = "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided."


class Counting(ScriptedSession):
    """A session whose fetch "n" gives the step before the run, and "runs" is what asked for it."""

    def __init__(self, script: Iterable[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(script, values={"n": lambda: self.global_step, "b": 2.0, "z": 1.5}, **kwargs)


def logged(lines: list[str]) -> list[int]:
    return [int(line.split()[2]) for line in lines]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"every_n_iter": 1, "every_n_secs": 1.0},
        {"every_n_iter": 1, "every_n_secs": 1, "at_end": True},
    ],
)
async def test_one_of_the_three_is_needed_hk_log_1(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=WRONG):
        LoggingTensorHook(["n"], **arguments)


@pytest.mark.parametrize("every", [0, -1])
async def test_a_period_in_runs_is_positive_hk_log_1(every: int) -> None:
    with pytest.raises(ValueError, match=rf"invalid every_n_iter={every}."):
        LoggingTensorHook(["n"], every_n_iter=every)


async def test_a_period_of_no_seconds_logs_each_run_hk_log_1(train: Train, lines: Lines) -> None:
    await train(LoggingTensorHook(["n"], every_n_secs=0), runs=3, session=Counting())
    assert logged(lines("logging_tensor")) == [1, 2, 3]


async def test_by_runs_the_first_and_each_nth_after_it_log_hk_log_2(train: Train, lines: Lines) -> None:
    await train(LoggingTensorHook(["n"], every_n_iter=10), runs=31, session=Counting())
    assert logged(lines("logging_tensor")) == [1, 11, 21, 31]


async def test_runs_are_counted_and_not_steps_hk_log_2(train: Train, lines: Lines) -> None:
    session = Counting(state={"global_step": 250}, steps_per_run=7)
    await train(LoggingTensorHook(["n"], every_n_iter=2), runs=4, session=session)
    assert logged(lines("logging_tensor")) == [257, 271]


async def test_by_seconds_it_does_not_drift_hk_log_3(
    train: Train, lines: Lines, lasting: Lasting
) -> None:
    """Runs of 3.7 s, logs due at 3.7, 13.7, 23.7 and so on: in the first run that begins after that."""
    await train(LoggingTensorHook(["n"], every_n_secs=10), runs=17, session=Counting(lasting(3.7)))
    assert logged(lines("logging_tensor")) == [1, 5, 8, 11, 13, 16]


async def test_nothing_is_logged_while_nothing_runs_hk_log_3(lines: Lines) -> None:
    hook = LoggingTensorHook(["n"], every_n_secs=10)
    async with MonitoredSession(ScriptedCreator(Counting()), [hook]) as sess:
        await asyncio.sleep(100)
        assert lines("logging_tensor") == []
        await sess.run("train")
        await asyncio.sleep(35)
        await sess.run("train")
        await sess.run("train")
    assert logged(lines("logging_tensor")) == [1, 2]


async def test_values_that_came_late_put_off_the_next_hk_log_3(lines: Lines) -> None:
    """Asked for at 10 and there at 29: the next are due at 39, not at 30."""
    hook = LoggingTensorHook(["n"], every_n_secs=10)
    async with MonitoredSession(ScriptedCreator(Counting()), [hook]) as sess:
        await sess.run("train")
        await asyncio.sleep(29)
        for _ in range(30):
            await sess.run("train")
            await asyncio.sleep(1)
    assert logged(lines("logging_tensor")) == [1, 2, 12, 22]


async def test_a_new_session_counts_from_zero(train: Train, lines: Lines) -> None:
    hook = LoggingTensorHook(["b"], every_n_iter=3)
    for _ in range(2):
        await train(hook, runs=2, session=Counting())
    assert lines("logging_tensor") == ["b = 2.0", "b = 2.0"]


async def test_by_seconds_runs_that_fail_are_their_callers_business(lines: Lines) -> None:
    session = Counting([KeyError("x"), KeyError("x"), KeyError("x"), None])
    hook = LoggingTensorHook(["n"], every_n_secs=10)
    async with MonitoredSession(ScriptedCreator(session), [hook]) as sess:
        for _ in range(3):
            with pytest.raises(KeyError):
                await sess.run("train")
            await asyncio.sleep(1)
        await sess.run("train")
    assert logged(lines("logging_tensor")) == [1]


async def test_by_seconds_an_error_is_not_the_last_report_if_so_configured(
    train: Train, lasting: Lasting
) -> None:
    seen: list[int] = []

    def fails_once(values: dict[str, Any]) -> str:
        seen.append(values["n"])
        if len(seen) == 1:
            raise KeyError("x")
        return "fine"

    hook = LoggingTensorHook(["n"], every_n_secs=10, formatter=fails_once)
    hook.on_error = "log"
    await train(hook, runs=12, session=Counting(lasting(3.7)))
    assert seen == [1, 5, 8, 11]


async def test_by_seconds_a_run_costs_nothing_hk_log_3() -> None:
    hook = LoggingTensorHook(["n"], every_n_secs=10)
    assert not overrides(hook, "before_run")
    assert not overrides(hook, "after_run")
    assert not overrides(LoggingTensorHook(["n"], every_n_iter=10), "background")


async def test_the_line_hk_log_4(train: Train, lines: Lines, lasting: Lasting) -> None:
    hook = LoggingTensorHook(["b", "z"], every_n_iter=1)
    await train(hook, runs=2, session=Counting(lasting(0.003)))
    assert lines("logging_tensor") == ["b = 2.0, z = 1.5", "b = 2.0, z = 1.5 (0.003 sec)"]


async def test_tags_come_in_the_order_given_hk_log_5(train: Train, lines: Lines) -> None:
    await train(LoggingTensorHook({"z": "z", "a": "b"}, every_n_iter=1), runs=1, session=Counting())
    assert lines("logging_tensor") == ["z = 1.5, a = 2.0"]


async def test_a_formatter_makes_the_whole_line_hk_log_6(train: Train, lines: Lines) -> None:
    hook = LoggingTensorHook(
        ["b", "z"], every_n_iter=1, formatter=lambda values: f"100% {sorted(values)}"
    )
    await train(hook, runs=2, session=Counting())
    assert lines("logging_tensor") == ["100% ['b', 'z']"] * 2


async def test_at_end_computes_once_more_hk_log_7(train: Train, lines: Lines) -> None:
    await train(LoggingTensorHook(["b"], at_end=True), runs=3, session=Counting())
    assert lines("logging_tensor") == ["b = 2.0"]


async def test_at_end_does_not_log_the_same_step_twice_hk_log_7(train: Train, lines: Lines) -> None:
    await train(LoggingTensorHook(["n"], every_n_iter=2, at_end=True), runs=3, session=Counting())
    assert logged(lines("logging_tensor")) == [1, 3]


async def test_at_end_does_not_log_a_step_twice_by_seconds_too_hk_log_7(
    train: Train, lines: Lines, lasting: Lasting
) -> None:
    hook = LoggingTensorHook(["b"], every_n_secs=10, at_end=True)
    await train(hook, runs=1, session=Counting(lasting(1, [None, None])))
    assert lines("logging_tensor") == ["b = 2.0"]


async def test_nothing_is_logged_at_the_end_without_it_hk_log_7(train: Train, lines: Lines) -> None:
    await train(LoggingTensorHook(["n"], every_n_iter=10), runs=5, session=Counting())
    assert logged(lines("logging_tensor")) == [1]


async def test_nothing_is_logged_at_an_error_hk_log_7(train: Train, lines: Lines) -> None:
    with pytest.raises(KeyError):
        await train(LoggingTensorHook(["n"], at_end=True), session=Counting([None, KeyError("x")]))
    assert lines("logging_tensor") == []


async def test_only_the_runs_that_log_fetch_hk_log_8(train: Train) -> None:
    session = await train(LoggingTensorHook(["b"], every_n_iter=3), runs=5, session=Counting())
    assert [fetches == "train" for fetches in session.runs] == [False, True, True, False, True]


async def test_iterables_are_read_once_hk_log_9(train: Train, lines: Lines) -> None:
    await train(LoggingTensorHook((tag for tag in "bz"), every_n_iter=1), runs=2, session=Counting())
    assert lines("logging_tensor")[0] == "b = 2.0, z = 1.5"
    assert len(lines("logging_tensor")) == 2


async def test_a_single_tensor_is_refused_hk_log_9() -> None:
    with pytest.raises(TypeError, match=r"Write \[...\] around a single one"):
        LoggingTensorHook("loss", every_n_iter=1)


async def test_arrays_are_printed_without_exponents_hk_log_10(train: Train, lines: Lines) -> None:
    options = np.get_printoptions()
    session = ScriptedSession(values={"w": np.array([1e-9, 0.5]), "n": np.float32(0.1)})
    await train(LoggingTensorHook(["w", "n"], every_n_iter=1), runs=1, session=session)
    assert lines("logging_tensor") == ["w = [0.  0.5], n = 0.1"]
    assert np.get_printoptions() == options


async def test_a_recovery_continues_the_count_hk_log_11(lines: Lines) -> None:
    first, second = Counting([None, None, AbortedError("gone")]), Counting(state={"global_step": 100})
    hook = LoggingTensorHook(["n"], every_n_iter=3)
    async with MonitoredSession(ScriptedCreator(first, second), [hook]) as sess:
        for _ in range(5):
            await sess.run("train")
    assert logged(lines("logging_tensor")) == [1, 102]


async def test_an_error_in_begin_names_the_hook() -> None:
    with pytest.raises(KeyError, match="'lss:0'") as caught:
        await MonitoredSession(hooks=[LoggingTensorHook(["lss"], every_n_iter=1)]).start()
    assert caught.value.__notes__ == ["asyncmon: raised in LoggingTensorHook.begin"]
