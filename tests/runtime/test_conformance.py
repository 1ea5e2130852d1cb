"""Lines of the original's behaviour that no other test covers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver
from asyncmon.errors import AbortedError, OutOfRangeError
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.basic import identity
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.variables.global_step import create_global_step
from asyncmon.graph.variables.variable import Variable
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.runtime import (
    ChiefSessionCreator,
    Coordinator,
    MonitoredSession,
    Scaffold,
    SessionRunArgs,
    SessionRunHook,
    SessionRunValues,
    SingularMonitoredSession,
    as_program,
    current_program,
)
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession
from asyncmon.training import MonitoredTrainingSession
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_arguments_and_values_are_tuples_ra_4() -> None:
    args = SessionRunArgs("loss")
    assert args == ("loss", None, None)
    fetches, feed_dict, options = SessionRunArgs("loss", {"x": 1}, options=None)
    assert (fetches, feed_dict, options) == ("loss", {"x": 1}, None)
    with pytest.raises(TypeError):
        SessionRunArgs()  # type: ignore[call-arg]  # refused
    with pytest.raises(AttributeError):
        args.fetches = "other"  # refused
    assert SessionRunValues._fields[:3] == ("results", "options", "run_metadata")


async def test_values_unpack_as_in_the_original_ra_4() -> None:
    class Unpacks(SessionRunHook):
        async def before_run(self, run_context: Any) -> SessionRunArgs:
            return SessionRunArgs("loss")

        async def after_run(self, run_context: Any, run_values: SessionRunValues) -> None:
            self.results, self.options, self.run_metadata = run_values[:3]

    hook = Unpacks()
    async with MonitoredSession(ScriptedCreator(ScriptedSession([0.5])), [hook]) as sess:
        await sess.run("a")
    assert hook.results == 0.5


async def test_a_ready_op_of_ones_own_sc_9() -> None:
    with Graph().as_default() as graph:
        create_global_step()
        ready = identity(np.array(["the weather"], object))
    scaffold = Scaffold(ready_op=ready)
    with pytest.raises(RuntimeError, match="Variables not initialized: the weather"):
        await MonitoredSession(ChiefSessionCreator(scaffold, program=graph)).start()


async def test_the_default_creator_is_a_chief_of_the_default_graph_cr_7() -> None:
    with Graph().as_default() as graph:
        train = assign_add(create_global_step(), 1)
        async with MonitoredSession() as sess:
            await sess.run(train)
            assert sess.graph is graph
            assert sess.global_step == 1


async def test_a_worker_waits_for_two_hours_cr_8() -> None:
    parameters = inspect.signature(MonitoredTrainingSession).parameters
    assert parameters["max_wait_secs"].default == 7200


async def test_run_takes_what_the_original_takes_ms_22(world: World) -> None:
    async with world.session() as sess:
        parameters = list(inspect.signature(sess.run).parameters)
        assert parameters == ["fetches", "feed_dict", "options", "run_metadata", "hooks"]
        assert await sess.run(world.train, feed_dict=world.feed(2.0)) == 2.0
        assert await sess.run(world.train, world.feed(2.0), None, None) == 4.0


async def test_begin_sees_the_program_of_the_session_ms_23(world: World) -> None:
    class Looks(SessionRunHook):
        async def begin(self) -> None:
            mine = as_program(world.program)
            assert getattr(current_program(), "graph", current_program()) is getattr(
                mine, "graph", mine
            )

    async with world.session([Looks()]):
        pass


async def test_a_singular_session_restores_and_adds_no_hooks_ss_1(world: World, tmp_path: Path) -> None:
    saver = CheckpointSaverHook(tmp_path, save_steps=10, saver=Saver(), save_graph_def=False)
    async with world.session([saver]) as sess:
        await sess.run(world.train, world.feed(3.0))
    async with SingularMonitoredSession(checkpoint_dir=tmp_path, program=world.program) as again:
        assert again.global_step == 1
        assert again.statistics().hooks == ()
        assert await again.run(world.weight) == 3.0
    names = list(inspect.signature(SingularMonitoredSession).parameters)
    assert names[:7] == [
        "hooks", "scaffold", "master", "config", "checkpoint_dir", "stop_grace_period_secs",
        "checkpoint_filename_with_path",
    ]  # fmt: skip


@pytest.mark.parametrize("error", [OutOfRangeError("end"), StopIteration(), StopAsyncIteration()])
async def test_the_end_of_the_data_ends_a_singular_session_ss_5(world: World, error: Exception) -> None:
    hook = RecordingHook()
    async with world.singular([hook]):
        raise error
    assert hook.moments()[-2:] == ["end", "cleanup"]  # type: ignore[unreachable]  # the block swallows


async def test_other_errors_leave_it_ss_5(world: World) -> None:
    hook = RecordingHook()
    with pytest.raises(ValueError, match="boom"):
        async with world.singular([hook]):
            raise ValueError("boom")
    assert "end" not in hook.moments()


async def test_the_default_hooks_use_the_scaffolds_saver_mt_23(tmp_path: Path) -> None:
    with Graph().as_default() as graph:
        train = assign_add(create_global_step(), 1)
        Variable(np.float32(1), name="unsaved")
        saver = Saver(["global_step"])
        scaffold = Scaffold(saver=saver)
    async with MonitoredTrainingSession(
        checkpoint_dir=tmp_path, scaffold=scaffold, program=graph, log_step_count_steps=None
    ) as sess:
        await sess.run(train)
    assert [path.rpartition("-")[2] for path in saver.last_checkpoints] == ["0", "1"]


async def test_a_closed_session_should_stop_and_closes_again_wr_13_ax_14(world: World) -> None:
    sess = world.session()
    assert sess.should_stop() is True
    await sess.start()
    assert sess.should_stop() is False
    await sess.close()
    await sess.close()
    assert sess.should_stop() is True


async def test_a_stop_wakes_all_waiters_and_should_stop_never_raises_ax_14(world: World) -> None:
    sess = await world.session().start()
    waiting = [asyncio.create_task(sess.coord.wait_for_stop()) for _ in range(5)]
    await asyncio.sleep(0)
    sess.coord.request_stop(ValueError("beside"))
    assert sess.should_stop() is True
    assert await asyncio.gather(*waiting) == [True] * 5
    assert sess.should_stop() is True
    with pytest.raises(ValueError, match="beside"):
        await sess.close()


async def test_the_root_cause_of_a_failed_run_is_raised_wr_17() -> None:
    async def lose(sess: Any) -> None:
        sess.coord.request_stop(AbortedError("the connection is lost"))
        raise ValueError("half an answer")

    raw = ScriptedSession([lambda: lose(sess)])
    sess = MonitoredSession(ScriptedCreator(raw, ScriptedSession([7])))
    async with sess:
        assert await sess.run("a") == 7  # recovered from the one, which explains the other


async def test_a_step_function_after_the_end_sf_10(world: World) -> None:
    async with world.session() as sess:
        pass
    with pytest.raises(RuntimeError, match="The session is closed"):
        await sess.run_step_fn(lambda step_context: 1)


async def test_the_error_is_raised_each_time_co_13_co_18() -> None:
    coord = Coordinator()
    coord.raise_requested_exception()
    coord.request_stop(ValueError("first"))
    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            coord.raise_requested_exception()
        with pytest.raises(ValueError, match="first"):
            await coord.join()
    assert coord.joined


async def test_stops_from_many_threads_at_once_co_19() -> None:
    coord = Coordinator()
    await asyncio.gather(
        *(asyncio.to_thread(coord.request_stop, None, f"thread {number}") for number in range(20))
    )
    assert coord.should_stop()
    assert (coord.stop_reason or "").startswith("thread ")
    await coord.join()


async def test_local_initialisation_is_logged_sm_13(caplog: pytest.LogCaptureFixture) -> None:
    with Graph().as_default() as graph:
        create_global_step()
    with caplog.at_level(logging.INFO, "asyncmon"):
        async with MonitoredSession(ChiefSessionCreator(program=graph)):
            pass
    lines = [record.message for record in caplog.records if "local_init_op" in record.message]
    assert lines == ["Running local_init_op.", "Done running local_init_op."]
