"""ProfilerHook: HK-PROF-1 and 2, and the traces."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from asyncmon import graph as g
from asyncmon.errors import AbortedError
from asyncmon.graph import NodeStats, RunOptions
from asyncmon.hooks import ProfilerHook
from asyncmon.hooks.profiler import chrome_trace
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.session_creators import ChiefSessionCreator
from asyncmon.summary import summary_iterator
from asyncmon.testing import ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

NODES = [
    NodeStats("a", "Const", 0.0, 0.001, "main", 8),
    NodeStats("b", "MatMul", 0.002, 0.5, "worker", 4000),
]


class Traced(ScriptedSession):
    """A session that fills in what a traced run took."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.traced: list[int] = []

    async def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        result = await super().run(fetches, feed_dict)
        if options is not None and options.trace_level == RunOptions.FULL_TRACE:
            self.traced.append(self.global_step)
            run_metadata.nodes.extend(NODES)
        return result


def timelines(folder: Path) -> list[int]:
    names = [name for name in os.listdir(folder) if name.startswith("timeline-")]
    return sorted(int(name.removeprefix("timeline-").removesuffix(".json")) for name in names)


async def test_by_steps_but_not_the_first_hk_prof_1(
    train: Train, tmp_path: Path, lines: Callable[[str], list[str]]
) -> None:
    session = Traced()
    await train(ProfilerHook(save_steps=3, output_dir=tmp_path), runs=10, session=session)
    assert session.traced == timelines(tmp_path) == [3, 6, 9]
    assert lines("profiler")[0] == f"Saving timeline for 3 into '{tmp_path}/timeline-3.json'."


async def test_a_restart_counts_from_its_step_hk_prof_1(train: Train, tmp_path: Path) -> None:
    session = Traced(state={"global_step": 250})
    await train(ProfilerHook(save_steps=100, output_dir=tmp_path), runs=120, session=session)
    assert session.traced == [350]


@pytest.mark.parametrize("back_at", [14, 15])
async def test_from_a_step_that_goes_back_they_are_counted_again_tm_4(
    train: Train, tmp_path: Path, back_at: int
) -> None:
    """Whether the run that goes back was due or not."""
    script = [None] * (back_at - 1) + [{"global_step": 2}] + [None] * 12
    session = Traced(script)
    await train(ProfilerHook(save_steps=5, output_dir=tmp_path), runs=back_at + 12, session=session)
    assert session.traced == [5, 10, *([] if back_at == 14 else [2]), 7, 12]


async def test_by_seconds_hk_prof_1(
    train: Train, tmp_path: Path, lasting: Callable[..., Iterable[Any]]
) -> None:
    """Runs of 4 s: the first ends at 4; due at 14 (the run from 16 to 20), then at 30 (from 32)."""
    session = Traced(lasting(4))
    await train(ProfilerHook(save_secs=10, output_dir=tmp_path), runs=10, session=session)
    assert session.traced == [5, 9]


async def test_the_event_of_a_trace_hk_prof_1(train: Train, tmp_path: Path) -> None:
    await train(ProfilerHook(save_steps=2, output_dir=tmp_path), runs=4, session=Traced())
    [name] = [name for name in os.listdir(tmp_path) if "tfevents" in name]
    tags = [
        (event.step, event.tagged_run_metadata.tag)
        async for event in summary_iterator(tmp_path / name)
        if event.tagged_run_metadata.tag
    ]
    assert tags == [(2, "step_2"), (4, "step_4")]


async def test_a_run_that_traces_no_operations_has_a_timeline_and_no_event(
    train: Train, tmp_path: Path
) -> None:
    await train(ProfilerHook(save_steps=2, output_dir=tmp_path), runs=4)
    assert sorted(os.listdir(tmp_path)) == ["timeline-2.json", "timeline-4.json"]


async def test_a_second_session_traces_into_its_own_file(train: Train, tmp_path: Path) -> None:
    hook = ProfilerHook(save_steps=2, output_dir=tmp_path)
    for _ in range(2):
        await train(hook, runs=3, session=Traced())
    files = [name for name in os.listdir(tmp_path) if "tfevents" in name]
    for name in files:
        tags = [event.tagged_run_metadata.tag for event in summary_iterator(tmp_path / name)]
        assert "step_2" in tags
    assert len(files) == 2


async def test_a_timeline_that_cannot_be_written_does_not_end_training(
    train: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (2, 4):
        (tmp_path / f"timeline-{step}.json").mkdir()
    hook = ProfilerHook(save_steps=2, output_dir=tmp_path)
    await train(hook, runs=6, session=Traced())
    assert (tmp_path / "timeline-6.json").is_file()
    assert caplog.text.count("Is a directory") == 1
    (reported,) = [text for text in caplog.messages if "cannot be written" in text]
    assert f"The timeline cannot be written to '{tmp_path}/timeline-" in reported


async def test_a_step_that_is_repeated_is_traced_again(tmp_path: Path) -> None:
    sessions = Traced([None, None, AbortedError("gone")]), Traced()
    hook = ProfilerHook(save_steps=2, output_dir=tmp_path)
    async with MonitoredSession(ScriptedCreator(*sessions), [hook]) as sess:
        for _ in range(5):
            await sess.run("train")
    assert sessions[0].traced == sessions[1].traced == [2]


async def test_nothing_is_made_at_construction_hk_prof_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Train
) -> None:
    monkeypatch.chdir(tmp_path)
    hook = ProfilerHook(save_steps=1)
    assert os.listdir(tmp_path) == []
    await train(hook, runs=2, session=Traced())
    assert timelines(tmp_path) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Either every_secs or every_steps should be provided"),
        ({"save_steps": 1, "save_secs": 1}, "Can not provide both every_secs and every_steps"),
        ({"save_steps": 0}, "invalid save_steps=0"),
        ({"save_secs": 0}, "invalid save_secs=0"),
    ],
)
async def test_wrong_arguments_hk_prof_2(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProfilerHook(**arguments)


async def test_a_program_without_spans_is_one_slice(train: Train, tmp_path: Path) -> None:
    await train(ProfilerHook(save_steps=1, output_dir=tmp_path), runs=2)
    trace = json.loads((tmp_path / "timeline-2.json").read_text())
    [piece] = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert piece["args"] == {"name": "step 2", "op": "step", "bytes": 0}
    assert piece["ts"] == 0


async def test_the_trace_of_a_graph(tmp_path: Path) -> None:
    """Ops by thread with durations and bytes, and the flow between them; loads as Chrome wants it."""
    graph = g.Graph()
    with graph.as_default():
        step = g.create_global_step()
        w = g.get_variable("w", [64, 64], initializer=g.ones_initializer())
        loss = g.reduce_sum(g.matmul(w, w), name="loss")
        train = g.train.GradientDescentOptimizer(1e-9).minimize(loss, global_step=step)
    hook = ProfilerHook(save_steps=2, output_dir=tmp_path, show_memory=True)
    async with MonitoredSession(ChiefSessionCreator(program=graph), [hook]) as sess:
        for _ in range(2):
            await sess.run(train)
    events = json.loads((tmp_path / "timeline-2.json").read_text())["traceEvents"]
    ops = [event for event in events if event["ph"] == "X"]
    assert {"MatMul"} <= {event["name"] for event in ops}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in ops)
    assert {e["args"]["bytes"] for e in ops if e["args"]["op"] == "MatMul"} == {64 * 64 * 4}
    starts = {event["id"] for event in events if event["ph"] == "s"}
    assert starts
    assert starts == {event["id"] for event in events if event["ph"] == "t"}
    assert [event["args"]["bytes"] for event in events if event["ph"] == "C"][-1] > 64 * 64 * 4


async def test_what_a_trace_holds() -> None:
    trace = json.loads(
        chrome_trace(NODES, title="step 7", inputs={"b": ["a", "gone"]}, show_memory=True)
    )
    by_kind: dict[str, list[Any]] = {}
    for event in trace["traceEvents"]:
        by_kind.setdefault(event["ph"], []).append(event)
    assert [event["args"]["name"] for event in by_kind["M"]] == ["step 7", "main", "worker"]
    assert [(e["name"], e["ts"], e["dur"], e["tid"]) for e in by_kind["X"]] == [
        ("Const", 0, 1000, 0),
        ("MatMul", 2000, 500_000, 1),
    ]
    assert (by_kind["s"][0]["ts"], by_kind["t"][0]["ts"]) == (1000, 2000)
    assert [event["args"]["bytes"] for event in by_kind["C"]] == [8, 4008]
    plain = json.loads(chrome_trace(NODES, title="step 7"))
    assert {event["ph"] for event in plain["traceEvents"]} == {"M", "X"}


async def test_what_is_awaited_beside_something_else_has_a_row_of_its_own() -> None:
    nodes = [
        NodeStats("first", "AsyncPyFunc", 0.0, 4.0, "main", 0),
        NodeStats("second", "AsyncPyFunc", 1.0, 5.0, "main", 0),
        NodeStats("inside", "Add", 1.5, 0.5, "main", 0),
        NodeStats("cond", "If", 7.0, 2.0, "main", 0),
        NodeStats("branch", "Mul", 7.5, 0.5, "main", 0),
        NodeStats("other", "Mul", 0.0, 9.0, "worker", 0),
    ]
    events = json.loads(chrome_trace(nodes, title="t", inputs={"cond": ["second"]}))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = {e["args"]["name"]: names[e["tid"]] for e in events if e["ph"] == "X"}
    assert rows == {
        "first": "main",
        "second": "main (2)",
        "inside": "main",
        "cond": "main",
        "branch": "main",
        "other": "worker",
    }
    (start,) = [e for e in events if e["ph"] == "s"]
    assert names[start["tid"]] == "main (2)"
