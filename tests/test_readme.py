"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)[number]


def without_measurements(text: str) -> str:
    """Replace what depends on the machine: durations and rates."""
    return re.sub(r"\d+(\.\d+)?(e[+-]\d+)?(?= s\b| sec\b)|(?<=/sec: )\S+", "#", text)


def run_readme(directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-u", "-c", block("python")],
        cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_the_program_prints_what_the_readme_says(tmp_path: Path) -> None:
    assert without_measurements(run_readme(tmp_path)) == without_measurements(block("text"))


def test_run_again_it_goes_on(tmp_path: Path) -> None:
    run_readme(tmp_path)
    again = run_readme(tmp_path)
    assert "Restoring parameters from runs/line/model.ckpt-300" in again
    assert "step 600:" in again


def test_the_service_trains_answers_and_saves(tmp_path: Path) -> None:
    drive = """
async def serve():
    async with lifespan(None) as state:
        sess = state["session"]
        while sess.global_step < 300:
            await asyncio.sleep(0.001)
        print(round(float(await sess.peek(slope)), 1))
    print(sess.stop_reason)
    print(await am.latest_checkpoint("runs/line"))

asyncio.run(serve())
"""
    program = block("python").replace("asyncio.run(main())", "") + block("python", 1) + drive
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    slope, reason, path = done.stdout.splitlines()
    assert (slope, reason) == ("3.0", "the service stops")
    assert int(path.rpartition("-")[2]) >= 300


def test_ci_runs_the_command_that_tests() -> None:
    assert block("sh", 1) in (ROOT / ".ci" / "run").read_text()
