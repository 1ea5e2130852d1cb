"""``asyncmon watch``."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from asyncmon.checkpoint import Saver
from asyncmon.cli import main
from asyncmon.cli.watch import sparkline
from asyncmon.summary import FileWriter
from asyncmon.testing import ScriptedSession


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    async def write() -> None:
        async with FileWriter(tmp_path / "digits") as writer:
            for step in range(30):
                writer.add_scalar("loss", 1 / (step + 1), step)
            writer.add_scalar("[bold]odd", 2.5, 29)
        saver = Saver()
        await saver.save(
            ScriptedSession(state={"global_step": np.int64(29)}), tmp_path / "digits" / "m", 29
        )
        await saver.close()

    asyncio.run(write())
    return tmp_path


def test_it_is_printed_once_where_there_is_no_terminal(
    logdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(logdir)]) == 0
    title, odd, loss = capsys.readouterr().out.splitlines()[:3]
    assert title.startswith("digits  ")
    assert "step 29" in title
    assert "checkpoint 29, " in title
    assert odd.startswith("[bold]odd")
    assert loss.split()[0] == "loss"
    assert loss.split()[1].startswith("█")
    assert loss.split()[1].endswith("▁")
    assert loss.split()[2:] == ["0.0333333", "min", "0.03333", "max", "1"]
    assert main(["watch", str(logdir), "--once", "--tag", "lo*"]) == 0
    assert "odd" not in capsys.readouterr().out


def test_a_long_tag_leaves_room_for_the_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write() -> None:
        async with FileWriter(tmp_path) as writer:
            for step in range(50):
                writer.add_scalar("long" * 50, float(step), step)

    asyncio.run(write())
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["watch", str(tmp_path), "--once"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith("longlong")
    assert line.split()[2:] == ["49", "min", "0", "max", "49"]


def test_what_cannot_be_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path)]) == 1
    assert "no event file, no checkpoint." in capsys.readouterr().err
    assert main(["watch", str(tmp_path / "nowhere")]) == 1
    assert f"There is no run in '{tmp_path}/nowhere': No such file" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["watch", str(tmp_path), "--every", "0"])
    assert "a positive number of seconds is expected, got 0." in capsys.readouterr().err


def test_watch_shows_what_is_readable_and_names_the_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def write() -> None:
        for name in ("good", "bad\x1b[2J"):
            async with FileWriter(tmp_path / name) as writer:
                writer.add_scalar("loss\x1b]52;c;x\x07", 0.5, 3)
                writer.add_scalar("late", 0.5, 1)  # the step of a run is the greatest

    asyncio.run(write())
    (path,) = (tmp_path / "bad\x1b[2J").iterdir()
    path.write_bytes(path.read_bytes() + bytes(40))
    assert main(["watch", str(tmp_path), "--once"]) == 1
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert shown.out.count("step 3") == 2
    assert shown.out.count("loss\\x1b]52;c;x\\x07") == 2
    assert f"at byte {path.stat().st_size - 40}, " in shown.err


def test_at_a_terminal_it_continues_until_ctrl_c(logdir: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "asyncmon", "watch", str(logdir), "--every", "0.05"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as child:
        os.close(theirs)
        seen = b""
        while b"loss" not in seen:
            seen += os.read(ours, 65536)
        (logdir / "later").mkdir()

        async def write() -> None:
            async with FileWriter(logdir / "later") as writer:
                writer.add_scalar("accuracy", 0.5, 3)

        asyncio.run(write())
        while b"accuracy" not in seen:
            seen += os.read(ours, 65536)
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 0
    os.close(ours)


def test_a_sparkline_is_scaled_and_has_gaps() -> None:
    assert sparkline(np.array([0.0, 1.0]), 40) == "▁█"
    assert sparkline(np.arange(80.0), 40)[::39] == "▁█"
    assert len(sparkline(np.arange(81.0), 40)) <= 40
    assert sparkline(np.array([1.0, np.nan, np.inf, 1.0]), 40) == "▅  ▅"
    assert sparkline(np.array([]), 40) == ""
