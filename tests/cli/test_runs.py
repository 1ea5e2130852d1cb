"""``asyncmon runs`` lists the runs below a directory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.cli.main import main
from asyncmon.programs import FunctionProgram


async def train(directory: Path, error: Exception | None = None, **others: Any) -> None:
    program = FunctionProgram({"n": 0})

    @program.step
    def step(state: Any) -> None:
        state["n"] += 1

    async with am.MonitoredTrainingSession(program=program, checkpoint_dir=directory, **others) as sess:
        await sess.run("step")
        if error is not None:
            raise error


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    asyncio.run(train(tmp_path / "runs" / "a"))
    with pytest.raises(ValueError, match="bad"):
        asyncio.run(train(tmp_path / "runs" / "b", ValueError("bad \x1b[31m data"), name="red\x1b[0m"))
    return tmp_path / "runs"


def test_runs_are_a_table_with_their_ends(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and errors that are not printable are escaped: they must not command the terminal."""
    assert main(["runs", str(runs)]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "state", "step", "updated", "end", "directory"]
    assert first.split()[:3] == ["a", "completed", "1"]
    assert first.endswith(f"the body ended                 {runs / 'a'}")
    assert second.startswith("red\\x1b[0m  failed     1     ")
    assert f"ValueError: bad \\x1b[31m data  {runs / 'b'}" in second


def test_runs_are_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(runs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["state"], one["step"]) for one in found] == [
        ("a", "completed", 1), ("red\x1b[0m", "failed", 1),
    ]  # fmt: skip
    assert found[0]["directory"] == str(runs / "a")


def test_current_directory_is_the_default(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    assert main(["runs"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    monkeypatch.chdir(runs.parent.parent.parent)
    (runs / "a" / "run.json").unlink()
    assert main(["runs", str(runs / "a")]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", ["missing", "s3://bucket/runs"])
def test_directory_that_cannot_be_read_is_an_error(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs", path]) == 1
    assert path in capsys.readouterr().err


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["runs", "a", "b"])
