"""Pipelines whose calls run in child processes: values, errors, deaths and ends."""

from __future__ import annotations

import asyncio
import importlib
import os
import select
import signal
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.executors import ProcessExecutor, WorkerDiedError
from asyncmon.testing import assert_nothing_left_behind
from tests import forked
from tests.executors import calls
from tests.faults import FailAfterCommit
from tests.runtime.pipelines.conftest import Bench

pytestmark = pytest.mark.asyncio


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "run")


async def use(sess: Any, made: Any, size: int = 2) -> list[am.runtime.pipelines.Item]:
    """Use all batches of a pipeline, and return its items."""
    items = []
    async for batch in made.batches(size):
        items += batch
        await sess.run("use", {"batch": [item.value for item in batch]})
    return items


@pytest.mark.parametrize("fn", [calls.double, calls.async_double])
async def test_calls_run_in_child_processes(bench: Bench, fn: Any) -> None:
    async with assert_nothing_left_behind(), bench.session() as sess:
        made = sess.produce(range(8), ProcessExecutor(fn, processes=2))
        await use(sess, made)
    assert sorted(bench.used) == list(range(0, 16, 2))
    assert made.name == fn.__name__


async def test_each_version_of_the_weights_is_fetched_for_a_call(bench: Bench) -> None:
    async with bench.session() as sess:
        executor = ProcessExecutor(calls.seen, processes=2)
        made = sess.produce(range(12), executor, max_age=1, weights="weight")
        items = await use(sess, made)
    for item in items:
        process, version, weight = item.value
        assert process != os.getpid()
        assert weight == version == item.version
        assert 0 <= item.age <= 1
    assert max(item.value[1] for item in items) > 1


async def test_policy_without_weights_has_the_version(bench: Bench) -> None:
    async with bench.session() as sess:
        items = await use(sess, sess.produce(range(4), ProcessExecutor(calls.seen, 1)))
    assert all(item.value[1:] == (item.version, None) for item in items)


async def test_group_is_made_by_several_processes(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(2), ProcessExecutor(calls.double, 2), group=3)
        items = await use(sess, made, 1)
    assert sorted(item.value for item in items) == [[0, 0, 0], [2, 2, 2]]


async def test_element_of_a_killed_process_is_made_again(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elements = [(number, str(tmp_path / "dead")) for number in range(6)]
    async with assert_nothing_left_behind(), bench.session() as sess:
        made = sess.produce(elements, ProcessExecutor(calls.die_once, processes=2))
        await use(sess, made)
    assert sorted(bench.used) == list(range(6))
    assert made.statistics().lost == 1
    assert "Element 2 is made again: Child process" in caplog.text
    assert "was killed by SIGKILL" in caplog.text


async def test_idle_process_that_is_killed_is_replaced(bench: Bench) -> None:
    processes: set[int] = set()
    async with bench.session() as sess:
        made = sess.produce(range(6), ProcessExecutor(calls.seen, 1), workers=1, depth=1)
        async for item in made:
            child, _, _ = item.value
            processes.add(child)
            await sess.run("use", {"batch": [item.element]})
            if item.element == 2:
                os.kill(child, signal.SIGKILL)
    assert sorted(bench.used) == list(range(6))
    assert len(processes) == 2


async def test_element_that_kills_three_processes_stops_the_session(bench: Bench) -> None:
    text = (
        r"3 workers ended in the call with element 2: Child process \d+ has ended with the status 7\."
    )
    with pytest.raises(WorkerDiedError, match=text):
        async with assert_nothing_left_behind(), bench.session() as sess:
            await use(sess, sess.produce(range(4), ProcessExecutor(calls.die, 1)))


async def test_element_that_kills_processes_may_be_dropped(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce(range(4), ProcessExecutor(calls.die, 1), on_error="drop")
        await use(sess, made)
    assert sorted(bench.used) == [0, 1, 3]
    assert made.statistics().dropped == 1


async def test_system_exit_of_a_call_is_a_death(bench: Bench) -> None:
    with pytest.raises(WorkerDiedError, match="has ended with the status 3"):
        async with bench.session() as sess:
            await use(sess, sess.produce(range(1), ProcessExecutor(calls.leave, 1)))


async def test_process_that_dies_at_each_start_stops_the_session(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ProcessExecutor(changed("dies", "import os\nos._exit(9)\n", tmp_path, monkeypatch), 2)
    text = "3 workers of 'make' in a row ended before their first call: Child process .* the status 9"
    with pytest.raises(WorkerDiedError, match=text):
        async with assert_nothing_left_behind(), bench.session() as sess:
            await use(sess, sess.produce(range(4), executor))


async def test_error_of_the_import_stops_the_session_as_itself(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ProcessExecutor(changed("gone", "raise OSError('no disk')", tmp_path, monkeypatch), 2)
    with pytest.raises(OSError, match="no disk") as caught:
        async with assert_nothing_left_behind(), bench.session() as sess:
            await use(sess, sess.produce(range(4), executor))
    assert any("raised in the child process" in note for note in caught.value.__notes__)


async def test_module_that_exits_at_its_import_is_named(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ProcessExecutor(changed("exits", "raise SystemExit(2)", tmp_path, monkeypatch), 2)
    text = r"The module of 'make' has ended the child process that imports it: SystemExit\(2\)"
    with pytest.raises(RuntimeError, match=text):
        async with assert_nothing_left_behind(), bench.session() as sess:
            await use(sess, sess.produce(range(4), executor))


async def test_module_of_a_child_finds_the_arguments_of_this_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["program", "--rate", "0.5"])
    async with bench.session() as sess:
        items = await use(sess, sess.produce(range(1), ProcessExecutor(calls.arguments, 1)), 1)
    assert items[0].value == ["program", "--rate", "0.5"]


def changed(name: str, text: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function of a module that has another text when a child imports it."""
    (place / f"{name}.py").write_text("def make(element):\n    return element\n")
    monkeypatch.syspath_prepend(place)
    fn = importlib.import_module(name).make
    (place / f"{name}.py").write_text(text)
    return fn


# -- errors


async def test_error_of_a_call_is_raised_as_itself(bench: Bench) -> None:
    with pytest.raises(calls.Broken, match="no 2") as caught:
        async with bench.session() as sess:
            await use(sess, sess.produce(range(4), ProcessExecutor(calls.fail, 1)))
    [note] = [note for note in caught.value.__notes__ if "raised in the child process" in note]
    assert 'in fail\n    raise Broken(f"no {element}")' in note


async def test_call_that_fails_is_repeated(bench: Bench) -> None:
    async with bench.session() as sess:
        executor = ProcessExecutor(calls.fail, 1)
        made = sess.produce(range(4), executor, retries=2, on_error="drop")
        await use(sess, made)
    assert made.statistics().failures == 3
    assert sorted(bench.used) == [0, 1, 3]


async def test_error_that_cannot_be_rebuilt_has_its_text(bench: Bench) -> None:
    with pytest.raises(RuntimeError, match="Odd: 0 and 5"):
        async with bench.session() as sess:
            await use(sess, sess.produce(range(1), ProcessExecutor(calls.fail_oddly, 1)))


async def test_value_that_cannot_be_pickled_is_an_error(bench: Bench) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        async with bench.session() as sess:
            await use(sess, sess.produce(range(1), ProcessExecutor(calls.unpicklable, 1)))


async def test_element_that_cannot_be_pickled_is_an_error(bench: Bench) -> None:
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        async with assert_nothing_left_behind(), bench.session() as sess:
            await use(sess, sess.produce([lambda: 1], ProcessExecutor(calls.double, 1)))


async def test_wrong_arguments_are_refused() -> None:
    async def inside(element: int) -> None:
        pass

    with pytest.raises(ValueError, match="is inside of a function, and a child process cannot"):
        ProcessExecutor(inside)
    with pytest.raises(TypeError, match="takes a function of a module, got 'double'"):
        ProcessExecutor("double")  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match="must be 1 or more, got 0"):
        ProcessExecutor(calls.double, 0)


# -- ends


def has_ended(child: int, secs: float = 0) -> bool:
    return bool(select.select([child], [], [], secs)[0])


async def stopped(bench: Bench, place: Path, fn: Any, **options: Any) -> None:
    """Stop a session with a busy child, which must end."""
    async with assert_nothing_left_behind():
        async with bench.session(**options) as sess:
            made = sess.produce([str(place)], ProcessExecutor(fn, 1))
            learner = asyncio.create_task(use(sess, made, 1))
            child = await process_of(place)
            sess.request_stop()
            await learner
        assert has_ended(child)
        os.close(child)


@pytest.mark.parametrize("fn", [calls.wait, calls.async_wait])
async def test_stop_interrupts_a_call_whose_cleanups_run(bench: Bench, tmp_path: Path, fn: Any) -> None:
    await stopped(bench, tmp_path, fn)
    assert (tmp_path / "cleaned").exists()


async def test_child_that_ignores_the_stop_is_killed_at_the_end_of_the_grace_period(
    bench: Bench, tmp_path: Path
) -> None:
    await stopped(bench, tmp_path, calls.ignore_stop, stop_grace_period_secs=0.2)
    assert not (tmp_path / "cleaned").exists()


async def process_of(place: Path) -> int:
    """Wait for the call in a child, and return a descriptor of its process."""

    def opened() -> int:
        os.mkfifo(place / "process")
        return os.pidfd_open(int((place / "process").read_text()))

    return await asyncio.to_thread(opened)


async def test_process_that_a_dead_child_has_forked_holds_up_nothing(bench: Bench) -> None:
    text = "3 workers ended in the call with element 0: .* the status 1"
    with pytest.raises(WorkerDiedError, match=text):
        async with bench.session() as sess:
            await use(sess, sess.produce(range(1), ProcessExecutor(calls.forking, 1)))


TRAINING = """
import asyncio, sys
import asyncmon as am
from asyncmon.programs import FunctionProgram
from tests.executors import calls

async def main():
    async with am.MonitoredTrainingSession(program=FunctionProgram({"x": 0.0})) as sess:
        async for item in sess.produce([sys.argv[1]], am.executors.ProcessExecutor(calls.wait, 1)):
            pass

asyncio.run(main())
"""


@pytest.mark.parametrize("fn", ["wait", "ignore_stop"])
async def test_child_ends_with_a_parent_that_is_killed(tmp_path: Path, fn: str) -> None:
    text = TRAINING.replace("calls.wait", f"calls.{fn}")
    with forked.Process("-c", text, str(tmp_path)) as program:
        child = await process_of(tmp_path)
        program.kill()
        assert has_ended(child, 20)
        os.close(child)


# -- recoveries


async def test_recovery_without_loss_leaves_the_processes_alone(bench: Bench) -> None:
    async with bench.session(1000, FailAfterCommit(2)) as sess:
        made = sess.produce(range(16), ProcessExecutor(calls.seen, 1), depth=4, workers=4)
        items = await use(sess, made)
        assert await sess.peek("weight") == 8
    assert sorted({item.element for item in items}) == list(range(16))
    assert len({item.value[0] for item in items}) == 1


async def test_recovery_that_loses_steps_consumes_each_element_once(bench: Bench) -> None:
    async with bench.session(1000, FailAfterCommit(5), save_steps=3) as sess:
        made = sess.produce(range(24), ProcessExecutor(calls.double, 2), max_age=2)
        await use(sess, made)
        assert await sess.peek("weight") == 12
    assert set(bench.used) == set(range(0, 48, 2))
