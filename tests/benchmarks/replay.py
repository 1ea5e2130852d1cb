"""What a save of a replay buffer costs if 1 % of it is new.

``python tests/benchmarks/replay.py [200MB|1GB]``.

The ratio is that of the save with 1 % new items to the
first save of the whole buffer, in the same run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from harness import Row, command

from asyncmon.checkpoint import Saver
from asyncmon.data import ReplayBuffer
from asyncmon.system.snapshot import Snapshot

_ROW = 1000  # numbers of an item, of 4 bytes


class State:
    """A session without any state but that of the buffer and a number."""

    def snapshot(self) -> asyncio.Future[Snapshot]:
        future: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()
        future.set_result(Snapshot({"w": np.zeros(1)}))
        return future

    async def load(self, values: object) -> None:
        raise NotImplementedError("nothing is restored")


def sizes(directory: Path) -> dict[str, int]:
    return {one.name: one.stat().st_size for one in directory.iterdir()}


async def saves(megabytes: int, directory: Path) -> tuple[list[float], list[int], float]:
    """Return the seconds and bytes of two saves, and the seconds that the second held the loop."""
    count = megabytes * 1_000_000 // (4 * _ROW)
    buffer = ReplayBuffer(count, seed=1)
    for first in range(0, count, 1000):
        size = min(1000, count - first)
        buffer.extend({"x": np.full((size, _ROW), first, np.float32), "n": np.arange(size)})
    took, written, captured = [], [], 0.0
    saver, before = Saver(), set[str]()
    saver.add_stateful("replay", buffer)
    for step in (1, 2):
        start = time.perf_counter()
        handle = saver.start_save(State(), directory / "model.ckpt", global_step=step)
        captured = time.perf_counter() - start
        await handle
        took.append(time.perf_counter() - start)
        files = sizes(directory)
        written.append(sum(size for name, size in files.items() if name not in before))
        before = set(files)
        new = count // 100
        buffer.extend({"x": np.ones((new, _ROW), np.float32), "n": np.arange(new)})
    await saver.close()
    return took, written, captured


def measured(megabytes: int) -> list[Row]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as path:
        took, written, captured = asyncio.run(saves(megabytes, Path(path)))
    size, share = took[1] / took[0], written[1] / written[0]
    what = f"of {megabytes} MB with 1 % new"
    most = 0.01 + 2 * 4.2 / megabytes  # the segments at both ends are partly new
    said = f"{share:.2%} of the bytes, {size:.1%} of the seconds, start_save {captured * 1e3:.2f} ms"
    met = share <= most and size <= 0.1 and captured <= 0.002
    return [Row(f"a save {what}", said, f"{most:.1%}, 10 %, 2 ms", met)]


if __name__ == "__main__":
    names = {"200MB": partial(measured, 200), "1GB": partial(measured, 1000)}
    sys.exit(command("Saves of a replay buffer", names))
