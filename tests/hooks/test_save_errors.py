"""Saves that fail for their disk or store, and are survived: ``on_save_error="log"``."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

import asyncmon as am
from asyncmon.checkpoint import Saver
from asyncmon.errors import OpError, PermissionDeniedError, ResourceExhaustedError
from asyncmon.monitor.live_run import LiveRun
from asyncmon.summary import summary_iterator
from asyncmon.system.files import FileCalls
from asyncmon.testing import ScriptedCreator, ScriptedSession, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Disk(FileCalls):
    """Fails each fsync with an error, if there is one."""

    error: OSError | None = None

    def fill(self) -> None:
        self.error = OSError(errno.ENOSPC, "No space left on device")

    def fsync(self, descriptor: int) -> None:
        if self.error is not None:
            raise self.error
        super().fsync(descriptor)


def session(
    folder: Path, disk: Disk, *hooks: Any, on_save_error: Any = "log", **options: Any
) -> am.MonitoredSession:
    saves = am.CheckpointSaverHook(
        folder, saver=Saver(calls=disk), on_save_error=on_save_error,
        **(options or {"save_steps": 2}),
    )  # fmt: skip
    return am.MonitoredSession(ScriptedCreator(ScriptedSession()), [saves, *hooks], name="a")


async def steps(sess: am.MonitoredSession, count: int) -> None:
    for _ in range(count):
        await sess.run("train")
        await wait_all_tasks_blocked()


async def fill_and_train(sess: am.MonitoredSession, disk: Disk) -> None:
    async with sess:
        disk.fill()
        await steps(sess, 5)


async def saved(folder: Path) -> list[int]:
    state = await am.get_checkpoint_state(folder)
    assert state is not None
    return [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]


async def test_a_save_that_fails_is_a_warning_and_the_next_one_tries_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    async with session(tmp_path, disk) as sess:
        disk.fill()
        await steps(sess, 2)
        found = sess.statistics()
        assert found.failed_saves == 1
        assert found.last_save_error is not None
        assert found.last_save_error.startswith("ResourceExhaustedError: ")
        run = LiveRun("a", sess)
        await run.refresh()
        assert "A save failed: ResourceExhaustedError" in (run.status().last_error or "")
        await run.close()
        disk.error = None
        await steps(sess, 2)
        assert (sess.statistics().failed_saves, sess.statistics().last_save_error) == (1, None)
    assert await saved(tmp_path) == [0, 4]
    [record] = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert record.getMessage().startswith(f"Checkpoint {tmp_path}/model.ckpt-2 of step 2 was not saved")
    assert "ResourceExhaustedError: " in record.getMessage()
    assert "No space left" in record.getMessage()
    assert record.exc_info is None
    assert record.run == "a"  # type: ignore[attr-defined]  # of asyncmon's records
    assert sess.statistics().failed_saves == 1


async def test_a_failed_save_leaves_no_files_and_is_not_announced(tmp_path: Path) -> None:
    disk, spans = Disk(), []

    class Observer:
        def began(self, span: Any) -> None:
            pass

        def ended(self, span: Any) -> None:
            if span.kind == "save":
                spans.append((span.attributes["step"], type(span.error)))

    class Listener(am.CheckpointSaverListener):
        told: ClassVar[list[int]] = []

        async def after_save(self, session: Any, global_step_value: int) -> None:
            self.told.append(global_step_value)

    async with session(tmp_path, disk, save_steps=2, listeners=[Listener()]) as sess:
        sess.observe(Observer())
        disk.fill()
        await steps(sess, 2)
        assert not [name for name in os.listdir(tmp_path) if "ckpt-2" in name]
        disk.error = None
        await steps(sess, 2)
    assert spans == [(2, ResourceExhaustedError), (4, type(None))]
    assert Listener.told == [0, 4]
    [events] = [tmp_path / name for name in os.listdir(tmp_path) if name.startswith("events")]
    logs = [event.session_log for event in summary_iterator(events) if event.HasField("session_log")]
    assert [os.path.basename(log.checkpoint_path) for log in logs if log.checkpoint_path] == [
        "model.ckpt-0", "model.ckpt-4",
    ]  # fmt: skip


async def test_a_timed_save_that_fails_is_survived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    async with session(tmp_path, disk, save_secs=10) as sess:
        disk.error = PermissionError(errno.EACCES, "Permission denied")  # as of an expired token
        for _ in range(25):
            await sess.run("train")
            await asyncio.sleep(1)
        assert sess.statistics().failed_saves == 2
        assert not sess.should_stop()
        disk.error = None
    assert await saved(tmp_path) == [0, 25]


async def test_the_last_save_decides(tmp_path: Path) -> None:
    disk = Disk()
    sess = session(tmp_path, disk)
    with pytest.raises(ResourceExhaustedError, match="No space left"):
        await fill_and_train(sess, disk)
    assert sess.global_step == 5
    assert await saved(tmp_path) == [0]


async def test_the_last_save_is_tried_again(tmp_path: Path) -> None:
    class Emptied(Disk):
        """Full for one more call after the end of the body."""

        left = -1

        def fsync(self, descriptor: int) -> None:
            if self.left == 0:
                self.error = None
            self.left -= 1
            super().fsync(descriptor)

    disk = Emptied()
    async with session(tmp_path, disk) as sess:
        disk.fill()
        await steps(sess, 3)
        disk.left = 1
    assert await saved(tmp_path) == [0, 3]


async def test_a_save_that_a_caller_awaits_raises(tmp_path: Path) -> None:
    disk = Disk()
    async with session(tmp_path, disk, save_steps=100) as sess:
        await steps(sess, 1)
        disk.fill()
        with pytest.raises(OpError, match="No space left"):
            await sess.save()
        disk.error = None
        await steps(sess, 1)
        assert (await sess.save()).endswith("model.ckpt-2")


async def test_the_first_save_raises(tmp_path: Path) -> None:
    """A directory that cannot be written is an error at the start, and not after days."""
    disk = Disk()
    disk.error = PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(PermissionDeniedError):
        async with session(tmp_path, disk):
            pass


@pytest.mark.parametrize("error", [None, OSError(errno.ENAMETOOLONG, "File name too long")])
async def test_an_error_of_the_program_is_not_survived(tmp_path: Path, error: OSError | None) -> None:
    class Odd(am.SessionRunHook):
        state: Any = 0

        def state_dict(self) -> dict[str, Any]:
            return {"state": self.state}

        def load_state_dict(self, state: Any) -> None:
            pass

    disk, odd = Disk(), Odd()
    sess = session(tmp_path, disk, odd)

    async def train() -> None:
        async with sess:
            disk.error, odd.state = error, object() if error is None else 0
            await steps(sess, 5)

    with pytest.raises(TypeError if error is None else OpError):
        await train()
    assert sess.global_step is not None
    assert sess.global_step < 5


async def test_the_default_raises(tmp_path: Path) -> None:
    disk = Disk()
    sess = session(tmp_path, disk, on_save_error="raise")
    with pytest.raises(ResourceExhaustedError):
        await fill_and_train(sess, disk)
    assert (sess.global_step, sess.statistics().failed_saves) == (2, 1)


async def test_a_training_session_passes_it_on(tmp_path: Path) -> None:
    disk, program = Disk(), am.programs.FunctionProgram({"n": 0})

    @program.step
    def train(state: Any) -> None:
        state["n"] += 1

    sess = am.MonitoredTrainingSession(
        program=program, checkpoint_dir=tmp_path, saver=Saver(calls=disk), save_checkpoint_steps=1,
        on_save_error="log",
    )  # fmt: skip
    async with sess:
        disk.fill()
        await steps(sess, 1)
        disk.error = None
    assert await saved(tmp_path) == [0, 1]
    with pytest.raises(ValueError, match="on_save_error='log' needs a checkpoint_dir"):
        am.MonitoredTrainingSession(program=program, on_save_error="log")
    with pytest.raises(ValueError, match="on_save_error must be 'raise' or 'log', got 'no'"):
        am.CheckpointSaverHook(tmp_path, 1, on_save_error="no")  # type: ignore[arg-type]  # refused
