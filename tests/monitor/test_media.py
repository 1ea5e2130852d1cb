"""Histograms, images, texts and hyperparameters of runs: read, bounded, served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import asyncmon as am
from asyncmon.monitor.media import Histogram, Media, Picture
from asyncmon.monitor.quota import Quota
from asyncmon.protobuf.tensors import TensorProto
from asyncmon.summary import FileWriter, Summary, SummaryMetadata
from asyncmon.summary.event_log import EventLog
from asyncmon.summary.values import tensor_proto
from tests.monitor.scripted import client

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

PNG = b"\x89PNG\r\n\x1a\n"


async def kinds(http: httpx.AsyncClient, run: str = "run") -> dict[str, tuple[str, int]]:
    tags = (await http.get(f"/api/runs/{run}/media")).json()["tags"]
    return {one["tag"]: (one["kind"], one["records"]) for one in tags}


async def records(http: httpx.AsyncClient, tag: str, **query: object) -> dict[str, object]:
    answer = await http.get("/api/runs/run/media/records", params={"tag": tag, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def write(writer: FileWriter, steps: range) -> None:
    for step in steps:
        writer.add_histogram("weights", np.linspace(0, step + 1, 100), step)
        writer.add_image("digit", np.full((2, 3, 1), step, np.uint8), step)
        writer.add_text("note", f"<b>step</b> {step}", step)
    await writer.flush()


@pytest.mark.asyncio
async def test_histograms_images_and_texts_are_served(tmp_path: Path) -> None:
    async with FileWriter(tmp_path / "run") as writer:
        await write(writer, range(3))
    async with client(am.monitor.create_app(tmp_path)) as http:
        assert await kinds(http) == {
            "digit": ("image", 3), "note": ("text", 3), "weights": ("histogram", 3),
        }  # fmt: skip
        found = await records(http, "weights", bins=3)
        assert (found["low"], found["high"]) == (0.0, 3.0)
        counts = [one["counts"] for one in found["records"]]
        assert [sum(each) for each in counts] == pytest.approx([100, 100, 100])
        assert counts[0] == pytest.approx([100, 0, 0])
        assert counts[2] == pytest.approx([100 / 3] * 3, abs=3)
        texts = [(one["step"], one["text"]) for one in (await records(http, "note"))["records"]]
        assert texts == [(0, "<b>step</b> 0"), (1, "<b>step</b> 1"), (2, "<b>step</b> 2")]
        image = (await records(http, "digit"))["records"][-1]
        assert (image["step"], image["width"], image["height"]) == (2, 3, 2)
        query = {"tag": "digit", "id": image["id"]}
        answer = await http.get("/api/runs/run/media/image", params=query)
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content.startswith(PNG)
        missing = await http.get("/api/runs/run/media/image", params={**query, "id": 10**6})
        assert missing.status_code == 404
        assert (await http.get("/api/runs/run/media/records?tag=x")).status_code == 404


def unlink_events(directory: Path) -> None:
    for file in directory.glob("*tfevents*"):
        file.unlink()


@pytest.mark.asyncio
async def test_a_session_of_this_process_has_them_without_files(tmp_path: Path) -> None:
    session = am.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, program=am.programs.FunctionProgram(state={"x": 0.0})
    )
    run = am.monitor.LiveRun("run", session)
    async with session, client(am.monitor.create_app(run)) as http:
        assert await kinds(http) == {}
        async with FileWriter(tmp_path) as writer:
            await write(writer, range(2))
            unlink_events(tmp_path)  # what comes now is not read from files
            await write(writer, range(2, 3))
            writer.add_hparams({"rate": 0.5, "name": "adam", "nested": True})
            await run.refresh()
            assert (await kinds(http))["weights"] == ("histogram", 3)
            table = (await http.get("/api/table")).json()["runs"]
            assert table == [
                {"id": "run", "config": {"rate": 0.5, "name": "adam", "nested": True}, "last": {}}
            ]


@pytest.mark.asyncio
async def test_a_restart_replaces_the_records_of_lost_steps(tmp_path: Path) -> None:
    async with FileWriter(tmp_path / "run") as writer:
        writer.add_session_log(am.summary.SessionLog(status=am.summary.SessionLog.START), 0)
        await write(writer, range(6))
        writer.add_session_log(am.summary.SessionLog(status=am.summary.SessionLog.START), 3)
        await write(writer, range(3, 5))
    async with client(am.monitor.create_app(tmp_path)) as http:
        steps = [one["step"] for one in (await records(http, "note"))["records"]]
        assert steps == [0, 1, 2, 3, 4]


@pytest.mark.asyncio
async def test_values_of_tensorflow_2_are_read(tmp_path: Path) -> None:
    def value(tag: str, plugin: str, tensor: TensorProto) -> Summary.Value:
        data = SummaryMetadata.PluginData(plugin_name=plugin)
        return Summary.Value(tag=tag, tensor=tensor, metadata=SummaryMetadata(plugin_data=data))

    rows = np.array([[0.0, 1.0, 5.0], [1.0, 2.0, 3.0]])
    pictures = TensorProto(dtype=7, string_val=[b"3", b"2", PNG, PNG])
    async with FileWriter(tmp_path / "run") as writer:
        values = [value("h", "histograms", tensor_proto("h", rows)), value("i", "images", pictures)]
        writer.add_summary(Summary(value=values), 7)
    async with client(am.monitor.create_app(tmp_path)) as http:
        assert await kinds(http) == {"h": ("histogram", 1), "i/0": ("image", 1), "i/1": ("image", 1)}
        assert (await records(http, "h", bins=2))["records"][0]["counts"] == [5.0, 3.0]


@pytest.mark.asyncio
async def test_the_table_has_configurations_and_last_values(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        async with FileWriter(tmp_path / name) as writer:
            writer.add_hparams({"rate": rate, "depth": 3})
            for step in range(5):
                writer.add_scalar("loss", rate * step, step)
                writer.add_scalar("other", 0.0, step)
    async with client(am.monitor.create_app(tmp_path)) as http:
        found = (await http.get("/api/table?column=loss&column=none")).json()["runs"]
        assert [(one["id"], one["config"]) for one in found] == [
            ("a", {"depth": 3, "rate": 0.1}), ("b", {"depth": 3, "rate": 0.2}),
        ]  # fmt: skip
        assert [one["last"] for one in found] == [
            {"loss": pytest.approx(0.4)}, {"loss": pytest.approx(0.8)},
        ]  # fmt: skip


def test_records_are_bounded_in_number_and_in_bytes() -> None:
    media = Media(most_bytes=100_000)
    for step in range(1_000):
        media.add("text", step, 0.0, "x" * 100)
        media.add("image", step, 0.0, Picture(PNG + bytes(10_000), 1, 1))
    assert media.size[0] <= 100_000
    steps = [one.step for one in media.records("text")]
    assert len(steps) <= 50
    assert steps == sorted(steps)
    assert steps[0] < 900  # older ones are thinned, not forgotten
    assert steps[-1] == 999
    assert media.records("image")[-1].step == 999


def test_all_runs_share_a_bound_and_a_huge_record_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    quota, members = Quota(50_000), [Media(), Media()]
    for media in members:
        media.join(quota)
    for step in range(100):
        for media in members:
            media.add("image", step, 0.0, Picture(bytes(2_000), 1, 1))
    assert quota.amount <= 50_000
    assert quota.amount == sum(media.size[0] for media in members)
    members[0].add("huge", 0, 0.0, Picture(bytes(5 << 20), 1, 1))
    assert members[0].records("huge") == []
    assert "'huge'" in caplog.text
    members[0].leave()
    assert quota.amount == members[1].size[0]


def test_equal_values_and_empty_bins_are_counted_once() -> None:
    same = Histogram(np.array([2.0, 2.0, 2.0]), np.array([3.0, 4.0]))
    assert same.rebinned(np.linspace(2.0, 2.0, 4)) == [7.0, 0.0, 0.0]
    assert same.rebinned(np.linspace(0.0, 4.0, 5)) == [0.0, 0.0, 7.0, 0.0]
    assert same.rebinned(np.linspace(2.0, 4.0, 3)) == [7.0, 0.0]
    assert same.rebinned(np.linspace(0.0, 2.0, 3)) == [0.0, 7.0]


@pytest.mark.asyncio
@pytest.mark.parametrize("encoded", [False, True])
async def test_large_values_that_no_viewer_takes_are_not_kept(tmp_path: Path, encoded: bool) -> None:
    tap = EventLog.tap(str(tmp_path))
    assert tap is not None
    async with FileWriter(tmp_path) as writer:
        for step in range(20):
            if encoded:
                image = Summary.Image(1, 1, 1, bytes(8 << 20))
                writer.add_summary(Summary(value=[Summary.Value(tag="image", image=image)]), step)
            else:
                writer.add_histogram("weights", np.zeros(1 << 20), step)  # 8 MiB
            await writer.flush()
    assert tap.is_lost
    assert tap.take() == []
