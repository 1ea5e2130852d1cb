"""Session managers and creators: restore or initialise, check, wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver
from asyncmon.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from asyncmon.runtime import (
    ChiefSessionCreator,
    Scaffold,
    SessionCreator,
    SessionManager,
    WorkerSessionCreator,
)
from asyncmon.system.files import FileCalls
from asyncmon.testing import ScriptedSession, assert_nothing_left_behind
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Scripts:
    """A program whose sessions answer fetches from a table of functions of the time."""

    finalized = False

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.sessions: list[ScriptedSession] = []

    def create_session(self, target: str = "", config: Any = None) -> ScriptedSession:
        session = _Answering(self.answers)
        self.sessions.append(session)
        return session

    def finalize(self) -> None: ...
    def init_op(self) -> Any:
        return "init"

    def local_init_op(self) -> Any:
        return "local_init" if "local_init" in self.answers else None

    def ready_op(self) -> Any:
        return "ready" if "ready" in self.answers else None

    def ready_for_local_init_op(self) -> Any:
        return "ready_for_local" if "ready_for_local" in self.answers else None

    def summary_op(self) -> None: ...
    def has_global_step(self) -> bool:
        return True


class _Answering(ScriptedSession):
    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self.answers = answers

    async def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, md: Any = None
    ) -> Any:
        self.runs.append(fetches)
        answer = self.answers.get(fetches)
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer


def now() -> float:
    return asyncio.get_running_loop().time()


def from_time(secs: float, before: Any, after: Any) -> Callable[[], Any]:
    return lambda: after if now() >= secs else before


def manager(program: Any, **kwargs: Any) -> SessionManager:
    return SessionManager(
        ready_op=program.ready_op(),
        local_init_op=program.local_init_op(),
        ready_for_local_init_op=program.ready_for_local_init_op(),
        graph=program,
        **kwargs,
    )


async def test_ready_for_local_init_needs_local_init_sm_1() -> None:
    with pytest.raises(
        ValueError, match="you must also pass a local_init_op , ready_for_local_init_op"
    ):
        SessionManager(ready_for_local_init_op="x")


async def test_nothing_to_initialise_with_sm_3() -> None:
    program = Scripts()
    with pytest.raises(
        RuntimeError, match="Model is not initialized and no init_op or init_fn or local"
    ):
        await SessionManager(graph=program).prepare_session()
    assert program.sessions[0].closed


async def test_the_order_when_nothing_is_restored_sm_4(caplog: pytest.LogCaptureFixture) -> None:
    program = Scripts(local_init=None, ready=[], ready_for_local=[])
    called: list[Any] = []
    with caplog.at_level(logging.INFO, "asyncmon"):
        session = await manager(program).prepare_session(
            init_op="init", init_fn=lambda sess: called.append(list(sess.runs))
        )
    assert called == [["init"]]
    assert session.runs == ["init", "ready_for_local", "local_init", "ready"]  # type: ignore[attr-defined]  # scripted
    assert "Running local_init_op." in caplog.text
    assert "Done running local_init_op." in caplog.text


async def test_the_order_when_restored_sm_2_sm_4_cr_2(world: World, tmp_path: Path) -> None:
    """CR-2: neither init_op nor init_fn; and SM-12: the list of checkpoints continues."""
    saver, called = Saver(), []
    scaffold = Scaffold(saver=saver, init_fn=lambda scaffold, sess: called.append(sess))
    creator = world.creator(scaffold=scaffold, checkpoint_dir=tmp_path)
    first = await creator.create_session()
    assert len(called) == 1
    for step in (1, 2):
        await first.run(world.train, world.feed(2.0))
        await saver.save(first, tmp_path / "model.ckpt", global_step=step)
    await saver.close()

    again = Saver()
    scaffold = Scaffold(saver=again, init_fn=lambda scaffold, sess: called.append(sess))
    creator = ChiefSessionCreator(scaffold, checkpoint_dir=tmp_path, program=world.program)
    second = await creator.create_session()
    assert len(called) == 1
    assert await second.run(world.weight) == 4.0
    assert second.global_step == 2
    assert [path.rsplit("-", 1)[1] for path in again.last_checkpoints] == ["1", "2"]


class _NoDeletions(FileCalls):
    """A disk on which nothing can be deleted, as if the process was killed just before."""

    def replace(self, source: Path, target: Path) -> None:
        if target.name.startswith(".asyncmon-"):
            raise OSError("it is not to be deleted")
        super().replace(source, target)


def _steps_in(directory: Path) -> list[int]:
    return sorted(int(path.stem.split("-")[1]) for path in directory.glob("model.ckpt-*.json"))


async def test_what_was_about_to_be_deleted_goes_after_a_restore_sm_12_sa_4(
    world: World, tmp_path: Path
) -> None:
    await _two_checkpoints(world, tmp_path, max_to_keep=1, calls=_NoDeletions())
    assert _steps_in(tmp_path) == [1, 2]
    saver = Saver(max_to_keep=1)
    creator = world.creator(scaffold=Scaffold(saver=saver), checkpoint_dir=tmp_path)
    session = await creator.create_session()
    await session.run(world.train, world.feed())
    await saver.save(session, tmp_path / "model.ckpt", global_step=3)
    await saver.close()
    assert _steps_in(tmp_path) == [3]


async def test_the_hours_since_one_was_kept_for_good_continue_after_a_restore_sm_12_sa_5(
    world: World, tmp_path: Path
) -> None:
    for step in range(1, 7):
        saver = Saver(max_to_keep=1, keep_checkpoint_every_n_hours=2)
        scaffold = Scaffold(saver=saver)
        session = await world.creator(scaffold=scaffold, checkpoint_dir=tmp_path).create_session()
        await session.run(world.train, world.feed())
        await saver.save(session, tmp_path / "model.ckpt", global_step=step)
        await saver.close()
        await asyncio.sleep(3600)
    assert _steps_in(tmp_path) == [4, 6]  # as test_the_mark_survives_a_restart_sa_5 has it


async def test_savers_of_other_kinds_receive_the_list_sm_12(world: World, tmp_path: Path) -> None:
    class Other:
        def __init__(self) -> None:
            self.told: list[str] = []

        async def restore(self, session: Any, path: str) -> None:
            await Saver().restore(session, path)

        async def recover_last_checkpoints(self, paths: Sequence[str]) -> None:
            self.told = list(paths)

    await _two_checkpoints(world, tmp_path)
    other = Other()
    session = await SessionManager(graph=world.program).prepare_session(
        saver=other, checkpoint_dir=str(tmp_path)
    )
    assert session.global_step == 2
    assert other.told == [str(tmp_path / f"model.ckpt-{step}") for step in (1, 2)]


async def test_not_ready_for_local_init_sm_5() -> None:
    program = Scripts(local_init=None, ready_for_local=["w"])
    message = (
        "Init operations did not make model ready for local_init.  Init op: init, init fn: None, "
        "error: Variables not initialized: w"
    )
    with pytest.raises(RuntimeError, match=message):
        await manager(program).prepare_session(init_op="init")
    assert program.sessions[0].closed
    assert "local_init" not in program.sessions[0].runs


async def test_not_ready_at_the_end_sm_6() -> None:
    program = Scripts(ready=["w", b"v"])
    message = (
        "Init operations did not make model ready.  Init op: init, init fn: None, local_init_op: None, "
        "error: Variables not initialized: w, v"
    )
    with pytest.raises(RuntimeError, match=message):
        await manager(program).prepare_session(init_op="init")


async def test_a_checkpoint_that_lacks_something_names_it_sm_7(world: World, tmp_path: Path) -> None:
    session = await world.creator().create_session()
    partial = Saver(var_list=["global_step"])
    await partial.save(session, tmp_path / "model.ckpt", global_step=0)
    await partial.close()
    with pytest.raises(NotFoundError, match=r"most likely due to a Variable name(?s:.*)'weight'"):
        await world.creator(scaffold=Scaffold(saver=Saver()), checkpoint_dir=tmp_path).create_session()


async def _two_checkpoints(world: World, directory: Path, **kwargs: Any) -> None:
    saver, session = Saver(**kwargs), await world.creator().create_session()
    for step in (1, 2):
        await session.run(world.train, world.feed())
        await saver.save(session, directory / "model.ckpt", global_step=step)
    await saver.close()


async def test_a_damaged_checkpoint_falls_back_to_the_one_before_sm_8(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _two_checkpoints(world, tmp_path)
    (tmp_path / "model.ckpt-2.safetensors").write_bytes(b"torn")
    creator = world.creator(scaffold=Scaffold(saver=Saver()), checkpoint_dir=tmp_path)
    session = await creator.create_session()
    assert session.global_step == 1
    assert "model.ckpt-2" in caplog.text


async def test_with_nothing_to_fall_back_to_training_does_not_begin_again_sm_8(
    world: World, tmp_path: Path
) -> None:
    await _two_checkpoints(world, tmp_path)
    for step in (1, 2):
        (tmp_path / f"model.ckpt-{step}.safetensors").write_bytes(b"torn")
    creator = world.creator(scaffold=Scaffold(saver=Saver()), checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="The passed save_path is not a valid checkpoint"):
        await creator.create_session()


async def test_waiting_for_a_checkpoint_sm_9(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def save_later() -> None:
        await asyncio.sleep(100)
        await _two_checkpoints(world, tmp_path)

    later = asyncio.create_task(save_later())
    with caplog.at_level(logging.INFO, "asyncmon"):
        session, restored = await SessionManager(graph=world.program).recover_session(
            saver=Saver(), checkpoint_dir=str(tmp_path), wait_for_checkpoint=True
        )
    assert restored
    assert 100 <= now() <= 131
    assert session.global_step == 2
    assert "Waiting for checkpoint to be available." in caplog.text
    assert "Restored model from" in caplog.text
    await later


async def test_without_one_in_time_it_is_initialised_sm_9(tmp_path: Path) -> None:
    program = Scripts()
    session = await manager(program).prepare_session(
        init_op="init", saver=Saver(), checkpoint_dir=str(tmp_path), wait_for_checkpoint=True,
        max_wait_secs=10,
    )  # fmt: skip
    assert session.runs == ["init"]  # type: ignore[attr-defined]  # scripted
    assert now() == 10


async def test_waiting_for_a_session_sm_10(caplog: pytest.LogCaptureFixture) -> None:
    program = Scripts(
        ready=from_time(3, ["w"], []), local_init=None, ready_for_local=from_time(1, ["w"], None)
    )
    with caplog.at_level(logging.INFO, "asyncmon"):
        session = await manager(program).wait_for_session()
    assert 3 <= now() < 7
    assert session is program.sessions[-1]
    assert not session.closed
    assert all(earlier.closed for earlier in program.sessions[:-1])  # SM-15
    assert "Waiting for model to be ready.  Ready_for_local_init_op:  Variables not init" in caplog.text
    assert "ready: Variables not initialized: w" in caplog.text


@pytest.mark.parametrize("secs", [0, 1.5, 45])
async def test_the_deadline_is_kept_to_sm_10(secs: float) -> None:
    program = Scripts(ready=["w"])
    with pytest.raises(
        DeadlineExceededError, match=f"Session was not ready after waiting {secs:g} secs."
    ):
        await manager(program, recovery_wait_secs=30).wait_for_session(max_wait_secs=secs)
    assert now() == secs


async def test_the_wait_can_be_cancelled_sm_10() -> None:
    program = Scripts(ready=["w"])
    async with assert_nothing_left_behind():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await manager(program).wait_for_session()
    assert all(session.closed for session in program.sessions)


async def test_recover_session_sm_11(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session, restored = await SessionManager(graph=world.program).recover_session()
    assert not restored
    assert not getattr(session, "closed", False)
    await _two_checkpoints(world, tmp_path)
    saver = Saver()
    with caplog.at_level(logging.INFO, "asyncmon"):
        session, restored = await SessionManager(graph=world.program).recover_session(
            saver=saver, checkpoint_dir=str(tmp_path)
        )
    assert restored
    assert session.global_step == 2
    assert f"Restored model from {tmp_path}/model.ckpt-2" in caplog.text


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ({"ready": ["w"]}, "Restoring model from here did not make model ready: Variables not init"),
        (
            {"local_init": None, "ready_for_local": ["w"]},
            "Restoring model from here did not make model ready for local init: Variables not init",
        ),
    ],
)
async def test_restored_and_not_ready_sm_11(
    answers: dict[str, Any], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Restoring(Saver):
        async def restore(self, *args: Any, **kwargs: Any) -> None: ...

    program = Scripts(**answers)
    with caplog.at_level(logging.INFO, "asyncmon"):
        session, restored = await manager(program).recover_session(
            saver=Restoring(), checkpoint_filename_with_path="here"
        )
    assert not restored
    assert not session.closed  # type: ignore[attr-defined]  # scripted
    assert line in caplog.text


@pytest.mark.parametrize(
    ("value", "lacks"),
    [
        (None, None),
        ([], None),
        (["a", "b"], "Variables not initialized: a, b"),
        (FailedPreconditionError("Attempting to use uninitialized value w"), "uninitialized value w"),
    ],
)
async def test_what_a_ready_op_may_give_sm_14(value: Any, lacks: str | None) -> None:
    program = Scripts(ready=value)
    if lacks is None:
        await manager(program).prepare_session(init_op="init")
    else:
        with pytest.raises(RuntimeError, match=lacks):
            await manager(program).prepare_session(init_op="init")


@pytest.mark.parametrize(
    "value", [[1.5], "w", UnavailableError("peer"), FailedPreconditionError("other")]
)
async def test_anything_else_leaves_sm_14(value: Any) -> None:
    program = Scripts(ready=value)
    with pytest.raises((TypeError, UnavailableError, FailedPreconditionError)):
        await manager(program).prepare_session(init_op="init")
    assert program.sessions[0].closed


async def test_session_creator_is_abstract_cr_1() -> None:
    with pytest.raises(TypeError, match="abstract"):
        SessionCreator()  # type: ignore[abstract]  # the mistake under test


async def test_a_directory_and_a_file_are_refused_at_construction_cr_3() -> None:
    message = r"^Can not provide both checkpoint_dir and checkpoint_filename_with_path\.$"
    with pytest.raises(ValueError, match=message):
        ChiefSessionCreator(checkpoint_dir="a", checkpoint_filename_with_path="b")


async def test_exactly_that_file_is_restored_cr_4(world: World, tmp_path: Path) -> None:
    await _two_checkpoints(world, tmp_path)
    prefix = str(tmp_path / "model.ckpt-1")
    creator = world.creator(scaffold=Scaffold(saver=Saver()), checkpoint_filename_with_path=prefix)
    assert (await creator.create_session()).global_step == 1
    creator = world.creator(scaffold=Scaffold(saver=Saver()), checkpoint_filename_with_path="nowhere")
    with pytest.raises((ValueError, NotFoundError), match="nowhere"):
        await creator.create_session()


async def test_a_worker_waits_and_never_initialises_cr_5() -> None:
    program = Scripts(ready=from_time(0.2, ["w"], []), local_init=None, ready_for_local=None)
    session = await WorkerSessionCreator(program=program).create_session()
    assert now() < 1  # KC-13: the first pauses are short
    assert session.runs == ["ready_for_local", "local_init", "ready"]  # type: ignore[attr-defined]  # scripted
    with pytest.raises(DeadlineExceededError, match="Session was not ready after waiting 5 secs"):
        await WorkerSessionCreator(program=Scripts(ready=["w"]), max_wait_secs=5).create_session()


async def test_the_scaffold_is_finalized_once_cr_6(world: World) -> None:
    creator = world.creator()
    first, second = await creator.create_session(), await creator.create_session()
    assert first is not second
    assert creator.prepare() is creator.scaffold


async def test_what_is_opened_is_closed_when_the_preparation_is_cancelled() -> None:
    class Slow(Scripts):
        def create_session(self, target: str = "", config: Any = None) -> ScriptedSession:
            session = super().create_session()
            session.run = lambda *args: asyncio.sleep(1000)  # type: ignore[method-assign]  # hangs
            return session

    program = Slow()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await manager(program).prepare_session(init_op="init")
    assert program.sessions[0].closed
