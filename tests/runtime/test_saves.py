"""The saves of a session: the saved state, for every kind of order."""

from __future__ import annotations

import asyncio
import math
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.checkpoint import CheckpointReader
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import SAVER
from asyncmon.system.snapshot import FixedArray
from asyncmon.testing import ScriptedCreator, ScriptedSession

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def program() -> FunctionProgram:
    found = FunctionProgram({"n": 0, "loss": 0.0})

    @found.step
    def train(state: Any) -> None:
        state["n"] += 1
        state["loss"] = abs(state["n"] - 20.0)

    @found.step(read_only=True)
    def evaluate(state: Any) -> float:
        return float(state["loss"])

    return found


def session(*hooks: Any) -> am.MonitoredSession:
    return am.MonitoredSession(am.ChiefSessionCreator(program=program()), hooks)


def steps(paths: list[str]) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in paths]


@pytest.mark.parametrize("concurrent", [False, True])
async def test_an_evaluated_state_reaches_every_saver(concurrent: bool, tmp_path: Path) -> None:
    evaluation = am.EvalHook({"loss": "evaluate"}, [None], every_steps=10, concurrent=concurrent)
    savers = [am.Saver(max_to_keep=1, keep_best=am.KeepBest("loss")) for _ in range(3)]
    hooks = [
        am.CheckpointSaverHook(tmp_path / str(i), save_steps=1000, metrics=evaluation, saver=saver)
        for i, saver in enumerate(savers)
    ]
    async with session(evaluation, *hooks) as sess:
        for _ in range(60):
            await sess.run("train")
            await asyncio.sleep(1)
    for saver in savers:
        assert steps(saver.best_checkpoints) == [20]
        assert steps(saver.last_checkpoints) == [20, 60]


async def test_a_detached_saver_gets_no_evaluated_state(tmp_path: Path) -> None:
    evaluation = am.EvalHook({"loss": "evaluate"}, [None], every_steps=10, concurrent=False)
    savers = [am.Saver(keep_best=am.KeepBest("loss")) for _ in range(2)]
    first, second = (
        am.CheckpointSaverHook(tmp_path / str(i), save_steps=1000, metrics=evaluation, saver=saver)
        for i, saver in enumerate(savers)
    )
    async with session(evaluation, first, second) as sess:
        for n in range(30):
            await sess.run("train")
            if n == 14:
                await sess.detach(first)
    assert steps(savers[0].last_checkpoints) == [0, 10, 15]
    assert steps(savers[1].last_checkpoints) == [0, 10, 20, 30]


class SavesByItself(am.SessionRunHook):
    """Saves in its ``end``, with a saver that no hook of ours uses."""

    priority = SAVER

    def __init__(self, prefix: Path, var_list: Any = None) -> None:
        self.prefix, self.saver = prefix, am.Saver(var_list)
        self.facts: list[Any] = []

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self.saves = coord.saves

    async def end(self, session: Any) -> None:
        self.facts.append(self.saves.unsaved())
        await self.saver.save(session, self.prefix, session.global_step)

    async def cleanup(self, error: BaseException | None) -> None:
        self.facts.append(self.saves.unsaved())
        await self.saver.close()


async def test_the_commit_of_any_saver_of_all_variables_counts(tmp_path: Path) -> None:
    hook = SavesByItself(tmp_path / "model.ckpt")
    async with session(hook) as sess:
        for _ in range(3):
            await sess.run("train")
    assert hook.facts == ["the state of step 3 is not saved: no hook saves it", None]


async def test_that_of_a_part_of_the_variables_does_not(tmp_path: Path) -> None:
    hook = SavesByItself(tmp_path / "model.ckpt", ["n"])
    async with session(hook) as sess:
        for _ in range(3):
            await sess.run("train")
    assert hook.facts == ["the state of step 3 is not saved: no hook saves it"] * 2


async def test_a_commit_of_a_replaced_session_saves_no_state_of_the_new_one(tmp_path: Path) -> None:
    facts: list[Any] = []

    class Saves(am.SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            self.saver, self.saves = am.Saver(), coord.saves
            facts.append(self.saves.step)

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            await self.saver.save(run_context.session, tmp_path / "model.ckpt", run_values.step)
            facts.append(self.saves.step)

        async def cleanup(self, error: BaseException | None) -> None:
            await self.saver.close()

    gone = ScriptedSession([None, am.errors.AbortedError("gone")])
    async with am.MonitoredSession(ScriptedCreator(gone, ScriptedSession()), [Saves()]) as sess:
        await sess.run("a")
        await sess.run("a")
    assert facts == [None, 1, None, 1]


@pytest.mark.parametrize("stops", [True, False])
async def test_error_of_a_listener_is_raised_though_the_session_stops(
    stops: bool, tmp_path: Path
) -> None:
    class Fails(am.CheckpointSaverListener):
        async def after_save(self, session: Any, global_step_value: int) -> None:
            if global_step_value == 1:
                if stops:
                    sess.request_stop()
                raise LookupError("no such metric")

    sess = session(am.CheckpointSaverHook(tmp_path, save_steps=1, listeners=[Fails()]))

    async def train() -> None:
        async with sess:
            await sess.run("train")
            await asyncio.sleep(1)

    with pytest.raises(LookupError, match="no such metric"):
        await train()


class Events:
    def add_session_log(self, session_log: Any, global_step: int | None) -> None:
        pass


async def test_expected_time_of_the_last_save_is_twice_the_longest(tmp_path: Path) -> None:
    """It may wait for a previous one. Before the first commit its time is unknown."""
    saver, took = am.Saver(), []
    async with session() as sess:
        assert sess.coord is not None
        orders = sess.coord.saves.orders_of(sess, Events())
        assert sess.coord.saves.secs() == math.inf
        for step in range(3):
            order = orders.order(saver, sess.raw_session(), str(tmp_path / "model.ckpt"), step)
            await orders.finish(order)
            took.append(order.handle.seconds or 0)
        assert sess.coord.saves.secs() == 2 * max(took) > 0
    await saver.close()


async def test_commit_of_a_replaced_session_is_no_saved_step_of_the_new_one(tmp_path: Path) -> None:
    saver = am.Saver()
    async with session() as sess:
        assert sess.coord is not None
        saves, raw = sess.coord.saves, sess.raw_session()
        orders = saves.orders_of(sess, Events())
        for of_old_session in (True, False):
            order = orders.order(saver, raw, str(tmp_path / "model.ckpt"), 0)
            saves.raw = ScriptedSession() if of_old_session else raw
            await orders.finish(order)
            saves.raw = raw
            assert await orders.is_saved(0) == (not of_old_session)
    await saver.close()


async def test_older_commit_that_is_reported_later_is_not_the_newest(tmp_path: Path) -> None:
    saver, prefix = am.Saver(), str(tmp_path / "model.ckpt")
    async with session() as sess:
        assert sess.coord is not None
        orders = sess.coord.saves.orders_of(sess, Events())
        older = orders.order(saver, sess.raw_session(), prefix, 0)
        await older.handle
        await sess.run("train")
        await orders.finish(orders.order(saver, sess.raw_session(), prefix, 1))
        await orders.finish(older)
        assert await orders.is_saved(1)
    await saver.close()


class Counts(am.SessionRunHook):
    """Has a state that changes without a step."""

    count = 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


@pytest.mark.parametrize("changes", [False, True])
async def test_the_last_step_is_saved_again_if_a_stateful_object_has_changed_since(
    changes: bool, tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level("INFO", "asyncmon")
    hook = Counts()
    async with session(hook, am.CheckpointSaverHook(tmp_path, save_steps=5)) as sess:
        for _ in range(5):
            await sess.run("train")
        await sess.save()
        hook.count += changes
    said = [record.getMessage() for record in caplog.records]
    written = sum(line.startswith("Saving checkpoints for 5 ") for line in said)
    assert written == 1 + changes
    async with await CheckpointReader.open(str(tmp_path / "model.ckpt-5")) as reader:
        assert (await reader.states())["hooks/Counts"] == {"count": int(changes)}


async def test_a_restored_session_in_which_nothing_changes_saves_nothing(
    tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level("INFO", "asyncmon")
    for count in (1, 0):
        creator = am.ChiefSessionCreator(program=program(), checkpoint_dir=tmp_path)
        hooks = [Counts(), am.CheckpointSaverHook(tmp_path, save_steps=5)]
        async with am.MonitoredSession(creator, hooks) as sess:
            async for _ in sess.epochs(range(2), count=1):
                pass
            for _ in range(count):
                await sess.run("train")
        said = [record.getMessage() for record in caplog.records]
        caplog.clear()
        assert sum(line.startswith("Saving checkpoints for") for line in said) == 2 * count


async def test_the_end_of_the_data_is_no_change_that_is_saved_again(
    tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level("INFO", "asyncmon")
    async with session(am.CheckpointSaverHook(tmp_path, save_steps=1, timeout_secs=100)) as sess:
        async for _ in sess.iterate(am.data.from_iterable(range(3))):
            await sess.run("train")
    said = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("Saving checkpoints for") for line in said) == 4


async def test_large_states_are_read_and_hashed_in_threads_only(tmp_path: Path) -> None:
    loop_thread, threads = threading.get_ident(), set[int]()

    class Large(am.SessionRunHook):
        array = np.zeros(1000)

        def read(self) -> Any:
            threads.add(threading.get_ident())
            return self.array

        def state_dict(self) -> dict[str, Any]:
            part = uuid.uuid4().hex
            return {"array": FixedArray(part, self.array.dtype, self.array.shape, self.read)}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.array = state["array"]

    for _ in range(2):  # the second one restores, and compares the states at its end
        creator = am.ChiefSessionCreator(program=program(), checkpoint_dir=tmp_path)
        hooks = [Large(), am.CheckpointSaverHook(tmp_path, save_steps=5)]
        async with am.MonitoredSession(creator, hooks) as sess:
            for _ in range(5):
                await sess.run("train")
    assert threads
    assert loop_thread not in threads
