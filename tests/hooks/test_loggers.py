"""Values that sessions, hooks and step functions log, and the loggers that get them."""

from __future__ import annotations

import asyncio
import csv
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.monitor.live_run import LiveRun
from asyncmon.summary import Event, find_event_files, read_scalars, summary_iterator
from asyncmon.summary.logged import LoggedValue
from asyncmon.testing import ScriptedCreator, ScriptedSession, fail_at_step

pytestmark = pytest.mark.asyncio


def program() -> am.programs.FunctionProgram:
    found = am.programs.FunctionProgram({"weight": 0.0})

    @found.step
    def train(state: Any) -> dict[str, float]:
        state["weight"] += 1.0
        return {"loss": 10.0 / state["weight"]}

    return found


class Kept:
    """A logger that keeps its records."""

    blocking = False

    def __init__(self) -> None:
        self.values: list[tuple[int | None, dict[str, LoggedValue]]] = []
        self.config: dict[str, Any] = {}
        self.closed: list[BaseException | None] = []

    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        self.values.append((step, dict(values)))

    def write_config(self, config: Mapping[str, Any]) -> None:
        self.config.update(config)

    def flush(self) -> None: ...

    def close(self, error: BaseException | None = None) -> None:
        self.closed.append(error)


class Slow(Kept):
    """A logger whose first write waits until the test allows it."""

    blocking = True

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.proceed = threading.Event(), threading.Event()

    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        self.entered.set()
        self.proceed.wait()
        super().write(step, wall_time, values)


class Failing(Slow):
    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        raise ConnectionError("the server is gone")

    def close(self, error: BaseException | None = None) -> None:
        raise ConnectionError("the server is gone")


def events(directory: Path) -> list[Event]:
    (paths,) = find_event_files(directory).values()
    return [event for path in paths for event in summary_iterator(path)]


class LogStep(am.SessionRunHook):
    """Log in each moment that has a way to."""

    async def after_create_session(self, session: Any, coord: am.Coordinator) -> None:
        self._coord = coord
        coord.log("created", 1.0)

    async def before_run(self, run_context: am.SessionRunContext) -> None:
        run_context.log("before", 1.0)

    async def after_run(
        self, run_context: am.SessionRunContext, run_values: am.SessionRunValues
    ) -> None:
        run_context.log({"after": 1.0})

    async def end(self, session: Any) -> None:
        self._coord.log("end", 1.0)


async def test_values_of_the_session_its_hooks_and_step_functions_have_the_current_step() -> None:
    kept = Kept()

    async def step(context: am.StepContext) -> None:
        context.log("function", 1.0)
        await context.run_with_hooks("train")
        context.log("function", 2.0)

    async with am.MonitoredTrainingSession(
        program=program(), hooks=[LogStep()], loggers=[kept]
    ) as sess:
        await sess.run("train")
        await sess.run_step_fn(step)
        sess.log("mine", 1.0)
        sess.log({"mine": 2.0}, step=10)
    steps = [(step, *values) for step, values in kept.values]
    assert steps == [
        (0, "created"), (0, "before"), (1, "after"), (1, "function"), (1, "before"), (2, "after"),
        (2, "function"), (2, "mine"), (10, "mine"), (2, "end"),
    ]  # fmt: skip
    assert kept.closed == [None]


async def test_each_kind_reaches_event_files_json_lines_and_csv(tmp_path: Path) -> None:
    config = {"rate": 0.1, "layers": 2, "name": "a"}
    async with am.MonitoredTrainingSession(
        program=program(),
        summary_dir=tmp_path / "run",
        log_step_count_steps=None,
        loggers=[am.CsvLogger(tmp_path / "v.csv"), am.JsonlWriter(tmp_path / "v.jsonl")],
    ) as sess:
        sess.log_config(config)
        sess.log({"loss": 0.5, "note": "hello", "samples": np.arange(4.0)})
        sess.log("digit", am.summary.Image(np.zeros((4, 4))))
    values = {value.tag: value for event in events(tmp_path / "run") for value in event.summary.value}
    assert values["loss"].simple_value == 0.5
    assert values["note"].tensor.string_val == [b"hello"]
    assert values["samples"].histo.num == 4
    assert values["digit"].image.width == 4
    assert values["_hparams_/session_start_info"].metadata.plugin_data.plugin_name == "hparams"
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert lines[1]["config"] == config
    assert {key: lines[2][key] for key in ("step", "loss", "note", "samples")} == {
        "step": 0,
        "loss": 0.5,
        "note": "hello",
        "samples": {"num": 4.0, "min": 0.0, "max": 3.0, "mean": 1.5},
    }
    with (tmp_path / "v.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["tag"]: row["value"] for row in rows} == {
        "loss": "0.5", "note": "hello", "samples/min": "0.0", "samples/max": "3.0",
        "samples/mean": "1.5",
    }  # fmt: skip
    assert (tmp_path / "v.config.csv").read_text() == "name,value\nrate,0.1\nlayers,2\nname,a\n"


async def test_the_monitor_shows_logged_values_and_the_configuration_of_a_live_session(
    tmp_path: Path,
) -> None:
    async with am.MonitoredTrainingSession(program=program(), checkpoint_dir=tmp_path) as sess:
        run = LiveRun("digits", sess)
        await run.refresh()
        sess.log_config({"rate": 0.1})
        await sess.run("train")
        sess.log("mine", 0.25)
        await run.refresh()
        assert run.config == {"rate": 0.1}
        run.scalars.publish(1)
        assert [point.tag for point in run.scalars.tags() if point.tag == "mine"] == ["mine"]
        await run.close()


async def test_loggers_get_the_summaries_rates_and_evaluations_of_hooks(tmp_path: Path) -> None:
    kept = Kept()
    made = program()

    @made.step(read_only=True)
    def accuracy(state: Any) -> dict[str, float]:
        return {"accuracy": state["weight"]}

    hooks = [
        am.SummarySaverHook(1, output_dir=tmp_path, summary_op={"loss": "loss"}),
        am.StepCounterHook(1, summary_writer=am.JsonlWriter(tmp_path / "own.jsonl")),
        am.EvalHook("accuracy", every_steps=1, concurrent=False),
    ]
    async with am.MonitoredTrainingSession(
        program=made, hooks=hooks, summary_dir=tmp_path, log_step_count_steps=None, loggers=[kept]
    ) as sess:
        await sess.run("train")
        await sess.run("train")
    values = [one for one in kept.values if "global_step/sec" not in one[1]]
    assert values == [
        (1, {"loss": 10.0}), (1, {"eval/accuracy": 1.0}), (2, {"loss": 5.0}),
        (2, {"eval/accuracy": 2.0}),
    ]  # fmt: skip
    assert len(kept.values) == 5  # the rate of the second step, although its hook has a writer
    (paths,) = find_event_files(tmp_path).values()
    scalars = read_scalars(paths)
    assert [point.value for point in scalars["loss"]] == [10.0, 5.0]  # once, by the hook
    assert [point.value for point in scalars["eval/accuracy"]] == [1.0, 2.0]


async def test_each_of_several_loggers_hooks_gets_all_values(tmp_path: Path) -> None:
    """A second one takes nothing away from the event file, and one that is detached only leaves."""
    first, second, attached = Kept(), Kept(), Kept()
    made = program()

    @made.step(read_only=True)
    def accuracy(state: Any) -> dict[str, float]:
        return {"accuracy": state["weight"]}

    hooks = [am.EvalHook("accuracy", every_steps=1, concurrent=False), am.LoggersHook([second])]
    async with am.MonitoredTrainingSession(
        program=made, hooks=hooks, summary_dir=tmp_path, log_step_count_steps=None, loggers=[first]
    ) as sess:
        await sess.run("train")
        async with await sess.attach(am.LoggersHook([attached])):
            await sess.run("train")
        await sess.run("train")
    expected = [(step, {"eval/accuracy": float(step)}) for step in (1, 2, 3)]
    assert first.values == second.values == expected
    assert attached.values == expected[1:2]
    (paths,) = find_event_files(tmp_path).values()
    assert [point.value for point in read_scalars(paths)["eval/accuracy"]] == [1.0, 2.0, 3.0]


async def test_values_of_an_attached_hook_reach_the_loggers() -> None:
    kept = Kept()
    made = program()

    @made.step(read_only=True)
    def accuracy(state: Any) -> dict[str, float]:
        return {"accuracy": state["weight"]}

    creator = am.ChiefSessionCreator(program=made)
    async with am.MonitoredSession(creator, [am.LoggersHook([kept])]) as sess:
        async with await sess.attach(am.EvalHook("accuracy", every_steps=1, concurrent=False)):
            await sess.run("train")
        await sess.run("train")
    assert kept.values == [(1, {"eval/accuracy": 1.0})]


async def test_values_of_a_hook_with_its_own_directory_reach_all_loggers_once(tmp_path: Path) -> None:
    kept = Kept()
    made = program()

    @made.step(read_only=True)
    def accuracy(state: Any) -> dict[str, float]:
        return {"accuracy": state["weight"]}

    own = am.EvalHook("accuracy", every_steps=1, concurrent=False, output_dir=tmp_path / "run" / "eval")
    given = am.summary.FileWriter(tmp_path / "given")
    summaries = am.SummarySaverHook(1, summary_writer=given, summary_op={"loss": "loss"})
    async with am.MonitoredTrainingSession(
        program=made, hooks=[own, summaries], summary_dir=tmp_path / "run",
        log_step_count_steps=None, loggers=[kept],
    ) as sess:  # fmt: skip
        await sess.run("train")
    await given.close()
    assert kept.values == [(1, {"eval/accuracy": 1.0}), (1, {"loss": 10.0})]
    found = {name: sorted(read_scalars(paths)) for name, paths in find_event_files(tmp_path).items()}
    assert found == {
        "run": ["eval/accuracy", "loss"], "run/eval": ["eval/accuracy"], "given": ["loss"],
    }  # fmt: skip


async def test_a_writer_that_a_hook_and_the_session_share_gets_each_value_once(tmp_path: Path) -> None:
    lines = am.JsonlWriter(tmp_path / "v.jsonl")
    summaries = am.SummarySaverHook(1, summary_writer=lines, summary_op={"loss": "loss"})
    async with am.MonitoredTrainingSession(
        program=program(), hooks=[summaries], log_step_count_steps=None, loggers=[lines]
    ) as sess:
        await sess.run("train")
    found = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in found if "loss" in line] == [10.0]


async def test_a_slow_logger_drops_the_oldest_records_and_delays_no_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Slow()
    hook = am.LoggersHook([slow], most_pending=3)
    async with am.MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        sess.log("first", 0.0)
        await asyncio.to_thread(slow.entered.wait)
        for number in range(8):
            await sess.run("train")
            sess.log("x", number)
        assert hook.dropped == {"Slow": 5}
        slow.proceed.set()
    assert [values for _, values in slow.values] == [
        {"first": 0.0},
        *({"x": n} for n in (5.0, 6.0, 7.0)),
    ]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "Slow drops values that are logged: BufferError: it is slow, and 3 records are pending. The "
        "training continues; this is logged once.",
        "Slow dropped 5 records.",
    ]
    assert slow.closed == [None]


async def test_a_failing_logger_is_logged_once_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    hook = am.LoggersHook([Failing(), kept])
    async with am.MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        for _ in range(3):
            await sess.run("train")
            sess.log("x", 1.0)
    assert len(kept.values) == 3
    assert hook.dropped == {"Failing": 4, "Kept": 0}
    assert sess.statistics().hooks[0].failures == 4
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "Failing drops values that are logged: ConnectionError: the server is gone. The training "
        "continues; this is logged once.",
        "Failing dropped 4 records.",
    ]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_a_logger_whose_client_exits_gets_the_later_values_and_ends_nothing(
    error: type[BaseException],
) -> None:
    class Exiting(Kept):
        blocking = True

        def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
            super().write(step, wall_time, values)
            raise error

        def close(self, reason: BaseException | None = None) -> None:
            super().close(reason)
            raise error

    kept = Exiting()
    hook = am.LoggersHook([kept])
    async with am.MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        sess.log("x", 1.0)
        sess.log("x", 2.0)
    assert [values for _, values in kept.values] == [{"x": 1.0}, {"x": 2.0}]
    assert kept.closed == [None]
    assert hook.dropped == {"Exiting": 3}


async def test_a_logger_that_hangs_delays_the_end_by_its_time_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Slow()
    hook = am.LoggersHook([slow], timeout_secs=0.01)
    async with am.MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        sess.log("x", 1.0)
        sess.log("x", 2.0)
    slow.proceed.set()
    assert "Slow did not write all records within 0.01 s; up to 2 are lost." in caplog.messages


async def test_logging_is_safe_in_threads_and_refused_outside_of_a_session() -> None:
    kept = Kept()
    sess = am.MonitoredTrainingSession(program=program(), loggers=[kept])
    with pytest.raises(RuntimeError, match="The session is not open yet"):
        sess.log("x", 1.0)
    async with sess:
        await asyncio.gather(*(asyncio.to_thread(sess.log, "x", n) for n in range(20)))
    assert sorted(values["x"] for _, values in kept.values) == list(range(20))  # type: ignore[type-var]  # numbers
    with pytest.raises(RuntimeError, match="The session is closed"):
        sess.log_config({"rate": 0.1})


async def test_a_session_without_loggers_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    async with am.MonitoredTrainingSession(program=program()) as sess:
        sess.log("x", 1.0)
        sess.log("x", 1.0)
    (warning,) = (message for message in caplog.messages if "logger" in message)
    assert warning.startswith("Values are logged, and the session has no logger: pass loggers=[...]")


async def test_odd_values_end_no_training_and_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    async with am.MonitoredTrainingSession(program=program(), loggers=[kept]) as sess:
        for _ in range(2):
            sess.log({"loss": 1.0, "odd": object()})
            sess.log("late", 1.0, step=2**63)
        sess.log_config({"rate": 0.1, "layers": [1, 2], "seed": None})
    assert kept.values == [(0, {"loss": 1.0})] * 2
    assert kept.config == {"rate": 0.1, "layers": "[1, 2]", "seed": "None"}
    warnings = [line for line in caplog.messages if line.startswith("The logged value")]
    assert [line.partition("is left out")[0] for line in warnings] == [
        "The logged value 'odd' ", "The logged value 'late' ",
    ]  # fmt: skip


async def test_a_worker_writes_nothing_and_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    sess = am.MonitoredTrainingSession(is_chief=False, program=program(), loggers=[kept])
    async with sess:
        sess.log("x", 1.0)
    assert kept.values == []
    assert not [message for message in caplog.messages if "logger" in message]


async def test_loggers_learn_of_the_error_that_ended_the_session(tmp_path: Path) -> None:
    kept = Kept()
    loggers = [kept, am.JsonlWriter(tmp_path / "x.jsonl")]
    with pytest.raises(ValueError, match="a bug"):
        async with am.MonitoredTrainingSession(program=program(), loggers=loggers):
            raise ValueError("a bug")
    assert [str(error) for error in kept.closed] == ["a bug"]
    last = json.loads((tmp_path / "x.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["error"]) == ("error", "ValueError: a bug")


async def test_values_of_steps_that_a_recovery_repeats_are_dropped_from_event_files(
    tmp_path: Path,
) -> None:
    class LogWeight(am.SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            run_context.log("step", run_values.step)

    hooks = [LogWeight(), fail_at_step(3)]
    async with am.MonitoredTrainingSession(
        program=program(), checkpoint_dir=tmp_path, save_checkpoint_steps=2, hooks=hooks
    ) as sess:
        for _ in range(4):
            await sess.run("train")
    (paths,) = find_event_files(tmp_path).values()
    assert [point.step for point in read_scalars(paths)["step"]] == [1, 2, 3, 4]


async def test_an_object_that_is_no_logger_is_refused() -> None:
    with pytest.raises(TypeError, match="lacks write, write_config, flush, close"):
        am.MonitoredTrainingSession(loggers=["runs/1"])  # type: ignore[list-item]  # refused
    with pytest.raises(TypeError, match=r"loggers must be a list of loggers, got .*JsonlWriter"):
        am.MonitoredTrainingSession(loggers=am.JsonlWriter("x.jsonl"))  # type: ignore[arg-type]  # refused


async def test_json_lines_that_a_disk_refuses_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncmon.hooks.jsonl_writer._MOST_PENDING", 10)
    writer = am.JsonlWriter(tmp_path / "x.jsonl")
    for number in range(15):
        writer.write(number, 0.0, {"x": 1.0})
    (tmp_path / "x.jsonl").mkdir()
    with pytest.raises(IsADirectoryError):
        await writer.flush()
    assert writer.dropped == 5
    (tmp_path / "x.jsonl").rmdir()
    await writer.flush()
    steps = [json.loads(line)["step"] for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert steps == list(range(5, 15))
