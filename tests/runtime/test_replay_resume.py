"""After a SIGKILL a replay buffer gives the samples of an uninterrupted run."""

from __future__ import annotations

import json
from pathlib import Path

from tests import forked

HERE = Path(__file__).parent


def test_the_samples_after_a_kill_are_those_of_one_run(tmp_path: Path) -> None:
    def run(name: str, killed_at: int) -> str:
        arguments = str(tmp_path / name), "40", str(killed_at)
        out = forked.run(HERE / "killed_replay.py", *arguments)
        assert out.returncode == (0 if killed_at < 0 else -9), out.stderr
        return out.stdout

    whole = json.loads(run("one", -1))
    assert all(min(numbers) >= -1 for numbers in whole)
    for killed_at in (5, 12, 31):
        run("killed", killed_at)
    assert json.loads(run("killed", -1)) == whole
