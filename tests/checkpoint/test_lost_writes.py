"""After a crash of the machine at any call: what was acknowledged is there, whatever was not flushed.

The calls of a save, of retention and of ``prune`` are recorded. For each prefix of them, directories
are made as a disk may have them afterwards: without what was not flushed, with all renames and
deletions but empty files, and with everything.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import KeepBest, Saver, prune
from asyncmon.system.files import FileCalls

pytestmark = pytest.mark.asyncio

Disk = dict[str, bytes]
MakeSession = Callable[..., Any]


class RecordedCalls(FileCalls):
    """The system's calls, recorded: writes, flushes, renames, deletions of the files below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[tuple[Any, ...]] = []
        self._paths: dict[int, str] = {}

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def make_dirs(self, path: Path) -> None:
        for one in reversed([path, *path.parents]):
            if not one.exists():
                self.log.append(("mkdir", self._name(one)))
        super().make_dirs(path)

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._paths[descriptor] = self._name(path)
        if flags & os.O_CREAT:
            self.log.append(("create", self._name(path)))
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self.log.append(("write", self._paths[descriptor], bytes(data)))
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        self.log.append(("fsync", self._paths[descriptor]))

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.log.append(("rename", self._name(source), self._name(target)))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.log.append(("unlink", self._name(path)))


class Simulated:
    """A disk with names and contents, each as they are now and as they are flushed."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.contents: dict[int, bytes] = {}
        self.flushed_names: dict[str, int] = {}
        self.flushed: dict[int, bytes] = {}
        self._numbers = itertools.count()

    def apply(self, call: tuple[Any, ...]) -> None:
        match call:
            case ("mkdir", name):
                self.names[name] = -1
            case ("create", name):
                number = self.names.setdefault(name, next(self._numbers))
                self.contents.setdefault(number, b"")
            case ("write", name, data):
                self.contents[self.names[name]] += data
            case ("fsync", name) if name == "." or self.names.get(name) == -1:
                below = {one: number for one, number in self.names.items() if self._in(name, one)}
                kept = {
                    one: number for one, number in self.flushed_names.items() if not self._in(name, one)
                }
                self.flushed_names = kept | below
            case ("fsync", name):
                self.flushed[self.names[name]] = self.contents[self.names[name]]
            case ("rename", source, target):
                self.names[target] = self.names.pop(source)
            case ("unlink", name):
                del self.names[name]

    @staticmethod
    def _in(directory: str, name: str) -> bool:
        return os.path.dirname(name) == ("" if directory == "." else directory)

    def variants(self) -> dict[str, Disk]:
        """Return the disks after a crash now, by what was lost."""

        def files(names: dict[str, int], contents: dict[int, bytes]) -> Disk:
            kept = {name: number for name, number in names.items() if number != -1}
            there = {name for name, number in names.items() if number == -1} | {""}
            return {
                name: contents.get(number, b"")
                for name, number in kept.items()
                if os.path.dirname(name) in there
            }

        return {
            "all that was not flushed": files(self.flushed_names, self.flushed),
            "contents that were not flushed": files(self.names, self.flushed),
            "nothing": files(self.names, self.contents),
        }


def put(disk: Disk, directory: Path) -> None:
    for name, content in disk.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


async def restored(directory: Path, make_session: MakeSession) -> int | None:
    session = make_session(global_step=np.int64(-1), a=np.zeros(20))
    saver = Saver(max_to_keep=2, shard_bytes=64)
    path = await saver.restore_latest(session, directory)
    if path is None:
        return None
    step = int(session.state["global_step"])
    assert (session.state["a"] == step).all()
    await saver.save(session, directory / "m", 99)  # tidies up, and works
    await saver.close()
    return step


async def test_every_acknowledged_checkpoint_survives_a_crash_of_the_machine(
    tmp_path: Path, make_session: MakeSession
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    calls = RecordedCalls(root)
    saver = Saver(
        max_to_keep=2,
        shard_bytes=64,
        calls=calls,
        keep_best=KeepBest("loss"),
        keep_checkpoint_every_n_hours=1e9,
    )
    acknowledged = {0: 0}
    for step in (1, 2, 2, 3, 4):
        session = make_session(global_step=np.int64(step), a=np.full(20, float(step)))
        await saver.save(session, root / "deep" / "run" / "m", step, metrics={"loss": float(step == 2)})
        acknowledged[len(calls.log)] = step
    await saver.close()
    await check(calls.log, acknowledged, tmp_path, make_session)


async def test_a_prune_loses_nothing_in_a_crash_of_the_machine(
    tmp_path: Path, make_session: MakeSession
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    calls = RecordedCalls(root)
    saver = Saver(max_to_keep=None, shard_bytes=64, calls=calls)
    for step in (1, 2, 3):
        session = make_session(global_step=np.int64(step), a=np.full(20, float(step)))
        await saver.save(session, root / "run" / "m", step)
    await saver.close()
    acknowledged = {len(calls.log): 3}
    assert len((await prune(root / "run", 1, calls=calls)).deleted) == 2
    await check(calls.log, acknowledged, tmp_path, make_session, "run")


async def check(
    log: list[tuple[Any, ...]],
    acknowledged: dict[int, int],
    tmp_path: Path,
    make_session: MakeSession,
    where: str = "deep/run",
) -> None:
    disk, least, seen, states = Simulated(), 0, set(), 0
    known: set[tuple[tuple[str, bytes], ...]] = set()
    for done in range(len(log) + 1):
        least = max(least, acknowledged.get(done, 0))
        if done >= min(acknowledged):
            for lost, files in disk.variants().items():
                key = (*sorted(files.items()), ("least", str(least).encode()))
                if key in known:
                    continue
                known.add(key)
                states += 1
                directory = tmp_path / f"{done} {lost}"
                put(files, directory)
                step = await restored(directory / where, make_session)
                assert (step or 0) >= least, (done, log[:done][-3:], lost, sorted(files))
                seen.add(step)
        if done < len(log):
            disk.apply(log[done])
    assert states > 10
    assert max(acknowledged.values()) in seen
