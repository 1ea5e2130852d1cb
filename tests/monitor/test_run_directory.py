"""Runs read from their files: while these are written, begun again, damaged or replaced."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.monitor.log_directory import LogDirectory
from asyncmon.monitor.run import ActionError
from asyncmon.monitor.run_directory import SILENT_SECS, RunDirectory
from asyncmon.programs import FunctionProgram
from asyncmon.summary import FileWriter, Summary
from asyncmon.system import clock

pytestmark = pytest.mark.asyncio


def steps(run: RunDirectory, tag: str = "loss") -> list[int]:
    run.scalars.publish(1)
    return [int(step) for step in run.scalars.points([tag]).get(tag, [[]])[0]]


async def write(folder: Path, *numbers: int, start: int | None = None, tag: str = "loss") -> None:
    async with FileWriter(folder) as writer:
        if start is not None:
            writer.start(start)
        for number in numbers:
            writer.add_scalar(tag, number, number)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


async def save(folder: Path, *numbers: int) -> None:
    step = am.get_or_create_global_step()
    weights = am.graph.get_variable("weights", [100], initializer=am.graph.zeros_initializer())
    saver = am.Saver([step, weights])
    async with am.Session() as session:
        await session.run(am.graph.global_variables_initializer())
        for number in numbers:
            await step.load(number, session)
            await saver.save(session, str(folder / "model.ckpt"), global_step=number)


async def test_a_file_is_read_from_where_the_last_look_ended(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "later")
    await run.refresh()
    assert run.status().state == "unknown"
    async with FileWriter(tmp_path / "later") as writer:
        writer.start(0)
        for number in range(5):
            writer.add_scalar("loss", 0.5, number)
            await writer.flush()
            await run.refresh()
            assert steps(run) == list(range(number + 1))
        assert (run.status().state, run.status().step) == ("running", 4)
    await run.refresh()
    assert (run.status().state, run.status().step) == ("stopped", 4)
    assert run.name == "later"


async def test_half_a_record_is_waited_for(tmp_path: Path) -> None:
    await write(tmp_path / "whole", 1, 2, 3)
    data = only_file(tmp_path / "whole").read_bytes()
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "events.out.tfevents.1.x"
    run = RunDirectory(tmp_path / "run")
    for end in range(0, len(data) + 1, 7):
        path.write_bytes(data[:end])
        await run.refresh()
    path.write_bytes(data)
    await run.refresh()
    assert steps(run) == [1, 2, 3]


async def test_steps_that_are_done_again_replace_the_lost_ones(tmp_path: Path) -> None:
    await write(tmp_path, 1, 2, 3, 4, 5, start=0)
    await write(tmp_path, 5, 6, start=4)  # after four steps
    run = RunDirectory(tmp_path)
    await run.refresh()
    assert steps(run) == [1, 2, 3, 4, 5, 6]
    assert run.scalars.points(["loss"])["loss"].wall_times[4] > run.status().started - 1  # type: ignore[operator]  # it has started


async def test_a_shared_column_table_keeps_the_runs_apart(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "train")
    evaluation = RunDirectory(tmp_path / "eval", scalars=run.scalars, prefix="eval/")
    await write(tmp_path / "train", 1, 2, 3, start=0)
    await run.refresh()
    await write(tmp_path / "eval", 2, start=1)
    await evaluation.refresh()
    assert steps(run) == [1, 2, 3]
    assert steps(run, "eval/loss") == [2]


async def test_a_damaged_file_is_read_up_to_the_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await write(tmp_path, 1, 2, 3)
    path = only_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    run = RunDirectory(tmp_path)
    for _ in range(3):
        await run.refresh()
    assert steps(run) == [1, 2]
    assert caplog.text.count("reads") == 1
    await write(tmp_path, 7)  # other files continue
    await run.refresh()
    assert steps(run)[-1] == 7


async def test_a_file_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    await write(tmp_path, *range(20))
    run = RunDirectory(tmp_path)
    await run.refresh()
    path = only_file(tmp_path)
    await write(tmp_path / "other", 5)
    os.replace(only_file(tmp_path / "other"), path)
    await run.refresh()
    assert steps(run) == [5]


async def test_a_run_that_is_deleted_and_begun_again_shows_nothing_of_before(tmp_path: Path) -> None:
    await write(tmp_path, 1, 2, 3)
    await write(tmp_path, 1, 2, tag="old")
    run = RunDirectory(tmp_path)
    await run.refresh()
    shutil.rmtree(tmp_path)
    await run.refresh()
    assert (steps(run), run.status().step) == ([], None)
    await write(tmp_path, 5)
    await run.refresh()
    assert (steps(run), steps(run, "old"), run.status().step) == ([5], [], 5)


async def test_a_silent_session_may_be_dead(tmp_path: Path) -> None:
    async with FileWriter(tmp_path) as writer:
        writer.start(0)
        summary = Summary(value=[Summary.Value(tag="loss", simple_value=1.0)])
        event = am.summary.Event(wall_time=clock.wall() - SILENT_SECS - 1, step=1, summary=summary)
        writer.add_event(event)
        await writer.flush()
        run = RunDirectory(tmp_path)
        await run.refresh()
        assert run.status().state == "silent"


async def recorded(directory: Path, error: Exception | None = None) -> None:
    program = FunctionProgram({"n": 0})

    @program.step
    def train(state: Any) -> None:
        state["n"] += 1

    @program.step
    def count(state: Any) -> float:
        return float(state["n"])

    evaluation = am.EvalHook({"n": "count"}, every_steps=1, concurrent=False)
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, hooks=[evaluation]
    ) as sess:
        await sess.run("train")
        run = RunDirectory(directory)
        await run.refresh()
        assert (run.status().state, run.status().outcome) == ("running", None)
        sess.pause()
        await am.run_record(directory)  # it is written
        await run.refresh()
        assert run.status().paused
        sess.resume()
        if error is not None:
            raise error


async def test_run_that_has_ended_is_shown_by_its_record(tmp_path: Path) -> None:
    """Its state, its error and its metrics; one whose process died is lost."""
    await recorded(tmp_path / "done")
    with pytest.raises(ValueError, match="bad data"):
        await recorded(tmp_path / "failed", ValueError("bad data"))
    shutil.copytree(tmp_path / "done", tmp_path / "lost")
    record = json.loads((tmp_path / "lost" / "run.json").read_text())
    died = {**record, "state": "running", "ended": None, "cause": None, "text": None}
    (tmp_path / "lost" / "run.json").write_text(json.dumps(died))
    rows = {}
    for name in ("done", "failed", "lost"):
        run = RunDirectory(tmp_path / name)
        await run.refresh()
        row = rows[name] = run.status()
        assert (row.state, row.step, row.metrics) == ("stopped", 1, {"n": 1.0})
    assert {name: row.outcome for name, row in rows.items()} == {
        "done": "completed", "failed": "failed", "lost": "lost",
    }  # fmt: skip
    assert rows["done"].stop_reason == "the body ended"
    assert rows["failed"].last_error == "ValueError: bad data"


async def test_damaged_record_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run.json").write_bytes(b'{"format":"asyncmon.run"')
    run = RunDirectory(tmp_path)
    for _ in range(3):
        await run.refresh()
    assert run.status().state == "unknown"
    assert ["not readable" in line for line in caplog.messages] == [True]


async def test_scalars_of_tensorflow_2_and_other_kinds(tmp_path: Path) -> None:
    from asyncmon.summary.events import PluginData, SummaryMetadata
    from asyncmon.summary.values import tensor_summary

    async with FileWriter(tmp_path) as writer:
        metadata = SummaryMetadata(plugin_data=PluginData(plugin_name="scalars"))
        writer.add_summary(tensor_summary("loss", np.array(0.25, np.float32), metadata), 3)
        writer.add_histogram("weights", np.arange(5.0), 3)
        writer.add_text("note", "hello", 3)
    run = RunDirectory(tmp_path)
    await run.refresh()
    run.scalars.publish(1)
    assert [(point.tag, point.value) for point in run.scalars.tags()] == [("loss", 0.25)]


async def test_checkpoints_are_listed_verified_and_watched(tmp_path: Path) -> None:
    await save(tmp_path, 1, 2)
    run = RunDirectory(tmp_path)
    rows = (await run.details()).checkpoints
    assert [(row.step, row.kept, row.verified) for row in rows] == [(2, True, None), (1, True, None)]
    assert rows[0].bytes is not None
    assert rows[0].bytes >= 400
    assert rows[0].path == str(tmp_path / "model.ckpt-2")
    assert [row.verified for row in await run.verify()] == [True, True]
    assert [row.verified for row in (await run.details()).checkpoints] == [True, True]
    damaged = tmp_path / "model.ckpt-2.safetensors"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    found = await run.verify()
    assert [(row.step, row.verified) for row in found] == [(2, False), (1, True)]
    assert found[0].problem is not None
    assert "checksum" in found[0].problem
    damaged.unlink()
    (tmp_path / "model.ckpt-1.json").write_text("{}")
    (tmp_path / "settings.json").write_text("{}")
    run = RunDirectory(tmp_path)
    problems = {row.path[-1]: row.problem for row in (await run.details()).checkpoints}
    assert problems.keys() == {"1", "2"}
    assert problems["2"] == "model.ckpt-2.safetensors is missing"


async def test_each_checkpoint_is_verified_once_until_it_changes(tmp_path: Path) -> None:
    await save(tmp_path, 1, 2)
    data = tmp_path / "model.ckpt-1.safetensors"
    read: list[str] | None = []

    def note(event: str, args: tuple[Any, ...]) -> None:
        if read is not None and event == "open" and str(args[0]).endswith(".safetensors"):
            read.append(os.path.basename(args[0]))

    sys.addaudithook(note)  # cannot be removed
    try:
        run = RunDirectory(tmp_path)
        found = await asyncio.gather(run.verify(), run.verify())
        assert [[row.verified for row in rows] for rows in found] == [[True, True]] * 2
        await run.verify()
        assert sorted(read) == [data.name, "model.ckpt-2.safetensors"]
        data.write_bytes(data.read_bytes()[:-1])
        read.clear()
        rows = (await run.details()).checkpoints
        assert {row.step: row.verified for row in rows} == {2: True, 1: None}
        assert {row.step: row.verified for row in await run.verify()} == {2: True, 1: False}
        assert read == [data.name]
    finally:
        read = None


async def test_a_manifest_that_cannot_be_read_is_shown_as_a_problem(tmp_path: Path) -> None:
    await save(tmp_path, 1)
    (tmp_path / "model.ckpt-1.json").unlink()
    (tmp_path / "model.ckpt-1.json").mkdir()
    (row,) = (await RunDirectory(tmp_path).details()).checkpoints
    assert (row.verified, "Is a directory" in str(row.problem)) == (False, True)


async def test_a_folder_that_cannot_be_listed_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = LogDirectory(tmp_path / ("a" * 300))
    assert [await directory.scan(), await directory.scan()] == [[], []]
    assert [record.getMessage()[-18:] for record in caplog.records] == ["File name too long"]


async def test_a_directory_cannot_act(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(ActionError, match="not possible to save here"):
        await run.act("save", None)
    with pytest.raises(ActionError, match="not possible to detach a hook here"):
        await run.detach("x")


async def test_every_folder_with_files_is_a_run(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    directory = LogDirectory(root)
    assert await directory.scan() == []
    await write(root, 1)
    await write(root / "b" / "c", 1)
    await write(root / ".hidden", 1)
    await save(root / "a", 1)
    (root / "empty").mkdir()
    first = await directory.scan()
    assert [run.name for run in first] == ["runs", "a", "b/c"]
    again = await directory.scan()
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert [run.name for run in await LogDirectory(root, "mine").scan()] == [
        "mine",
        "mine/a",
        "mine/b/c",
    ]


async def test_of_too_many_runs_the_newest_are_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(205):
        (tmp_path / f"{number:03}").mkdir()
        (tmp_path / f"{number:03}" / "checkpoint").touch()
        os.utime(tmp_path / f"{number:03}" / "checkpoint", (number, number))
    directory = LogDirectory(tmp_path)
    for _ in range(2):
        runs = await directory.scan()
        assert [run.name for run in runs] == [f"{number:03}" for number in range(5, 205)]
    assert caplog.text.count("the newest 200 are shown") == 1


async def test_other_files_are_no_event_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await write(tmp_path / "run", 1)
    for folder in ("run", "notes"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "old-tfevents.zip").write_bytes(b"PK")
    (run,) = await LogDirectory(tmp_path).scan()
    await run.refresh()
    assert (run.name, steps(run)) == ("run", [1])
    assert not caplog.messages
