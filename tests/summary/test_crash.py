"""A process that is killed: flushed records are there, and all that are there can be read."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from asyncmon.errors import DataLossError
from asyncmon.summary import summary_iterator
from tests import forked

TRAIN = """
import asyncio, os, sys
from asyncmon.summary import FileWriter

async def train(directory, steps):
    async with FileWriter(directory, max_queue=10, flush_secs=60) as writer:
        for step in range(1, steps + 1):
            writer.add_scalar("loss", 1 / step, step)
            await writer.drain()
            if step % 100 == 0:
                await writer.flush()
                print(step, flush=True)
        {end}

asyncio.run(train(sys.argv[1], int(sys.argv[2])))
"""


def steps(paths: list[Path]) -> list[int]:
    found = []
    for path in paths:
        with contextlib.suppress(DataLossError):  # the last record may be cut off
            for event in summary_iterator(path):
                found.append(event.step)  # noqa: PERF401 -- the records before the damage count
    return found


def test_a_killed_process_loses_nothing_that_was_flushed_fw_3(
    tmp_path: Path, event_files: Callable[[], list[Path]]
) -> None:
    """FW-3."""
    with forked.Process("-c", TRAIN.format(end=""), str(tmp_path), "1000000") as process:
        flushed = [int(process.stdout.readline()) for _ in range(5)][-1]
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    found = steps(event_files())
    assert found == list(range(len(found)))
    assert len(found) > flushed == 500


@pytest.mark.parametrize(("count", "written"), [(20, 11), (25, 22)])
def test_a_process_that_exits_hard_has_written_its_full_batches_mt_17(
    tmp_path: Path, event_files: Callable[[], list[Path]], count: int, written: int
) -> None:
    """MT-17: after 20 summaries and ``os._exit`` TF1 has none of them on disk."""
    assert forked.run("-c", TRAIN.format(end="os._exit(3)"), str(tmp_path), str(count)).returncode == 3
    assert steps(event_files()) == list(range(written + 1))  # drain() waited for these
