"""SIGINT and SIGTERM request a stop, once, unless other code handles them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from asyncmon.runtime.stop.process_end import ProcessShutdown
from asyncmon.testing import RecordingHook
from tests.runtime.conftest import World

asynchronous = pytest.mark.asyncio

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in BOTH]


@pytest.mark.parametrize("number", BOTH)
@asynchronous
async def test_a_signal_ends_the_body_cleanly(
    world: World, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    hook, before = RecordingHook(), handlers()
    with caplog.at_level("INFO", "asyncmon"):
        async with world.session([hook], signals="auto") as sess:
            assert handlers() != before
            os.kill(os.getpid(), number)
            while not sess.should_stop():
                await sess.run(world.train, world.feed())
    assert handlers() == before
    assert hook.moments()[-2:] == ["end", "cleanup"]
    assert sess.stop_reason == f"signal {number.name}"
    assert f"Received {number.name}, stopping." in caplog.text


@asynchronous
async def test_a_signal_wakes_a_sleeping_loop(world: World) -> None:
    async with world.session(signals="auto") as sess:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        await sess.coord.wait_for_stop()
        timer.join()


@asynchronous
async def test_handlers_are_restored_at_every_end(world: World) -> None:
    before = handlers()
    async with world.session(signals="auto"), world.session(signals="auto"):
        pass
    assert handlers() == before
    with pytest.raises(ValueError, match="boom"):
        async with world.session(signals="auto"):
            raise ValueError("boom")
    assert handlers() == before


@asynchronous
async def test_all_sessions_are_stopped(world: World) -> None:
    async with world.session(signals="auto") as one, world.session(signals="auto") as other:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert one.should_stop()
        assert other.should_stop()


@asynchronous
async def test_handlers_of_other_code_are_kept(world: World) -> None:
    seen: list[int] = []
    mine = [lambda number, frame: seen.append(number) for _ in BOTH]
    for number, handler in zip(BOTH, mine, strict=True):
        signal.signal(number, handler)
    async with world.session(signals="auto") as sess:
        assert handlers() == mine
        os.kill(os.getpid(), signal.SIGTERM)
        assert not sess.should_stop()
    assert seen == [signal.SIGTERM]


@asynchronous
async def test_a_handler_that_other_code_has_replaced_is_kept(world: World) -> None:
    def mine(number: int, frame: Any) -> None: ...

    async with world.session(signals="auto"):
        signal.signal(signal.SIGTERM, mine)
    assert signal.getsignal(signal.SIGTERM) is mine


@asynchronous
async def test_without_signals_nothing_is_installed(world: World) -> None:
    before = handlers()
    async with world.session():
        assert handlers() == before


@asynchronous
async def test_outside_of_the_main_thread_nothing_is_done() -> None:
    before = handlers()

    async def add() -> None:
        ProcessShutdown().call_on_signal(lambda name, at: None)()

    await asyncio.to_thread(lambda: asyncio.run(add()))
    assert handlers() == before


def test_ctrl_c_under_asyncio_run_without_signals_ax_4(world: World) -> None:
    """AX-4: end is not called, the session is closed, KeyboardInterrupt at the top."""
    hook = RecordingHook()

    async def main() -> None:
        async with world.session([hook]):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert hook.moments() == ["begin", "after_create_session", "cleanup"]


def test_the_handler_of_asyncio_run_counts_as_a_default_one(world: World) -> None:
    async def main() -> str | None:
        async with world.session(signals="auto") as sess:
            os.kill(os.getpid(), signal.SIGINT)
            await sess.coord.wait_for_stop()
        reason: str | None = sess.stop_reason
        return reason

    assert asyncio.run(main()) == "signal SIGINT"
