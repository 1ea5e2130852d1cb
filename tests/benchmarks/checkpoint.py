"""What a checkpoint costs: ``python tests/benchmarks/checkpoint.py``.

The state is 1 GB in 1,000 arrays, in memory; files go to the page cache (``/dev/shm`` where there is
one), so that the disk of the machine is not measured. The peer is ``safetensors.numpy``, which
writes neither checksums nor manifests, and flushes nothing. The ratio to it is of the same run; it too
writes a new file beside the old one, for memory that was in use just now is much faster than other.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
from harness import QUICK, Row, command, take_turns

from asyncmon.checkpoint import Saver
from asyncmon.system.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ARRAYS = 1000


class State:
    """A session that is nothing but its state; a step writes all of it, copy-on-write."""

    def __init__(self, megabytes: int) -> None:
        count = megabytes * 1_000_000 // 4 // ARRAYS
        self.arrays = {
            f"layer_{number}/kernel": np.arange(number, number + count, dtype=np.float32)
            for number in range(ARRAYS)
        }
        self.nbytes = sum(array.nbytes for array in self.arrays.values())
        self.shared: set[str] = set()

    def snapshot(self) -> Awaitable[Snapshot]:
        self.shared = set(self.arrays)
        future: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()
        future.set_result(Snapshot(self.arrays, 0, self.shared.clear))
        return future

    async def load(self, values: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self.copy_from, values)

    def step(self) -> None:
        for name, array in self.arrays.items():
            if name in self.shared:
                self.arrays[name] = array + 1
                self.shared.discard(name)
            else:
                np.add(array, 1, out=array)

    def copy_from(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            np.copyto(self.arrays[name], value)


class Watch:
    """Ticks every millisecond: how late the loop is, and how much memory the process has."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.before = self.peak = resident()

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.lags.append(time.perf_counter() - began - 0.001)
            self.peak = max(self.peak, resident())

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.lags, n=100)[-1]


def resident() -> int:
    """Return the bytes of memory that are the process's own, mapped files apart."""
    with open("/proc/self/statm") as file:
        _, pages, shared, *_ = map(int, file.read().split())
    return (pages - shared) * os.sysconf("SC_PAGE_SIZE")


async def watched(work: Callable[[], Awaitable[Any]]) -> Watch:
    watch = Watch()
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    await work()
    task.cancel()
    return watch


def timed(fn: Callable[[], object]) -> float:
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def start_save(state: State, directory: Path) -> float:
    async def main() -> float:
        saver = Saver(max_to_keep=1)
        start = time.perf_counter()
        handle = saver.start_save(state, directory / "model.ckpt", 1)
        returned = time.perf_counter() - start
        await handle
        await saver.close()
        return returned

    return asyncio.run(main())


def rates(state: State, directory: Path) -> list[Row]:
    """Save and restore, by turns with safetensors.

    Files get new pages, which in memory take two thirds of the time: 0.12 of 0.18 s for 500 MB.
    A first save's pages are new to the system, too, which is most of its time on a virtual machine.
    Later ones get the pages that retention freed; its deletion is part of a save's time.
    """
    plain = directory / "plain.safetensors"
    loop, saver, steps = asyncio.Runner(), Saver(max_to_keep=1), itertools.count(1)

    def save() -> float:
        async def main() -> float:
            start = time.perf_counter()
            saver.start_save(state, directory / "again" / "model.ckpt", next(steps))
            await saver.drain()
            return time.perf_counter() - start

        return loop.run(main())

    def first_save() -> float:
        async def main() -> float:
            saver = Saver(max_to_keep=1)
            await saver.claim(directory)
            start = time.perf_counter()
            await saver.save(state, directory / "model.ckpt", 1)
            seconds = time.perf_counter() - start
            await saver.close()
            return seconds

        return asyncio.run(main())

    def restore() -> float:
        async def main() -> float:
            start = time.perf_counter()
            await Saver().restore(state, directory / "model.ckpt-1")
            return time.perf_counter() - start

        return asyncio.run(main())

    def save_plain() -> None:
        beside = directory / "beside.safetensors"
        safetensors.numpy.save_file(state.arrays, beside)
        beside.replace(plain)

    def load_plain() -> None:
        state.copy_from(safetensors.numpy.load_file(plain))

    found = take_turns(
        {
            "save": save,
            "first save": first_save,
            "peer save": lambda: timed(save_plain),
            "restore": restore,
            "peer restore": lambda: timed(load_plain),
        },
        rounds=5,
        warmup=3,
    )
    loop.run(saver.close())
    loop.close()
    rows = []
    for name in ("save", "restore"):
        rate = state.nbytes / found[name] / 1e9
        ratio = found[name] / found[f"peer {name}"]
        met = rate >= 1 and ratio <= 1.3
        said, wanted = f"{rate:.2f} GB/s", "1 GB/s, 1.3x safetensors"
        if name == "save":
            said += f", a first one to new pages {state.nbytes / found['first save'] / 1e9:.2f} GB/s"
        rows.append(Row(f"{name}, checksummed", said, wanted, met, {"safetensors": ratio}))
    return rows


def lags(state: State, directory: Path) -> list[Row]:
    saver = Saver(max_to_keep=1)
    saving = asyncio.run(watched(lambda: saver.save(state, directory / "model.ckpt", 2)))
    restoring = asyncio.run(watched(lambda: saver.restore(state, directory / "model.ckpt-2")))
    said = f"{saving.p99 * 1e3:.2f} and {restoring.p99 * 1e3:.2f} ms"
    met = max(saving.p99, restoring.p99) <= 0.005
    return [Row("loop lag p99 during a save and a restore", said, "5 ms", met)]


def memory(state: State, directory: Path) -> list[Row]:
    saver = Saver(max_to_keep=1)

    async def while_steps_go_on() -> None:
        handle = saver.start_save(state, directory / "model.ckpt", 3)
        while not handle.done:
            await asyncio.to_thread(state.step)
        await handle

    state.step()
    watch = asyncio.run(watched(while_steps_go_on))
    grown = (watch.peak - watch.before) / state.nbytes
    after = (resident() - watch.before) / state.nbytes
    said, met = f"{grown:.2f} and {after:.2f} of the state", grown <= 1.05 and abs(after) <= 0.05
    return [Row("more memory during a save, and after it", said, "1 and 0", met)]


def measured() -> list[Row]:
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    directory = Path(tempfile.mkdtemp(dir=place))
    try:
        state = State(100 if QUICK else 1000)
        took = statistics.median(start_save(state, directory) for _ in range(5)) * 1e3
        rows = [Row("start_save until it returns", f"{took:.2f} ms", "2 ms or less", took <= 2)]
        return [
            *rows, *rates(state, directory), *lags(state, directory), *memory(state, directory)
        ]  # fmt: skip
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(command("checkpoints of 1 GB", {"checkpoint": measured}))
