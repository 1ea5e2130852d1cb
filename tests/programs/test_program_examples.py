"""The examples of other engines: killed and run again they end as if nothing had happened."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.forked import run_example, start_example


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def kill(directory: Path, name: str, at: int, *arguments: str) -> None:
    """Run an example until it has saved a checkpoint of this step or a later one, then kill it."""
    with start_example(directory, name, *arguments) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            found = re.match(r"Saved checkpoint \S+-(\d+) in", line)
            if found and int(found[1]) >= at:
                process.kill()
        assert process.wait() < 0, "".join(lines)


@pytest.mark.parametrize(
    ("name", "steps", "kills", "more"),
    [
        pytest.param("online_sklearn.py", 600, (100, 300), (), marks=needs("sklearn")),
        pytest.param("jax_digits.py", 800, (200, 400), (), marks=needs("jax", "optax")),
        ("remote_steps.py", 150, (25, 75), ("--latency", "0.02")),
    ],
)
def test_killed_twice_it_ends_where_an_undisturbed_run_does(
    name: str, steps: int, kills: tuple[int, int], more: tuple[str, ...],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    arguments = ["--steps", str(steps), *more]
    whole = run_example(tmp_path, name, *arguments, "--dir", "whole").splitlines()
    assert "starting at step 0" in whole
    for at in kills:
        kill(tmp_path, name, at, *arguments, "--dir", "killed")
    again = run_example(tmp_path, name, *arguments, "--dir", "killed").splitlines()
    [first] = [int(line.split()[-1]) for line in again if line.startswith("resumed from step")]
    assert first >= kills[1]
    assert _result(again[-1]) == _result(whole[-1])
    accuracy = re.search(r"accuracy (\S+) %", whole[-1])
    assert accuracy is None or float(accuracy[1]) > 90
    assert whole[-1].startswith(f"step {steps}:")


def _result(line: str) -> str:
    return re.sub(r", \d+ steps/s", "", line)


def test_remote_calls_overlap(tmp_path: Path) -> None:
    """A latency of 50 ms allows 20 steps in a second, one after another."""
    last = run_example(tmp_path, "remote_steps.py", "--steps", "120", "--in-flight", "8").splitlines()[
        -1
    ]
    rate = re.search(r"(\d+) steps/s", last)
    assert rate is not None
    assert int(rate[1]) > 40
