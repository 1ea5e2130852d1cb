"""The record of a run: its states, its file, and its readers."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.run_record import RunRecord, run_record, runs
from asyncmon.system.files import FileCalls, system_calls
from tests import forked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def make_program() -> FunctionProgram:
    program = FunctionProgram({"n": 0})

    @program.step
    def train(state: Any) -> None:
        state["n"] += 1

    return program


def training(directory: Path | None, *hooks: am.SessionRunHook, **others: Any) -> am.MonitoredSession:
    return am.MonitoredTrainingSession(
        program=make_program(), checkpoint_dir=directory, hooks=hooks, **others
    )


async def read(directory: Path) -> RunRecord:
    found = await run_record(directory)
    assert found is not None
    return found


async def test_record_follows_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the opening, when it is open, at each commit, pause and resume, and at the end."""
    opening: list[RunRecord] = []

    class Look(am.SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            opening.append(await read(tmp_path))

    sess = training(tmp_path, Look(), name="digits")
    assert sess.outcome is None
    async with sess:
        (first,) = opening
        assert (first.name, first.state, first.pid) == ("digits", "opening", os.getpid())
        found = await read(tmp_path)
        assert (found.state, found.step, found.saved, found.ended) == ("running", 0, 0, None)
        assert found.program is not None
        await sess.run("train")
        await sess.save()
        found = await read(tmp_path)
        assert (found.step, found.saved) == (1, 1)
        sess.pause("lunch")
        assert (await read(tmp_path)).state == "paused"
        sess.resume()
        assert (await read(tmp_path)).state == "running"
        await sess.run("train")
        assert sess.outcome is not None
        assert (sess.outcome.state, sess.outcome.step, sess.outcome.saved) == ("running", 2, 1)
    found = await read(tmp_path)
    assert (found.state, found.step, found.saved) == ("completed", 2, 2)
    assert (found.cause, found.text, found.error) == ("body", "the body ended", None)
    assert found.ended is not None
    assert found == sess.outcome
    assert found.directory == str(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    assert await runs(tmp_path.name) == [found], "absolute, as the session names it"


async def body_ends(sess: am.MonitoredSession) -> None:
    await sess.run("train")


async def data_ends(sess: am.MonitoredSession) -> None:
    raise StopAsyncIteration


async def hook_stops(sess: am.MonitoredSession) -> None:
    await sess.attach(am.StopAtStepHook(last_step=1))
    while not sess.should_stop():
        await sess.run("train")


async def restored_at_its_target(sess: am.MonitoredSession) -> None:
    await sess.run("train")
    await sess.attach(am.StopAtStepHook(last_step=1))
    assert sess.should_stop()


async def user_stops(sess: am.MonitoredSession) -> None:
    sess.request_stop("enough")


async def service_preempts(sess: am.MonitoredSession) -> None:
    sess.request_stop("the machine is taken", preempted=True)


async def signal_comes(sess: am.MonitoredSession) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    while not sess.should_stop():
        await sess.run("train")
        await asyncio.sleep(0.01)


async def task_is_cancelled(sess: am.MonitoredSession) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def interrupted(sess: am.MonitoredSession) -> None:
    raise asyncio.CancelledError


async def exit_is_clean(sess: am.MonitoredSession) -> None:
    raise SystemExit(0)


async def error_leaves(sess: am.MonitoredSession) -> None:
    raise ValueError("bad data")


async def error_after_a_stop(sess: am.MonitoredSession) -> None:
    sess.request_stop("enough")
    raise ValueError("bad data")


ENDS: list[tuple[Any, str, str]] = [
    (body_ends, "completed", "body"),
    (data_ends, "completed", "data"),
    (hook_stops, "completed", "hook"),
    (restored_at_its_target, "completed", "hook"),
    (user_stops, "stopped", "request"),
    (service_preempts, "preempted", "request"),
    (signal_comes, "preempted", "signal"),
    (task_is_cancelled, "cancelled", "body"),
    (interrupted, "cancelled", "body"),
    (exit_is_clean, "cancelled", "body"),
    (error_leaves, "failed", "body"),
    (error_after_a_stop, "failed", "body"),
]


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize(("body", "state", "cause"), ENDS, ids=[end[0].__name__ for end in ENDS])
async def test_each_end_has_its_state(
    body: Callable[[am.MonitoredSession], Any], state: str, cause: str, saves: bool, tmp_path: Path
) -> None:
    sess = training(tmp_path if saves else None)

    async def main() -> None:
        async with sess:
            await body(sess)

    raised: BaseException | None = None
    try:
        # A task of its own is cancelled; an exit leaves through the loop of a task.
        await (main() if body is exit_is_clean else asyncio.create_task(main()))
    except BaseException as error:
        raised = error
    assert sess.outcome is not None
    assert (sess.outcome.state, sess.outcome.cause) == (state, cause)
    assert sess.outcome.error == ("ValueError: bad data" if state == "failed" else None)
    assert (raised is not None) is (state in ("failed", "cancelled"))
    if saves:
        assert await read(tmp_path) == sess.outcome


async def test_opening_that_fails_is_a_failed_run(tmp_path: Path) -> None:
    class Broken(am.SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            raise ValueError("no data")

    sess = training(tmp_path, Broken())
    with pytest.raises(ValueError, match="no data"):
        await sess.start()
    found = await read(tmp_path)
    assert found == sess.outcome
    assert (found.state, found.error) == ("failed", "ValueError: no data")


async def test_only_the_session_that_saves_has_a_record(tmp_path: Path) -> None:
    """Neither a worker nor a reader of the directory, nor a session that is refused there."""
    async with training(tmp_path, name="owner"):
        worker = am.MonitoredTrainingSession(
            program=make_program(), checkpoint_dir=tmp_path, save_checkpoint_secs=0, name="reader"
        )
        async with worker:
            await worker.run("train")
        assert (await read(tmp_path)).name == "owner"
        second = training(tmp_path, name="second")
        with pytest.raises(ValueError, match="Two CheckpointSaverHooks save to"):
            await second.start()
        found = await read(tmp_path)
        assert (found.name, found.state) == ("owner", "running")
    assert (await read(tmp_path)).state == "completed"
    assert second.outcome is not None
    assert second.outcome.state == "failed"


async def test_record_has_the_last_evaluation_also_after_a_resume(tmp_path: Path) -> None:
    async def measured(step: int) -> am.MonitoredSession:
        program = make_program()

        @program.step
        def accuracy(state: Any) -> Any:
            return state["n"] / 10 if state["n"] < 3 else float("nan")

        evaluation = am.EvalHook({"accuracy": "accuracy"}, every_steps=1, concurrent=False)
        hooks = [evaluation, am.StopAtStepHook(last_step=step)]
        sess = am.MonitoredTrainingSession(program=program, checkpoint_dir=tmp_path, hooks=hooks)
        async with sess:
            while not sess.should_stop():
                await sess.run("train")
        return sess

    for step, expected in ((2, 0.2), (2, 0.2), (3, "nan")):
        await measured(step)
        assert (await read(tmp_path)).metrics == {"accuracy": expected}


async def test_job_is_kept_in_the_record(tmp_path: Path) -> None:
    sess = training(tmp_path)
    sess._record.job = {"id": "a1", "attempt": 2}
    async with sess:
        pass
    assert (await read(tmp_path)).job == {"id": "a1", "attempt": 2}


TRAIN = """
import asyncio, sys
import asyncmon as am
from tests.runtime.test_run_record import training
from pathlib import Path

async def main():
    async with training(Path(sys.argv[1]), name="digits") as sess:
        for _ in range(3):
            await sess.run("train")
        await sess.save()
        await sess.run("train")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


async def test_run_of_a_killed_process_is_lost(tmp_path: Path) -> None:
    """Its step is that of the checkpoint that a restart continues with."""
    process = forked.Process("-c", TRAIN, str(tmp_path))
    assert process.stdout.readline().strip() == "ready"
    found = await read(tmp_path)
    assert (found.state, found.pid) == ("running", process.pid)
    process.kill()
    process.communicate()
    written = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**written, "step": 0, "saved": 0}))
    found = await read(tmp_path)
    assert (found.state, found.step, found.saved, found.ended) == ("lost", 3, 3, None)
    assert [one.state for one in await runs(tmp_path)] == ["lost"]
    async with training(tmp_path) as sess:
        assert sess.global_step == 3
        assert (await read(tmp_path)).state == "running"


async def test_readers_do_not_refuse_an_opening(tmp_path: Path) -> None:
    """A reader holds the lock for a moment when it looks whether the run is lost."""
    async with training(tmp_path):
        pass
    reader, tries, before = os.open(tmp_path / ".asyncmon.lock", os.O_RDONLY), 0, system_calls.get()
    fcntl.flock(reader, fcntl.LOCK_SH)

    class Counting(FileCalls):
        def lock(self, descriptor: int, *, shared: bool = False) -> None:
            nonlocal tries
            tries += not shared
            if tries == 5:
                fcntl.flock(reader, fcntl.LOCK_UN)
            super().lock(descriptor, shared=shared)

    system_calls.set(Counting())
    try:
        async with training(tmp_path) as sess:
            await sess.run("train")
    finally:
        system_calls.set(before)
        os.close(reader)
    assert tries >= 5


async def test_record_is_no_error_of_the_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, and the training ends as it would."""

    class Full(FileCalls):
        def replace(self, source: Path, target: Path) -> None:
            if target.name == "run.json":
                raise OSError(28, "No space left on device")
            super().replace(source, target)

    before = system_calls.get()
    system_calls.set(Full())
    try:
        async with training(tmp_path) as sess:
            for _ in range(3):
                await sess.run("train")
                await sess.save()
    finally:
        system_calls.set(before)
    assert [line for line in caplog.messages if "run record" in line] == [
        f"The run record of {tmp_path.name!r} was not written: OSError: [Errno 28] No space left on "
        "device. This is logged once."
    ]
    assert not (tmp_path / "run.json").exists()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]
    assert sess.outcome is not None
    assert sess.outcome.state == "completed"


async def test_checkpoint_with_the_name_of_the_record_is_refused_or_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with training(None) as sess:
        with pytest.raises(RuntimeError, match="conflicts with path used for the run record"):
            await am.Saver().save(sess, tmp_path / "run", write_meta_graph=False)
        path = await am.Saver().save(sess, tmp_path / "other", write_meta_graph=False)
    manifest = tmp_path / "run.json"
    shutil.copy(f"{path}.json", manifest)
    before = manifest.read_bytes()
    assert await run_record(tmp_path) is None
    async with training(tmp_path) as sess:
        await sess.run("train")
    assert manifest.read_bytes() == before
    assert f"'run.json' is no run record, and none is written in {str(tmp_path)!r}." in caplog.messages


async def test_runs_lists_the_records_below_a_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("b", "a/deep", ".hidden"):
        async with training(tmp_path / name):
            pass
    damaged = tmp_path / "c"
    damaged.mkdir()
    (damaged / "run.json").write_bytes(b'{"format": "asyncmon.run", "name"')
    os.symlink(tmp_path / "b", tmp_path / "link")
    caplog.set_level(logging.WARNING)
    caplog.clear()
    assert [(one.name, one.state) for one in await runs(tmp_path)] == [
        ("deep", "completed"), ("b", "completed"),
    ]  # fmt: skip
    (line,) = caplog.messages
    assert line.startswith(f"The run record {damaged}/run.json is not readable: ")
    assert await runs(tmp_path / "missing") == []
    assert await run_record(damaged) is None
    assert await run_record(tmp_path / "missing") is None
    with pytest.raises(ValueError, match="s3://bucket"):
        await runs("s3://bucket")


async def test_program_that_cannot_be_described_has_no_fingerprint() -> None:
    class Shy(FunctionProgram):
        def describe(self) -> dict[str, Any]:
            raise ValueError("no")

    async with am.MonitoredTrainingSession(program=Shy({"n": 0})) as sess:
        assert sess.outcome is not None
        assert sess.outcome.program is None


async def test_fingerprint_is_that_of_the_programs_steps() -> None:
    found = []
    for program in (make_program(), make_program(), FunctionProgram({"n": 0})):
        async with am.MonitoredTrainingSession(program=program) as sess:
            assert sess.outcome is not None
            found.append(sess.outcome.program)
    assert found[0] == found[1] != found[2]


async def test_session_of_a_closed_loop_is_lost_and_releases_its_directory(tmp_path: Path) -> None:
    async def leave() -> am.MonitoredSession:
        return await training(tmp_path).start()

    sess = await asyncio.to_thread(lambda: asyncio.run(leave()))
    with pytest.raises(RuntimeError, match="event loop"):
        await sess.close()
    assert sess.outcome is not None
    assert sess.outcome.state == "lost"
    assert (await read(tmp_path)).state == "lost"
    async with training(tmp_path):
        assert (await read(tmp_path)).state == "running"


async def test_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    async with training(tmp_path):
        pass
    written = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**written, "version": 2, "colour": "green"}))
    assert (await read(tmp_path)).version == 2


SIGNALLED = """
import asyncio, sys
import asyncmon as am
from tests.runtime.test_run_record import training
from pathlib import Path

class Hangs(am.SessionRunHook):
    async def end(self, session):
        await asyncio.sleep(60)

async def main():
    hooks = [Hangs()] if "hangs" in sys.argv else []
    async with training(Path(sys.argv[1]), *hooks, name="digits") as sess:
        await sess.run("train")
        print("ready", flush=True)
        if "fails" in sys.argv:
            while not sess.should_stop():
                await asyncio.sleep(0.01)
            raise ValueError("bad data")
        await asyncio.sleep(60)

am.run(main, stop_grace_period_secs=2)
"""


@pytest.mark.parametrize(
    ("how", "status", "state"),
    [("", 75, "preempted"), ("hangs", 75, "preempted"), ("fails", 1, "failed")],
)
async def test_state_after_a_signal_is_that_of_the_exit_status(
    how: str, status: int, state: str, tmp_path: Path
) -> None:
    process = forked.Process("-c", SIGNALLED, str(tmp_path), how)
    assert process.stdout.readline().strip() == "ready"
    os.kill(process.pid, signal.SIGTERM)
    process.communicate()
    found = await read(tmp_path)
    assert (process.returncode, found.state, found.saved) == (status, state, 1 if status == 75 else 0)


async def test_saver_that_is_detached_may_be_attached_again(tmp_path: Path) -> None:
    async with training(None) as sess:
        for _ in range(2):
            async with await sess.attach(am.CheckpointSaverHook(tmp_path, save_steps=1)):
                await sess.run("train")
                with pytest.raises(ValueError, match="Two CheckpointSaverHooks"):
                    await sess.attach(am.CheckpointSaverHook(tmp_path, save_steps=1))
        assert (await read(tmp_path)).saved == 2
    assert (await read(tmp_path)).state == "completed"


async def test_texts_that_utf_8_cannot_encode_have_question_marks_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", logger="asyncmon")  # a worker of pytest cannot send such a log
    with pytest.raises(ValueError, match="no file"):
        async with training(tmp_path, name="a\udcff"):
            raise ValueError("no file \udcff" + "x" * 100_000)
    record = await read(tmp_path)
    assert (record.name, record.state) == ("a?", "failed")
    assert record.error is not None
    assert record.error.startswith("ValueError: no file ?")
    assert len(record.error) < 11_000


@pytest.mark.parametrize("step", [-1, 2**63, 10**30])
async def test_a_record_with_an_impossible_step_is_damaged(tmp_path: Path, step: int) -> None:
    async with training(tmp_path) as sess:
        await sess.run("train")
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "saved": step}))
    assert await run_record(tmp_path) is None


async def test_a_file_of_another_program_is_no_record_and_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"name": "mine"}')
    assert (await run_record(tmp_path), await runs(tmp_path), caplog.records) == (None, [], [])
    async with training(tmp_path) as sess:
        await sess.run("train")
    assert file.read_text() == '{"name": "mine"}'
    assert f"'run.json' is no run record, and none is written in {str(tmp_path)!r}." in caplog.messages


async def test_a_record_of_zeros_after_a_power_failure_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(bytes(100))
    async with training(tmp_path) as sess:
        await sess.run("train")
    assert (await read(tmp_path)).state == "completed"
