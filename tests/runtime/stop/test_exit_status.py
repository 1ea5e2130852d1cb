"""The exit status says whether state was lost: real processes, stopped at difficult moments."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from asyncmon.checkpoint import latest_checkpoint, load_checkpoint
from tests.runtime.stop.conftest import Child, running, stopped


def saved(directory: Path) -> tuple[int, float]:
    """Return the step and the weight of the newest checkpoint."""

    async def read() -> tuple[int, float]:
        path = await latest_checkpoint(directory)
        assert path is not None
        async with await load_checkpoint(path) as reader:
            step, weight = [await reader.get_tensor(name) for name in ("global_step", "weight")]
        return int(step), float(weight)

    return asyncio.run(read())


def step_at_end(out: str) -> int:
    """Return the number after ``ended at`` in the output of a program."""
    return int(out.partition("ended at ")[2].split()[0])


HANGS = """
    class Hangs(am.SessionRunHook):
        async def {method}:
            while True:
                try:
                    {hang}
                except asyncio.CancelledError:
                    {cancelled}

    async def main():
        async with session(checkpoint_dir="run", hooks=[Hangs()]) as sess:
            await train_on(sess)
"""

WAYS = [
    ("await asyncio.sleep(3600)", "raise"),
    ("await asyncio.sleep(3600)", "pass"),
    ("time.sleep(3600)", "raise"),
]


@pytest.mark.parametrize(("hang", "cancelled"), WAYS)
def test_a_cleanup_that_hangs_loses_nothing(tmp_path: Path, hang: str, cancelled: str) -> None:
    code = HANGS.format(method="cleanup(self, error)", hang=hang, cancelled=cancelled)
    status, _, err = stopped(code + "    am.run(main, stop_grace_period_secs=1.5)", tmp_path)
    assert status == 75, err
    assert saved(tmp_path / "run")[0] >= 5


def test_an_end_that_ignores_its_cancellation_loses_nothing(tmp_path: Path) -> None:
    code = HANGS.format(method="end(self, session)", hang="await asyncio.sleep(3600)", cancelled="pass")
    status, _, err = stopped(code + "    am.run(main, stop_grace_period_secs=3)", tmp_path)
    assert status == 75, err
    assert saved(tmp_path / "run")[0] >= 5
    assert "ignores its cancellation and is left behind: it waits in sleep" in err


@pytest.mark.parametrize(("hang", "cancelled"), WAYS[2:])
def test_an_end_that_uses_up_the_period_loses_the_state(
    tmp_path: Path, hang: str, cancelled: str
) -> None:
    code = HANGS.format(method="end(self, session)", hang=hang, cancelled=cancelled)
    status, _, err = stopped(code + "    am.run(main, stop_grace_period_secs=1.5)", tmp_path)
    assert status == 1, err
    assert "not saved: the last saved state is that of step 0" in err


def test_an_end_that_hangs_before_the_signal_loses_nothing(tmp_path: Path) -> None:
    """The session closes for another reason. The saver still has its time."""
    code = """
        class Hangs(am.SessionRunHook):
            async def end(self, session):
                print("ready", flush=True)
                await asyncio.sleep(3600)

        async def main():
            async with session(checkpoint_dir="run", hooks=[Hangs()]) as sess:
                for _ in range(4):
                    await sess.run("train")
        am.run(main, stop_grace_period_secs=2)
    """
    status, _, err = stopped(code, tmp_path)
    assert status == 75, err
    assert saved(tmp_path / "run") == (4, 4)


@pytest.mark.parametrize("where", ["signals=None", "checkpoint_dir=None"])
def test_a_session_that_holds_the_loop_loses_its_state(tmp_path: Path, where: str) -> None:
    code = f"""
        async def main():
            async with session({where}) as sess:
                await sess.run("train")
                print("ready", flush=True)
                time.sleep(3600)
        am.run(main, stop_grace_period_secs=1)
    """
    status, _, err = stopped(code, tmp_path)
    assert status == 1, err
    assert "the state of step 1 is not saved" in err


def test_a_supervisor_that_holds_the_loop_loses_its_state(tmp_path: Path) -> None:
    code = """
        async def main():
            supervisor = am.Supervisor(graph=program, logdir="run")
            async with supervisor.managed_session() as sess:
                print("ready", flush=True)
                time.sleep(3600)
        am.run(main, stop_grace_period_secs=1)
    """
    status, _, err = stopped(code, tmp_path)
    assert status == 1, err


def test_a_cleanup_that_hangs_leaves_the_other_session_its_time_to_save(tmp_path: Path) -> None:
    code = """
        class Hangs(am.SessionRunHook):
            async def cleanup(self, error):
                await asyncio.sleep(3600)

        class Slow(am.CheckpointSaverListener):
            async def before_save(self, session, global_step_value):
                await asyncio.sleep(1)

        async def main():
            slow = [Slow()]
            saves = am.CheckpointSaverHook("outer", save_steps=1000, saver=am.Saver(), listeners=slow)
            inner = session(checkpoint_dir="run", hooks=[Hangs()])
            async with session(hooks=[saves]) as outer, inner as sess:
                await outer.run("train")
                await train_on(sess)
        am.run(main, stop_grace_period_secs=8)
    """
    status, _, err = stopped(code, tmp_path)
    assert status == 75, err
    assert saved(tmp_path / "outer") == (1, 1)


RECOVERING = """
    failures = 0

    class Breaks(am.SessionRunHook):
        async def after_create_session(self, session, coord):
            if failures and {where!r} == "creation":
                print("ready", flush=True)
                await asyncio.sleep(3600)

        async def after_run(self, run_context, run_values):
            global failures
            if run_values.step > 7:
                failures += 1
                if failures == 2:
                    print("ready", flush=True)
                raise am.errors.AbortedError(None, None, "preempted")

    class Slow(am.SessionRunHook):
        async def background(self, session, coord):
            try:
                await asyncio.Event().wait()
            finally:
                if failures and {where!r} == "close":
                    print("ready", flush=True)
                    await asyncio.sleep(0.3)

    async def main():
        recovery = am.Recovery(first_delay_secs=3600, max_delay_secs=3600)
        hooks = [Breaks(), Slow()]
        async with session(
            checkpoint_dir="run", hooks=hooks, save_checkpoint_steps=5, recovery=recovery
        ) as sess:
            while not sess.should_stop():
                await sess.run("train")
        print("after", sess.stop_reason)
    am.run(main, stop_grace_period_secs=5)
"""


@pytest.mark.parametrize("where", ["pause", "creation", "close"])
def test_a_signal_during_a_recovery_loses_nothing(tmp_path: Path, where: str) -> None:
    status, out, err = stopped(RECOVERING.format(where=where), tmp_path)
    assert (status, out.splitlines()[-1:]) == (75, ["after signal SIGTERM"]), err
    assert saved(tmp_path / "run")[0] >= 5


LATE = """
    class Late(am.SessionRunHook):
        async def end(self, session):
            {end}

    async def main():
        async with session(checkpoint_dir="run", hooks=[Late()], stop_grace_period_secs=0.5) as sess:
            await train_on(sess)
            print("ended at", sess.global_step)
            {body}
    {run}
"""


@pytest.mark.parametrize("where", ["body", "end"])
@pytest.mark.parametrize("late", ["await asyncio.sleep(1.2)", "time.sleep(1.2)"])
@pytest.mark.parametrize(
    ("run", "expected"), [("asyncio.run(main())", 0), ("am.run(main, stop_grace_period_secs=20)", 75)]
)
def test_the_last_state_is_saved_after_the_period_while_the_process_lasts(
    tmp_path: Path, where: str, late: str, run: str, expected: int
) -> None:
    code = LATE.format(**{"end": "pass", "body": "pass", where: late, "run": run})
    status, out, err = stopped(code, tmp_path, signal.SIGINT)
    assert status == expected, err
    assert "CheckpointSaverHook" not in err
    step = step_at_end(out)
    assert saved(tmp_path / "run") == (step, step)


UNCLOSED = """
    import logging
    logging.basicConfig(level=logging.INFO, format="log: %(message)s", stream=sys.stdout)

    async def main():
        global kept
        sess = session(checkpoint_dir="run")
        await sess.start()  # the line
        for _ in range(50):
            await sess.run("train")
        {rest}
    print("ready", flush=True)
"""
LINE = "unclosed.py:{}: ResourceWarning: "


def unclosed(directory: Path, run: str, rest: str = "") -> tuple[int, str, str]:
    code = UNCLOSED.format(rest=rest) + f"    {run}"
    with running(code, directory, "-W", "default") as child:
        return child.end()


def test_am_run_closes_a_session_that_was_not_closed(tmp_path: Path) -> None:
    status, out, err = unclosed(tmp_path, "am.run(main)")
    assert status == 0, err
    assert "log: Session ended at step 50: " in out
    assert "ResourceWarning: A session was started here and not closed" in err
    assert "await sess.start()  # the line" in err
    assert saved(tmp_path / "run") == (50, 50)


def test_am_run_closes_it_after_an_error_as_a_block_does(tmp_path: Path) -> None:
    status, out, err = unclosed(tmp_path, "am.run(main)", "raise LookupError('mine')")
    assert status == 1, err
    assert "log: Session ended at step 50: LookupError: mine." in out
    assert err.rstrip().endswith("LookupError: mine")
    assert saved(tmp_path / "run") == (0, 0)


def test_am_run_closes_it_after_a_signal(tmp_path: Path) -> None:
    code = """
        async def main():
            sess = session(checkpoint_dir="run")
            await sess.start()
            await train_on(sess)
            print("ended at", sess.global_step)
            await asyncio.Event().wait()
        am.run(main, stop_grace_period_secs=3)
    """
    status, out, err = stopped(code, tmp_path)
    assert status == 75, err
    step = step_at_end(out)
    assert saved(tmp_path / "run") == (step, step)


@pytest.mark.parametrize("rest", ["", "kept = sess", "del sess; import gc; gc.collect()"])
def test_without_it_the_loss_is_reported(tmp_path: Path, rest: str) -> None:
    status, out, err = unclosed(tmp_path, "asyncio.run(main())", rest)
    assert status == 0, err
    assert out.count("log: Session ended at step 50: ") == 1
    assert "ResourceWarning: A session was started here and not closed" in err
    assert "await sess.start()  # the line" in err


SERVICE = """
    async def main():
        async with session({options}) as sess:
            for _ in range(4):
                await sess.run("train")
            sess.request_stop("our handler of SIGTERM", {how})
            while not sess.should_stop():
                await sess.run("train")
            print("cause", sess.statistics().stop.cause)
    am.run(main)
"""


@pytest.mark.parametrize(
    ("options", "how", "status"),
    [
        ("checkpoint_dir='run'", "preempted=True", 75),
        ("", "preempted=True", 1),
        ("checkpoint_dir='run'", "preempted=False", 0),
        ("", "preempted=False", 0),
    ],
)
def test_a_service_says_that_it_is_preempted(
    tmp_path: Path, options: str, how: str, status: int
) -> None:
    child = Child(SERVICE.format(options=options, how=how), tmp_path)
    found, out, err = child.end()
    assert found == status, err
    assert "cause request" in out
    if status == 75:
        assert saved(tmp_path / "run") == (4, 4)
        assert "Stopped by our handler of SIGTERM, everything is saved. Exit status 75" in err


@pytest.mark.parametrize("text", ["signal SIGTERM", "SIGTERM", "signal SIGINT"])
def test_the_text_of_a_request_has_no_meaning(tmp_path: Path, text: str) -> None:
    code = f"""
        async def main():
            async with session() as sess:
                await sess.run("train")
                sess.request_stop({text!r})
        am.run(main)
    """
    status, _, err = Child(code, tmp_path).end()
    assert status == 0, err
