"""``asyncmon prune``; the choice of files is tested in tests/checkpoint/test_prune.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver
from asyncmon.cli import main
from asyncmon.testing import ScriptedSession
from tests import forked


async def save(directory: Path, accuracies: list[float]) -> None:
    saver = Saver(max_to_keep=None)
    for step, accuracy in enumerate(accuracies, 1):
        session = ScriptedSession(state={"w": np.full(3, step, np.float32)})
        await saver.save(session, directory / "m", step, metrics={"accuracy": accuracy})
    await saver.close()


def names(paths: list[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(save(tmp_path, [0.3, 0.1, 0.2]))
    options = ["prune", str(tmp_path), "--keep", "1", "--keep-best", "accuracy:max"]
    assert main([*options, "--dry-run", "--json"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (names(shown["kept"]), names(shown["deleted"])) == (["m-1", "m-3"], ["m-2"])
    assert shown["dry_run"] is True
    assert main(options) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0].split() == [str(tmp_path / "m-2"), "deleted"]
    assert text[-1] == "1 deleted, 2 kept."
    with pytest.raises(SystemExit) as exits:
        main(["prune", str(tmp_path), "--keep-best", "accuracy:best"])
    assert exits.value.code == 2
    assert "KeepBest's mode is 'min' or 'max', got 'best'" in capsys.readouterr().err
    for keep in ("0", "-1", "few"):
        with pytest.raises(SystemExit) as exits:
            main(["prune", str(tmp_path), f"--keep={keep}"])
        assert exits.value.code == 2
        message = f"--keep: it is a number of checkpoints, at least 1, got {keep}."
        assert message in capsys.readouterr().err


def test_a_directory_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(save(tmp_path, [0.3, 0.1]))
    code = (
        "import asyncio, sys; from asyncmon.checkpoint import Saver\n"
        "async def main():\n"
        "    saver = Saver(allow_empty=True); await saver.claim(sys.argv[1])\n"
        "    print('claimed', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())"
    )
    with forked.Process("-c", code, str(tmp_path)) as other:
        assert other.stdout.readline() == "claimed\n"
        assert main(["prune", str(tmp_path), "--keep", "1"]) == 1
        assert "Another process saves checkpoints into" in capsys.readouterr().err
        assert (tmp_path / "m-1.json").exists()
        other.communicate("")
    assert main(["prune", str(tmp_path), "--keep", "1"]) == 0
