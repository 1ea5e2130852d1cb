"""``am.run``: the exit status of a real process, and that it ends in time."""

from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from tests.runtime.stop.conftest import running, stopped

# -- without a signal


def test_the_result_of_main_is_returned() -> None:
    async def add(one: int, other: int) -> int:
        await asyncio.sleep(0)
        return one + other

    handlers, threads = signal.getsignal(signal.SIGTERM), threading.active_count()
    assert am.run(add, 1, 2, loop_factory=asyncio.SelectorEventLoop) == 3
    assert signal.getsignal(signal.SIGTERM) is handlers
    for thread in threading.enumerate():
        if thread.name == "asyncmon grace period":
            thread.join(5)
    assert threading.active_count() == threads


def test_an_error_leaves_as_it_is() -> None:
    async def fail() -> None:
        raise LookupError("this one")

    with pytest.raises(LookupError, match="this one"):
        am.run(fail)


def test_an_exit_of_main_keeps_its_status() -> None:
    async def leave() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit) as caught:
        am.run(leave)
    assert caught.value.code == 3


@pytest.mark.parametrize(
    ("main", "grace", "message"),
    [
        ("main", None, r"takes an `async def` function and its arguments, got 'main'"),
        (lambda: 5, None, r"takes an `async def` function; .* returned 5"),
        (asyncio.sleep, "25", r"stop_grace_period_secs must be a number of seconds or None, got '25'"),
        (asyncio.sleep, 0, r"invalid stop_grace_period_secs=0: it must be positive"),
    ],
)
def test_what_is_wrong_is_refused(main: Any, grace: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        am.run(main, stop_grace_period_secs=grace)


@pytest.mark.asyncio
async def test_inside_of_a_loop_it_says_to_await_main() -> None:
    with pytest.raises(RuntimeError, match=r"running already: await main"):
        am.run(asyncio.sleep, 0)


def test_in_another_thread_it_leaves_signals_alone() -> None:
    before, results = signal.getsignal(signal.SIGTERM), []

    async def main() -> Any:
        return signal.getsignal(signal.SIGTERM)

    thread = threading.Thread(target=lambda: results.append(am.run(main)))
    thread.start()
    thread.join()
    assert results == [before]


# -- with one


TRAIN = """
    async def main():
        async with session(checkpoint_dir="run") as sess:
            await train_on(sess)
        print("after", sess.stop_reason)
    am.run(main, stop_grace_period_secs=10)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_saved_session_ends_with_75(tmp_path: Path, number: signal.Signals) -> None:
    status, out, err = stopped(TRAIN, tmp_path, number)
    assert (status, out) == (75, f"after signal {number.name}\n"), err
    end = "everything is saved. Exit status 75: start it again to continue.\n"
    assert err == f"Stopped by {number.name}, {end}"


def test_without_a_checkpoint_it_does_not_claim_that(tmp_path: Path) -> None:
    status, out, err = stopped(TRAIN.replace('checkpoint_dir="run"', ""), tmp_path)
    assert (status, out) == (1, "after signal SIGTERM\n"), err
    assert "Stopped by SIGTERM, and the state of step" in err
    assert "is not saved: no hook saves it. Exit status 1." in err


def test_a_save_that_failed_does_not_either(tmp_path: Path) -> None:
    code = """
        import pathlib, shutil

        async def main():
            async with session(checkpoint_dir="run") as sess:
                await train_on(sess)
                shutil.rmtree("run")
                pathlib.Path("run").write_text("no directory")
        am.run(main)
    """
    status, _, err = stopped(code, tmp_path)
    assert status == 1
    assert "CheckpointSaverHook.end failed." in err


def test_a_session_that_is_cancelled_unsaved_does_not_either(tmp_path: Path) -> None:
    status, _, err = stopped(TRAIN.replace('"run"', '"run", signals=None'), tmp_path)
    assert status == 1
    assert "is not saved: the last saved state is that of step 0" in err


def test_a_supervisor_that_is_cancelled_does_not_either(tmp_path: Path) -> None:
    code = """
        async def main():
            supervisor = am.Supervisor(graph=program, logdir="run")
            async with supervisor.managed_session() as sess:
                print("ready", flush=True)
                await asyncio.Event().wait()
        am.run(main)
    """
    status, _, err = stopped(code, tmp_path)
    assert status == 1
    assert "and a supervisor's session was cancelled, which saves nothing. Exit status 1." in err


def test_a_run_that_is_done_ends_with_0(tmp_path: Path) -> None:
    code = """
        class Slow(am.SessionRunHook):
            async def end(self, session):
                print("ready", flush=True)
                await asyncio.sleep(0.3)

        async def main():
            hooks = [am.StopAtStepHook(num_steps=4), Slow()]
            async with session(checkpoint_dir="run", hooks=hooks) as sess:
                await train_on(sess)
            print(sess.stop_reason)
        am.run(main)
    """
    status, out, err = stopped(code, tmp_path)
    assert (status, err) == (0, "")
    assert "reached the last step, 4\n" in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("body", "expected"), [("pass", 0), ("raise LookupError", 1)])
def test_a_signal_while_the_interpreter_ends_changes_no_status(
    tmp_path: Path, body: str, expected: int, number: signal.Signals
) -> None:
    code = f"""
        import atexit

        def slow():
            print("ready", flush=True)
            time.sleep(0.3)

        async def main():
            {body}

        atexit.register(slow)
        am.run(main)
    """
    status, _, err = stopped(code, tmp_path, number)
    assert status == expected, err


def test_a_second_sigint_while_the_interpreter_ends_changes_no_status(tmp_path: Path) -> None:
    code = """
        import atexit

        @atexit.register
        def slow():
            print("exiting", flush=True)
            time.sleep(0.3)
    """
    with running(textwrap.dedent(code) + textwrap.dedent(TRAIN), tmp_path) as child:
        child.signal(signal.SIGINT)
        assert [child.line() for _ in range(2)] == ["after signal SIGINT", "exiting"]
        child.signal(signal.SIGINT)
        status, _, err = child.end()
    assert status == 75, err


def test_an_error_after_the_signal_ends_with_1(tmp_path: Path) -> None:
    code = TRAIN.replace('print("after"', 'raise LookupError("after"')
    status, _, err = stopped(code, tmp_path)
    assert status == 1
    assert err.rstrip().endswith("LookupError: ('after', 'signal SIGTERM')")


@pytest.mark.parametrize("where", ["await asyncio.sleep(3600)", "time.sleep(0.5); await wait()"])
def test_before_a_session_is_open_main_is_cancelled(tmp_path: Path, where: str) -> None:
    code = f"""
        async def wait():
            await asyncio.Event().wait()

        async def main():
            print("ready", flush=True)
            try:
                {where}
            finally:
                print("released")
        am.run(main, stop_grace_period_secs=10)
    """
    status, out, err = stopped(code, tmp_path)
    assert (status, out) == (75, "released\n"), err


def test_a_body_that_waits_outside_of_runs_is_cancelled_in_time_to_save(tmp_path: Path) -> None:
    code = """
        async def main():
            async with session(checkpoint_dir="run") as sess:
                await sess.run("train")
                print("ready", flush=True)
                await asyncio.Event().wait()
        am.run(main, stop_grace_period_secs=2)
    """
    status, _, err = stopped(code, tmp_path)
    assert status == 75, err
    assert (tmp_path / "run" / "model.ckpt-1.index").exists() or list(
        tmp_path.glob("run/model.ckpt-1*")
    )


def test_body_that_waits_outside_of_runs_is_cancelled_before_the_hooks_end(tmp_path: Path) -> None:
    """Of 25 s the runs have 19, and `end` of the hooks has one. The clock is virtual."""
    code = """
        import os, signal
        from asyncmon.testing import VirtualTimeLoop

        async def main():
            clock = asyncio.get_running_loop().time
            async with session():
                print("ready", flush=True)
                began = clock()
                os.kill(os.getpid(), signal.SIGTERM)
                try:
                    await asyncio.Event().wait()
                finally:
                    print(clock() - began)
        am.run(main, stop_grace_period_secs=25, loop_factory=VirtualTimeLoop)
    """
    with running(code, tmp_path) as child:
        status, out, err = child.end()
    assert status == 1, err  # there is no checkpoint, whose time would count
    assert float(out) == pytest.approx(19.5)


def test_a_session_after_the_signal_is_not_opened(tmp_path: Path) -> None:
    code = """
        async def main():
            async with session(checkpoint_dir="run") as sess:
                await train_on(sess)
            async with session(checkpoint_dir="run") as sess:
                print("never")
        am.run(main)
    """
    status, out, err = stopped(code, tmp_path)
    assert (status, out) == (75, ""), err


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ("time.sleep(3600)", 75),
        ("await asyncio.to_thread(time.sleep, 3600)", 75),
        ("[await ignore() for _ in range(9)]", 75),
        ("threading.Thread(target=time.sleep, args=[3600]).start()", 75),
        ("async with session() as sess: time.sleep(3600)", 1),
    ],
)
def test_the_process_ends_with_the_grace_period_in_any_case(
    tmp_path: Path, holds: str, expected: int
) -> None:
    code = f"""
        async def ignore():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

        async def main():
            print("ready", flush=True)
            {holds}
            await ignore()
        am.run(main, stop_grace_period_secs=1)
    """
    status, _, err = stopped(code, tmp_path)
    assert status == expected
    assert f"The grace period is over. Exit status {expected}." in err


def test_a_second_sigint_leaves_at_once_with_130(tmp_path: Path) -> None:
    code = """
        class Hangs(am.SessionRunHook):
            async def end(self, session):
                print("ending", flush=True)
                time.sleep(3600)

        async def main():
            async with session(checkpoint_dir="run", hooks=[Hangs()]) as sess:
                await train_on(sess)
        am.run(main)
    """
    with running(code, tmp_path) as child:
        child.signal(signal.SIGINT)
        assert child.line() == "ending"
        child.signal(signal.SIGINT)
        status, _, err = child.end()
    assert status == 130
    assert err == "Aborted by SIGINT, without saving. Exit status 130.\n"


def test_a_second_sigterm_has_no_effect(tmp_path: Path) -> None:
    code = """
        async def main():
            async with session(checkpoint_dir="run") as sess:
                await train_on(sess)
                print("stopping", flush=True)
                await asyncio.to_thread(sys.stdin.readline)
        am.run(main)
    """
    with running(code, tmp_path) as child:
        child.signal(signal.SIGTERM)
        assert child.line() == "stopping"
        child.signal(signal.SIGTERM)
        child.process.communicate("go on\n", timeout=40)
    assert child.process.returncode == 75


def test_a_second_call_of_run_does_not_start_after_a_signal(tmp_path: Path) -> None:
    code = """
        async def first():
            print("ready", flush=True)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return 1

        async def second():
            await asyncio.sleep(3600)

        am.run(first)
        print("second", flush=True)
        am.run(second)
    """
    status, out, err = stopped(code, tmp_path)
    assert (status, out) == (75, "second\n"), err


def test_handlers_of_the_program_are_left_alone(tmp_path: Path) -> None:
    code = """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))

        async def main():
            print("ready", flush=True)
            while True:
                await asyncio.sleep(0.01)
        am.run(main)
    """
    with running(code, tmp_path) as child:
        child.signal(signal.SIGTERM)
        assert child.line() == "mine"
        child.signal(signal.SIGINT)
        assert child.end()[0] == 75
