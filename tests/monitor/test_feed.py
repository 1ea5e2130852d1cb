"""Server-sent events: no gap, no duplicate, a bound for everything, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import tracemalloc
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

import asyncmon as am
from asyncmon.monitor import feed
from asyncmon.monitor.feed import MOST_VIEWERS
from asyncmon.monitor.run import Status
from asyncmon.testing import assert_nothing_left_behind
from tests.monitor.scripted import ScriptedRun, Viewer, client, viewing

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def add(run: ScriptedRun, *steps: int, tag: str = "loss") -> None:
    for step in steps:
        run.scalars.add(tag, step, float(step), 0.0)


def steps_of(viewer: Viewer, tag: str = "loss") -> list[int]:
    scalars = [data["series"] for kind, _, data in viewer.events if kind == "scalars"]
    return [step for series in scalars if tag in series for step in series[tag]["steps"]]


async def test_a_viewer_gets_the_runs_and_then_what_is_new() -> None:
    run = ScriptedRun()
    async with viewing(am.monitor.create_app(run)) as viewer:
        [(_, _, data)] = await viewer.until("runs")
        assert [row["id"] for row in data["runs"]] == ["digits"]
        add(run, 1, 2)
        [(_, first, data)] = await viewer.until("scalars")
        assert data == {
            "run": "digits",
            "series": {"loss": {"steps": [1, 2], "values": [1.0, 2.0], "wall_times": [0.0, 0.0]}},
        }
        run.row = replace(run.row, step=8)
        found = await viewer.until("status", 2)
        assert found[-1][2]["step"] == 8
        assert found[-1][1] > first
    assert viewer.text.startswith("retry: 1000\n\n")


async def test_a_viewer_that_comes_back_has_no_gap_and_no_duplicate() -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    async with viewing(app) as viewer:
        add(run, 1)
        last = (await viewer.until("scalars"))[-1][1]
    for round_ in range(2, 30, 3):
        add(run, round_)
        async with client(app) as http:  # publishes while no viewer is there
            await http.get("/api/runs/digits/scalars")
        add(run, round_ + 1)
        async with viewing(app, "/api/events?after=0", last_event_id=str(last)) as viewer:
            add(run, round_ + 2)
            while len(steps_of(viewer)) < 3:
                await viewer.until("scalars", len(steps_of(viewer)) + 1)
            assert steps_of(viewer) == [round_, round_ + 1, round_ + 2]
            last = viewer.events[-1][1]


@pytest.mark.campaign("monitor", short=5)
async def test_viewers_that_come_stall_and_go_have_no_gap_and_no_duplicate(seed: int) -> None:
    dice, run, last = random.Random(seed), ScriptedRun(), 2000
    app = am.monitor.create_app(run)

    async def view() -> None:
        await asyncio.sleep(dice.uniform(0, 5))
        headers: dict[str, str] = {}
        expected = 0
        while expected <= last:
            async with viewing(app, **headers) as viewer:
                await asyncio.sleep(dice.uniform(0, 4))
                if dice.random() < 0.5:
                    viewer.reading.clear()
                    await asyncio.sleep(dice.choice([0.1, 3, 30]))
                    viewer.reading.set()
                    await asyncio.sleep(1)
            for kind, number, data in viewer.events:
                headers = {"last_event_id": str(number)}
                if kind == "reset":
                    expected = 0  # it asks for all points then, and gets later ones here
                for step in data.get("series", {}).get("loss", {}).get("steps", []):
                    assert step == (expected or step)
                    expected = step + 1

    async def train() -> None:
        for step in range(last):
            add(run, step)
            await asyncio.sleep(dice.choice([0, 0, 0, 0.01, 0.2]))
        step = last
        while True:  # so that the reset viewers see it
            add(run, step)
            step += 1
            await asyncio.sleep(0.2)

    async with assert_nothing_left_behind(), asyncio.TaskGroup() as group:
        training = group.create_task(train())
        viewers = [group.create_task(view()) for _ in range(dice.randrange(1, 12))]
        await asyncio.wait(viewers)
        training.cancel()


async def test_points_and_the_events_after_their_cursor_fit() -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    add(run, *range(100))
    async with client(app) as http:
        answer = (await http.get("/api/runs/digits/scalars/points?tag=loss")).json()
    add(run, *range(100, 120))
    async with viewing(app, f"/api/events?after={answer['cursor']}") as viewer:
        await viewer.until("scalars")
    assert answer["series"]["loss"]["steps"] + steps_of(viewer) == list(range(120))


@pytest.mark.parametrize("after", ["0", "9999999999999999"])
async def test_a_cursor_of_another_process_is_reset(after: str) -> None:
    async with viewing(am.monitor.create_app(ScriptedRun()), f"/api/events?after={after}") as viewer:
        [(_, cursor, data)] = await viewer.until("reset")
    assert data == {"cursor": cursor}


async def test_changed_points_and_many_points_reset_the_viewers() -> None:
    run = ScriptedRun()
    async with viewing(am.monitor.create_app(run)) as viewer:
        add(run, 1, 2, 3)
        await viewer.until("scalars")
        run.scalars.purge(2, {"loss"})
        await viewer.until("reset")
        add(run, *range(2, 10_000))
        await viewer.until("reset", 2)
        add(run, 10_000)
        await viewer.until("scalars", 2)
    assert steps_of(viewer) == [1, 2, 3, 10_000]


async def test_a_session_that_replaces_a_closed_one_resets_the_viewers() -> None:
    app = am.monitor.create_app(ScriptedRun(row=Status(state="closed")))
    async with viewing(app) as viewer:
        await viewer.until("runs")
        assert app.state.runs.add(None, ScriptedRun()) == "digits"
        await viewer.until("reset")
        assert len(list(app.state.runs)) == 1
        assert app.state.runs.add(None, ScriptedRun()) == "digits-2"  # the other one is open


async def test_many_runs_with_many_points_are_one_reset() -> None:
    runs = [ScriptedRun(str(number)) for number in range(50)]
    for run in runs:
        add(run, *range(3_000))
    app = am.monitor.create_app(runs)
    async with viewing(app) as viewer:
        await viewer.until("runs")
        await asyncio.sleep(1)
        async with client(app) as http:
            for number in range(50):
                (tag,) = (await http.get(f"/api/runs/{number}/scalars")).json()["tags"]
                assert tag["points"] == 3_000
    assert len([event for event in viewer.events if event[0] == "reset"]) <= 1


async def test_a_slow_reader_is_reset_and_the_others_continue() -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    async with viewing(app) as slow, viewing(app) as quick:
        await slow.until("runs")
        slow.reading.clear()
        sent = 0
        for _ in range(60):
            add(run, *range(sent, sent + 1_000))
            sent += 1_000
            await quick.until("scalars", sent // 1_000)
        assert steps_of(quick) == list(range(sent))
        slow.reading.set()
        await slow.until("reset")
        assert len(slow.text) < 200_000
        add(run, sent)
        while sent not in steps_of(slow):
            await slow.until("scalars", len([e for e in slow.events if e[0] == "scalars"]) + 1)


async def test_a_viewer_gets_ten_updates_a_second_at_most() -> None:
    runs = [ScriptedRun(str(number)) for number in range(30)]
    writes = 0

    class Counted(Viewer):
        def __setattr__(self, name: str, value: Any) -> None:
            nonlocal writes
            writes += name == "text"
            super().__setattr__(name, value)

    async with viewing(am.monitor.create_app(runs), viewer=Counted()) as viewer:
        await viewer.until("runs")
        writes = 0
        for step in range(500):
            for run in runs:
                run.row = replace(run.row, step=step)
            add(runs[step % 30], step)
            await asyncio.sleep(0.01)
    assert 40 <= writes <= 52
    assert 40 <= len([event for event in viewer.events if event[0] == "status"]) <= 52
    assert len({data["id"] for kind, _, data in viewer.events if kind == "status"}) == 30


async def test_one_encoding_serves_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    encoded = 0
    real = feed.encode_series

    def counted(series: Any) -> bytes:
        nonlocal encoded
        encoded += 1
        return real(series)

    monkeypatch.setattr(feed, "encode_series", counted)
    async with viewing(app) as one, viewing(app) as two, viewing(app) as three:
        add(run, 1)
        for viewer in (one, two, three):
            await viewer.until("scalars")
    assert encoded == 1


async def test_a_quiet_stream_has_heartbeats_and_ends_after_a_minute() -> None:
    async with viewing(am.monitor.create_app([])) as viewer:
        await asyncio.sleep(50)
        assert viewer.text.split("\n\n").count(":") == 3
        await asyncio.sleep(15)
        assert viewer.end.is_set()


async def test_runs_that_come_and_go_and_log_lines_are_events(caplog: pytest.LogCaptureFixture) -> None:
    app = am.monitor.create_app([])
    async with viewing(app) as viewer:
        await viewer.until("runs")
        app.state.runs.add("late", ScriptedRun("late"))
        found = await viewer.until("runs", 2)
        assert [row["id"] for row in found[-1][2]["runs"]] == ["late"]
        app.state.runs.remove("late")
        assert (await viewer.until("runs", 3))[-1][2] == {"runs": []}
        logging.getLogger("asyncmon.test").warning("a line")
        [(_, _, data)] = await viewer.until("log")
        assert [(line["level"], line["text"]) for line in data["lines"]] == [("WARNING", "a line")]


async def test_nothing_runs_while_no_page_is_open() -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    async with assert_nothing_left_behind():
        async with viewing(app) as viewer:
            await viewer.until("runs")
            await asyncio.sleep(5)
        reads = run.reads
        assert reads > 20
        await asyncio.sleep(60)
        assert run.reads == reads


async def test_an_error_while_publishing_ends_the_streams_and_a_later_one_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    async with viewing(app) as viewer:
        await viewer.until("runs")
        right, run.row = run.row, None  # type: ignore[assignment]  # the error
        await viewer.end.wait()
        run.row = right
    assert "cannot publish" in caplog.text
    async with viewing(app) as viewer:
        await viewer.until("runs")


async def test_viewers_are_bounded() -> None:
    app = am.monitor.create_app(ScriptedRun())
    async with asyncio.TaskGroup() as group:
        leave = asyncio.Event()

        async def view(came: asyncio.Event) -> None:
            async with viewing(app) as viewer:
                await viewer.until("runs")
                came.set()
                await leave.wait()

        for _ in range(MOST_VIEWERS):
            came = asyncio.Event()
            group.create_task(view(came))
            await came.wait()
        async with client(app) as http:
            answer = await http.get("/api/events")
        assert (answer.status_code, "50 viewers" in answer.text) == (503, True)
        leave.set()
    async with viewing(app) as viewer:
        await viewer.until("runs")


async def test_three_hundred_viewers_at_once_are_bounded() -> None:
    app = am.monitor.create_app(ScriptedRun())
    async with AsyncExitStack() as stack:
        viewers = [await stack.enter_async_context(viewing(app)) for _ in range(300)]
        await asyncio.sleep(1)
        statuses = [viewer.status for viewer in viewers]
        assert (statuses.count(200), statuses.count(503)) == (MOST_VIEWERS, 300 - MOST_VIEWERS)
    assert app.state.feed.viewers == 0


async def test_viewers_are_woken_for_news_and_heartbeats_only_and_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "MOST_VIEWERS", 1_000)
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    sent = 0

    class Counted(Viewer):
        def __setattr__(self, name: str, value: Any) -> None:
            nonlocal sent
            sent += name == "text"
            super().__setattr__(name, value)

    async with AsyncExitStack() as stack:
        viewers = [Counted() for _ in range(300)]
        for viewer in viewers:
            await stack.enter_async_context(viewing(app, viewer=viewer))
        await asyncio.sleep(2)  # all have the first status
        sent = 0
        await asyncio.sleep(10)
        assert sent == 0  # nothing has changed
        for step in range(100):
            add(run, step)
            await asyncio.sleep(0.1)
        assert sent <= 101 * 25
        await asyncio.sleep(2)
        assert all(steps_of(viewer) == list(range(100)) for viewer in viewers)


async def test_a_viewer_that_reads_nothing_loses_its_place(caplog: pytest.LogCaptureFixture) -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    async with viewing(app) as viewer:
        await viewer.until("runs")
        viewer.reading.clear()
        add(run, 1)
        await asyncio.sleep(9)
        assert app.state.feed.viewers == 1
        await asyncio.sleep(2)
        assert app.state.feed.viewers == 0
        assert "read nothing for 10 s" in caplog.text


async def test_a_thousand_reconnects_grow_nothing() -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)

    async def reconnect(times: int) -> None:
        for _ in range(times):
            async with viewing(app) as viewer:
                await viewer.until("runs")

    await reconnect(100)
    tasks = len(asyncio.all_tasks())
    tracemalloc.start()
    try:
        await reconnect(100)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await reconnect(1_000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000
    assert len(asyncio.all_tasks()) == tasks


async def test_a_day_of_points_and_status_keeps_its_bounds() -> None:
    run = ScriptedRun()
    app = am.monitor.create_app(run)
    async with viewing(app) as viewer:
        await viewer.until("runs")
        published = app.state.feed
        for step in range(3_000):
            add(run, *range(100 * step, 100 * step + 100))
            await asyncio.sleep(0.1)
            viewer.text = ""
    assert published.buffered_bytes <= feed.MOST_BYTES
    assert sum(len(data) for _, data in published.ring) == published.buffered_bytes


async def test_a_run_that_cannot_be_read_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    run = ScriptedRun(poll_secs=1.0)
    failing = True

    async def refresh() -> None:
        if failing:
            raise OSError("Input/output error")

    run.refresh = refresh  # type: ignore[method-assign]  # the error
    async with viewing(am.monitor.create_app(run)) as viewer:
        await viewer.until("runs")
        await asyncio.sleep(20)
        assert caplog.text.count("cannot read the run 'digits'") == 1
        failing = False
        await asyncio.sleep(2)
        failing = True
        await asyncio.sleep(5)
        assert caplog.text.count("cannot read the run 'digits'") == 2
