"""The examples of input and supervisor print the documented output, at a small size."""

from __future__ import annotations

import re
from pathlib import Path

from tests.forked import run_example


def test_the_supervisor_trains_saves_at_the_end_and_continues(tmp_path: Path) -> None:
    first = run_example(tmp_path, "supervisor.py", "--steps", "300").splitlines()
    assert re.match(r"step 0: \d+\.\d %", first[0])
    last = re.fullmatch(r"(\S+) % right, checkpoint runs/supervisor/model.ckpt-300", first[-1])
    assert last is not None, first
    assert float(last[1]) > 90
    again = run_example(tmp_path, "supervisor.py", "--steps", "100").splitlines()
    assert again[0].startswith("step 300:")
    assert again[-1].endswith("runs/supervisor/model.ckpt-400")


def test_queues_bring_every_digit_and_their_end_ends_the_training(tmp_path: Path) -> None:
    lines = run_example(tmp_path, "input_queues.py", "--epochs", "5").splitlines()
    last = re.fullmatch(r"(\S+) % right, checkpoint \S+model.ckpt-(\d+); (.*)", lines[-1])
    assert last is not None, lines
    assert int(last[2]) == 5 * 1797 // 32
    assert float(last[1]) > 85
    assert "insufficient elements" in last[3]
