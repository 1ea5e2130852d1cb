"""``asyncmon inspect`` and ``verify``, and what all commands have in common."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver
from asyncmon.cli import main
from asyncmon.cli.main import all_commands
from asyncmon.cli.output import complain, write_json, write_table
from asyncmon.system.snapshot import Snapshot


class Session:
    def snapshot(self) -> Awaitable[Snapshot]:
        future: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()
        future.set_result(Snapshot({"w": np.zeros((2, 3), np.float32), "t": np.array(["x"])}, 7))
        return future

    async def load(self, values: Any) -> None:
        """Nothing is loaded here."""


class Source:
    def state_dict(self) -> Any:
        return {"position": 3}

    def load_state_dict(self, state: Any) -> None:
        """Nothing is loaded here."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    async def save() -> None:
        saver = Saver()
        saver.add_stateful("data", Source())
        for step in (6, 7):
            await saver.save(Session(), tmp_path / "m", step, metrics={"loss": 0.25})
        await saver.close()

    asyncio.run(save())
    return tmp_path


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_inspect_prints_a_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run)]) == 0
    shown = lines(capsys.readouterr().out)
    assert shown[0] == ["checkpoint", str(run / "m-7")]
    assert shown[1] == ["step", "7"]
    assert ["metric", "loss", "=", "0.25"] in shown
    assert ["state", "data"] in shown
    assert shown[-3:] == [
        ["name", "dtype", "shape"],
        ["t", "str32", "[1]"],
        ["w", "float32", "[2,", "3]"],
    ]


def test_verify_says_what_is_damaged(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run)]) == 0
    table = lines(capsys.readouterr().out)
    assert table[0] == ["checkpoint", "step", "saved", "bytes", "verdict"]
    assert [row[0] for row in table[1:]] == [str(run / "m-7"), str(run / "m-6")]
    assert [row[-1] for row in table[1:]] == ["ok", "ok"]
    (run / "m-7.safetensors").unlink()
    assert main(["verify", str(run)]) == 1
    assert "lacks a file" in capsys.readouterr().out
    assert main(["verify", str(run / "m-6")]) == 0


def test_both_print_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["step"], shown["metrics"], shown["states"]) == (7, {"loss": 0.25}, ["data"])
    assert shown["entries"][1] == {"name": "w", "dtype": "float32", "shape": [2, 3]}
    (run / "m-7.safetensors").unlink()
    assert main(["verify", str(run), "--json"]) == 1
    newest, older = json.loads(capsys.readouterr().out)
    assert "lacks a file" in newest["problem"]
    assert (older["checkpoint"], older["problem"]) == (str(run / "m-6"), None)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exits:
        main(["--version"])
    assert exits.value.code == 0
    assert capsys.readouterr().out.startswith("asyncmon 0.")


def test_inspect_finds_the_checkpoint_of_a_manifest(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("inspect", "verify"):
        assert main([command, str(run / "m-7.json")]) == 0
        assert str(run / "m-7") in capsys.readouterr().out
        assert main([command, str(run / "m-9.json")]) == 1
        assert "m-9.json" in capsys.readouterr().err


def test_control_characters_are_printed_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(["a\x1b]52;c;x\x07"], [["zwölf\n→"]])
    complain("a\x1b[2J\nb\udc80")
    shown = capsys.readouterr()
    assert shown.out == "a\\x1b]52;c;x\\x07\nzwölf\\n→\n"
    assert shown.err == "a\\x1b[2J\nb\\udc80\n"


def test_characters_that_the_encoding_lacks_are_printed_escaped(run: Path) -> None:
    other = run.parent / "läufe→"
    run.rename(other)
    out = subprocess.run(
        [sys.executable, "-m", "asyncmon", "verify", str(other)], check=False, capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert (out.returncode, out.stderr) == (0, b"")
    assert "läufe\\u2192".encode("cp1252") in out.stdout


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"loss": float("nan"), "best": [float("-inf"), 1.5]})
    assert json.loads(capsys.readouterr().out) == {"loss": None, "best": [None, 1.5]}


def test_help_names_every_command_and_imports_none() -> None:
    out = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "asyncmon", "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [line.split()[0] for line in out.stdout.splitlines() if line.startswith("    ")] == [
        *all_commands()
    ]
    for module, _ in all_commands().values():
        assert f" {module}\n" not in out.stderr


def test_what_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"There is no checkpoint in {str(tmp_path)!r}.\n"
    assert main(["inspect", str(tmp_path)]) == 1
    assert "Couldn't find 'checkpoint' file or checkpoints" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "m-1")]) == 1
    assert "There is no checkpoint" in capsys.readouterr().err
    (tmp_path / "x").write_bytes(b"")
    assert main(["inspect", str(tmp_path)]) == 1
    assert (
        "Couldn't find 'checkpoint' file or checkpoints in given directory" in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main([])


@pytest.mark.parametrize("command", ["inspect", "verify", "prune"])
def test_a_directory_of_runs_names_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checkpoint").touch()
    assert main([command, str(tmp_path)]) == 1
    runs = f"{str(tmp_path / 'a')!r}, {str(tmp_path / 'b')!r}"
    assert capsys.readouterr().err.endswith(f" (runs in it: {runs}; give one of them)\n")


def test_a_reader_that_has_seen_enough_is_no_error(run: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    out = subprocess.run(
        [sys.executable, "-m", "asyncmon", "inspect", str(run)],
        stdout=theirs, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(theirs)
    assert (out.returncode, out.stderr) == (1, "")


def test_it_is_a_module_to_run(run: Path) -> None:
    out = subprocess.run(
        [sys.executable, "-m", "asyncmon", "verify", str(run)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert out.returncode == 0
    assert out.stderr == ""
    assert [row[-1] for row in lines(out.stdout)[1:]] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--cluster", "{"], "--cluster: "),
        (["--cluster", "[]"], "--cluster: `cluster` must be a dictionary"),
        (["--cluster", '{"a": ["h:1"]}', "--job", "b"], "No such job in cluster: 'b'"),
        (["--cluster", '{"a": ["h:1"]}', "--elastic", "b"], "--cluster: elastic=['b']: "),
        (["--cluster", '{"a": ["h:1"]}', "--task", "4"], "Task 4 was not defined in job"),
        (["--cluster", '{"a": ["h:1"]}', "--token-file", "/nowhere"], "No such file"),
        (["--cluster", '{"a": ["h:1"]}', "--import", "no_such_module"], "No module named"),
    ],
)
def test_a_server_that_cannot_be(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = text in ("No such file", "No module named")  # a failure, not wrong arguments
    assert main(["server", *options]) == (1 if missing else 2)
    assert text in capsys.readouterr().err
