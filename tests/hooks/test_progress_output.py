"""ProgressHook in a process whose error output is closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PIPED = """
import asyncio
import asyncmon as am
from asyncmon.programs import FunctionProgram

program = FunctionProgram({"w": 0.0})

@program.step
async def train(state):
    state["w"] += 1
    await asyncio.sleep(0.002)

async def main():
    print("before", flush=True)
    hooks = [am.ProgressHook(last_step=400, every_secs=0.01), am.StopAtStepHook(last_step=400)]
    async with am.MonitoredSession(am.ChiefSessionCreator(program=program), hooks=hooks) as sess:
        while not sess.should_stop():
            await sess.run("train")
        step = sess.global_step
    print("trained to", step, flush=True)

asyncio.run(main())
"""


def test_a_closed_error_output_leaves_the_programs_output_alone(tmp_path: Path) -> None:
    """The reader of stderr ends; what the program prints still arrives."""
    assert printed_without_reader(tmp_path / "train.py") == (["before", "trained to 400"], 0)


def printed_without_reader(script: Path) -> tuple[list[str], int]:
    """Run a training whose stderr is closed after its first byte."""
    script.write_text(PIPED)
    read, write = os.pipe()
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=write) as process:
        os.close(write)
        os.read(read, 1)  # the first line of the progress
        os.close(read)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    return printed.splitlines(), process.returncode
