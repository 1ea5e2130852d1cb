"""``asyncmon events`` and ``plot``."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c

from asyncmon.cli import main
from asyncmon.cli.plot import smoothed
from asyncmon.protobuf.tf_types import masked
from asyncmon.summary import FileWriter


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    async def write() -> None:
        for name, steps in (("a", 4), ("b", 2)):
            async with FileWriter(tmp_path / name) as writer:
                for step in range(steps):
                    writer.add_scalar("loss", 1 / (step + 1), step)
            async with FileWriter(tmp_path / name) as writer:
                writer.add_scalar("eval/accuracy", float("nan") if name == "b" else 0.5, 3)

    asyncio.run(write())
    return tmp_path


def test_a_table_of_what_there_is(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", str(runs)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        [str(runs / "a"), "eval/accuracy", "1", "3", "3", "0.5"],
        [str(runs / "a"), "loss", "4", "0", "3", "0.25"],
        [str(runs / "b"), "eval/accuracy", "1", "3", "3", "nan"],
        [str(runs / "b"), "loss", "2", "0", "1", "0.5"],
    ]


def test_points_as_csv_and_json_lines(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", str(runs / "a"), str(runs / "b"), "--tag", "lo*", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["run"], row["step"], row["value"]) for row in rows][3:] == [
        (str(runs / "a"), "3", "0.25"), (str(runs / "b"), "0", "1.0"), (str(runs / "b"), "1", "0.5"),
    ]  # fmt: skip
    assert main(["events", str(runs), "--tag", "eval/*", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["run"], line["tag"], line["step"], line["value"]) for line in lines] == [
        (str(runs / "a"), "eval/accuracy", 3, 0.5), (str(runs / "b"), "eval/accuracy", 3, "NaN"),
    ]  # fmt: skip
    assert all(line["wall_time"] > 1e9 for line in lines)


def test_what_is_not_there(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", str(runs), "--tag", "lose"]) == 1
    assert "is called 'lose'; there are eval/accuracy, loss." in capsys.readouterr().err
    assert main(["events", str(runs / "nowhere")]) == 1
    missing = f"There are no scalars below '{runs}/nowhere': No such file or directory.\n"
    assert capsys.readouterr().err == missing
    assert main(["events", str(runs), str(runs / "nowhere")]) == 1
    assert capsys.readouterr().err == missing


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3] + b"abc",
        lambda data: data + bytes(100),
        lambda data: data + struct.pack("<QI", 64 << 30, masked(crc32c(struct.pack("<Q", 64 << 30)))),
        lambda _: gzip.compress(b"events"),
        lambda _: b"a text file with this name",
    ],
    ids=["record", "zeros", "length", "gzip", "text"],
)
@pytest.mark.parametrize("command", ["events", "plot"])
def test_what_is_readable_is_shown_beside_a_damage(
    runs: Path, capsys: pytest.CaptureFixture[str], command: str, damage: Callable[[bytes], bytes]
) -> None:
    path = min((runs / "b").iterdir())
    data = damage(path.read_bytes())
    path.write_bytes(data)
    output = [] if command == "events" else ["-o", str(runs / "out.png")]
    assert main([command, str(runs), *output]) == 1
    shown = capsys.readouterr()
    assert repr(str(path)) in shown.err
    assert "at byte " in shown.err
    if command == "plot":
        assert (runs / "out.png").exists()
        return
    found = {(row[0], row[1]): row[2] for row in map(str.split, shown.out.splitlines()[1:])}
    assert found[str(runs / "a"), "loss"] == "4"
    assert found[str(runs / "b"), "eval/accuracy"] == "1"
    before = {len(data): "1"} if data[-3:] == b"abc" else {}
    if data[:2] not in (b"\x1f\x8b", b"a "):
        assert found[str(runs / "b"), "loss"] == before.get(len(data), "2")


def test_folders_that_cannot_be_listed_and_pipes_are_no_end(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(runs / "a" / "events.out.tfevents.pipe")
    (runs / "closed").mkdir()
    (runs / "closed").chmod(0)
    status = main(["events", str(runs)])
    (runs / "closed").chmod(0o700)
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 5
    assert status == (1 if "closed" in shown.err else 0)  # root may list it


def test_plot_draws_a_picture(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = runs / "out.png"
    options = ["--log", "--smooth", "0.5", "--time", "-o", str(picture)]
    assert main(["plot", str(runs), *options]) == 0
    assert capsys.readouterr().out == f"{picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="2"):
        main(["plot", str(runs), "--smooth", "1"])
    assert "a weight from 0 to below 1 is expected, got 1." in capsys.readouterr().err


def test_plot_draws_names_as_they_are(tmp_path: Path) -> None:
    async def write() -> None:
        for run in ("$\\nonsense$", "_hidden"):
            async with FileWriter(tmp_path / run) as writer:
                writer.add_scalar("$\\frac{$", 1.0, 0)
                writer.add_scalar("long" * 100, 1.0, 0)

    asyncio.run(write())
    assert main(["plot", str(tmp_path), "-o", str(tmp_path / "out.png")]) == 0


def test_plot_refuses_more_charts_than_a_picture_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def write() -> None:
        async with FileWriter(tmp_path) as writer:
            for tag in range(121):
                writer.add_scalar(f"tag{tag:03}", 1.0, 0)

    asyncio.run(write())
    assert main(["plot", str(tmp_path), "-o", str(tmp_path / "out.png")]) == 1
    assert "There are 121 scalars, and a picture has 120 charts" in capsys.readouterr().err


def test_smoothing_has_no_bias_and_skips_nan() -> None:
    values = np.array([4.0, np.nan, 4.0, 0.0])
    assert smoothed(values, 0.5).tolist()[0] == 4
    assert np.isnan(smoothed(values, 0.5)[1])
    assert smoothed(values, 0.5)[2] == 4
    assert smoothed(values, 0.5)[3] == pytest.approx((4 * 0.25 + 4 * 0.5 + 0) / (0.25 + 0.5 + 1))
    assert smoothed(values, 0.0).tolist()[3] == 0
