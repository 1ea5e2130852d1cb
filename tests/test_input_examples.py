"""The examples of input and supervisor print the documented output, at a small size."""

from __future__ import annotations

import re
from pathlib import Path

from tests import forked

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(directory: Path, name: str, *arguments: str) -> list[str]:
    done = forked.run(
        EXAMPLES / name, *arguments, cwd=directory, options=("-W", "error", "-u"), merged=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()


def test_the_supervisor_trains_saves_at_the_end_and_continues(tmp_path: Path) -> None:
    first = run(tmp_path, "supervisor.py", "--steps", "300")
    assert re.match(r"step 0: \d+\.\d %", first[0])
    last = re.fullmatch(r"(\S+) % right, checkpoint runs/supervisor/model.ckpt-300", first[-1])
    assert last is not None, first
    assert float(last[1]) > 90
    again = run(tmp_path, "supervisor.py", "--steps", "100")
    assert again[0].startswith("step 300:")
    assert again[-1].endswith("runs/supervisor/model.ckpt-400")


def test_queues_bring_every_digit_and_their_end_ends_the_training(tmp_path: Path) -> None:
    lines = run(tmp_path, "input_queues.py", "--epochs", "5")
    last = re.fullmatch(r"(\S+) % right, checkpoint \S+model.ckpt-(\d+); (.*)", lines[-1])
    assert last is not None, lines
    assert int(last[2]) == 5 * 1797 // 32
    assert float(last[1]) > 85
    assert "insufficient elements" in last[3]
