"""The example of PyTorch resumes exactly after a kill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

EXAMPLE = Path(__file__).parents[1] / "examples" / "torch_digits.py"


def start(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", str(EXAMPLE), "--steps", "80", "--dir", ".", "--device", "cpu"],
        cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # two threads spin, and take 4 times as long
    )  # fmt: skip


def test_it_learns_and_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    ends = []
    for name, kills in (("whole", 0), ("killed", 1)):
        directory, saved = tmp_path / name, 0
        directory.mkdir()
        for _ in range(kills):
            with start(directory) as process:
                assert process.stdout is not None
                begun = None
                for line in process.stdout:
                    if found := re.match(r"begins at step (\d+)", line):
                        begun = int(found[1])
                        assert begun >= saved
                    if found := re.match(r"Saved checkpoint \S+-(\d+) in", line):
                        saved = int(found[1])
                        if begun is not None and saved > begun:
                            process.kill()
                            break
                process.wait(30)
        with start(directory) as process:
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 0, out
        if kills:
            assert f"begins at step {saved}" in out
        ends.append(out.splitlines()[-1])
    assert ends[0] == ends[1]
    last = re.fullmatch(r"step 80, accuracy (\S+) %, weights \w{16}", ends[0])
    assert last is not None, ends[0]
    assert float(last[1]) > 85
