"""LooperTask: something at a fixed rate under a coordinator."""

from __future__ import annotations

import asyncio

import pytest

from asyncmon.errors import OutOfRangeError
from asyncmon.runtime import Coordinator, LooperTask
from asyncmon.testing import assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Recorder(LooperTask):
    def __init__(self, coord: Coordinator, secs: float | None, busy: list[float]) -> None:
        super().__init__(coord, secs)
        self.coord = coord
        self.busy = busy
        self.events: list[object] = []

    async def start_loop(self) -> None:
        self.events.append("start")

    async def run_loop(self) -> None:
        self.events.append(round(asyncio.get_running_loop().time(), 6))
        if not self.busy:
            self.coord.request_stop()
        else:
            await asyncio.sleep(self.busy.pop(0))

    async def stop_loop(self) -> None:
        self.events.append("stop")


async def test_wrong_arguments_are_refused_lo_1() -> None:
    with pytest.raises(ValueError, match="'coord' argument must be a Coordinator: 5"):
        LooperTask(5, 1.0)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ValueError, match="require that you also pass 'target'"):
        LooperTask(Coordinator(), 1.0, args=(1,))


async def test_the_first_call_is_at_once_then_at_a_fixed_rate_lo_2_lo_3() -> None:
    async with assert_nothing_left_behind():
        coord = Coordinator()
        looper = Recorder(coord, 0.2, [0.05, 0.1, 0.0])
        looper.start()
        await coord.join()
        assert looper.events == ["start", 0.0, 0.2, 0.4, 0.6, "stop"]


async def test_missed_ticks_are_skipped_lo_4() -> None:
    coord = Coordinator()
    looper = Recorder(coord, 0.2, [0.7, 0.0])
    looper.start()
    await coord.join()
    assert looper.events == ["start", 0.0, 0.8, 1.0, "stop"]


async def test_without_an_interval_others_get_a_turn_lo_5() -> None:
    coord, calls = Coordinator(), []
    LooperTask.loop(coord, None, lambda: calls.append(1))
    for _ in range(20):
        await asyncio.sleep(0)
    coord.request_stop()
    await coord.join()
    assert 10 <= len(calls) <= 21


@pytest.mark.parametrize(
    ("error", "raised"), [(ValueError("boom"), True), (OutOfRangeError("end"), False)]
)
async def test_an_error_stops_the_coordinator_and_stop_loop_is_called_lo_6(
    error: Exception, raised: bool
) -> None:
    coord, stopped = Coordinator(), []

    class Failing(LooperTask):
        async def run_loop(self) -> None:
            raise error

        async def stop_loop(self) -> None:
            stopped.append(True)

    Failing(coord, 1).start()
    if raised:
        with pytest.raises(ValueError, match="boom"):
            await coord.join()
    else:
        await coord.join()
    assert coord.should_stop()
    assert stopped == [True]


async def test_stopped_at_the_start_nothing_is_called_lo_7() -> None:
    coord = Coordinator()
    coord.request_stop()
    looper = Recorder(coord, 1, [])
    looper.start()
    await coord.join()
    assert looper.events == ["start", "stop"]


async def test_loop_makes_and_starts_it_with_a_plain_or_async_target_lo_8() -> None:
    coord, calls = Coordinator(), []

    async def target(first: int, *, second: int) -> None:
        calls.append((first, second))

    looper = LooperTask.loop(coord, 10, target, args=(1,), kwargs={"second": 2})
    assert looper.task is not None
    assert looper.task.get_name().startswith("LooperTask-")
    with pytest.raises(RuntimeError, match="only once"):
        looper.start()
    await asyncio.sleep(25)
    coord.request_stop()
    await coord.join()
    assert calls == [(1, 2)] * 3


async def test_a_stop_wakes_it_at_once_lo_9() -> None:
    coord = Coordinator()
    LooperTask.loop(coord, 3600, lambda: None)
    await asyncio.sleep(1)
    coord.request_stop()
    await coord.join()
    assert asyncio.get_running_loop().time() == 1


async def test_an_error_of_stop_loop_does_not_hide_that_of_the_call_lo_6(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(LooperTask):
        async def run_loop(self) -> None:
            raise ValueError("in the call")

        async def stop_loop(self) -> None:
            raise KeyError("in stop_loop")

    coord = Coordinator()
    Failing(coord, 1).start()
    with pytest.raises(ValueError, match="in the call") as caught:
        await coord.join()
    assert caught.value.__notes__ == ["Then stop_loop failed: KeyError: 'in stop_loop'"]
    assert "in stop_loop" in caplog.text


async def test_an_error_of_stop_loop_alone_is_raised_lo_6() -> None:
    class Failing(LooperTask):
        async def stop_loop(self) -> None:
            raise KeyError("in stop_loop")

    coord = Coordinator()
    Failing(coord, 1).start()
    await asyncio.sleep(3)
    coord.request_stop()
    with pytest.raises(KeyError, match="in stop_loop"):
        await coord.join()


async def test_plain_methods_may_be_overridden_too() -> None:
    coord, calls = Coordinator(), []

    class Plain(LooperTask):
        def start_loop(self) -> None:  # type: ignore[override]  # plain, as in TF1
            calls.append("start")

        def run_loop(self) -> None:  # type: ignore[override]  # plain, as in TF1
            calls.append("run")
            coord.request_stop()

        def stop_loop(self) -> None:  # type: ignore[override]  # plain, as in TF1
            calls.append("stop")

    Plain(coord, 1.0).start()
    await coord.join()
    assert calls == ["start", "run", "stop"]
