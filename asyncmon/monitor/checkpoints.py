"""The checkpoints of one directory, listed again and again without reading what has not changed."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asyncmon import checkpoint
from asyncmon.checkpoint import locations
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.state_file import STATE_NAME, read_state
from asyncmon.checkpoint.tf_checkpoint import index_name, is_part
from asyncmon.errors import DataLossError
from asyncmon.files import BESIDE, in_thread
from asyncmon.monitor.run import CheckpointFacts

if TYPE_CHECKING:
    from asyncmon.checkpoint.store import Store


class CheckpointTable:
    """The checkpoints in a directory, asyncmon's and TensorFlow's, the newest first.

    A manifest is read once. Files that are symbolic links are left out.

    Args:
        directory: a directory of this machine.
    """

    def __init__(self, directory: str) -> None:
        self._store = locations.open_store(directory)
        self._read: dict[str, tuple[Any, CheckpointFacts | None]] = {}  # by the main file's name
        self._lock = asyncio.Lock()  # a scan takes over what was read, with the verdicts

    async def rows(self) -> tuple[CheckpointFacts, ...]:
        """Return all checkpoints, with the verdicts of :meth:`verify` as long as they hold."""
        state = await read_state(self._store, STATE_NAME)
        kept = {os.path.basename(path) for path in state.all_model_checkpoint_paths} if state else set()
        found = await self._scanned()
        rows = [replace(row, kept=os.path.basename(row.path) in kept) for row in found]
        return tuple(sorted(rows, key=lambda row: (row.saved or 0.0, row.step or 0), reverse=True))

    async def verify(self) -> tuple[CheckpointFacts, ...]:
        """Read every byte of each checkpoint; return the rows with the verdicts."""
        await self._scanned()
        for name, (fingerprint, row) in list(self._read.items()):
            if row is None:
                continue
            for found in await checkpoint.verify(row.path):
                verdict = replace(row, verified=found.problem is None, problem=found.problem)
                async with self._lock:
                    if self._read.get(name, (None,))[0] == fingerprint:
                        self._read[name] = fingerprint, verdict
        return await self.rows()

    async def _scanned(self) -> list[CheckpointFacts]:
        async with self._lock:
            return await in_thread(self._scan)

    def _scan(self) -> list[CheckpointFacts]:
        names = self._store.names()
        before, self._read = self._read, {}
        for name in names:
            basename, _, ending = name.rpartition(".")
            if ending not in ("json", "index") or name.startswith(BESIDE):
                continue
            if os.path.islink(os.path.join(self._store.directory, name)):
                continue
            fingerprint = self._store.fingerprint([name])
            if name in before and before[name][0] == fingerprint:
                self._read[name] = before[name]
            elif fingerprint is not None:
                self._read[name] = fingerprint, _row(self._store, name, basename, names)
        return [row for _, row in self._read.values() if row is not None]


def _row(store: Store, name: str, basename: str, names: list[str]) -> CheckpointFacts | None:
    """Return what is known of a checkpoint before its arrays are read; None if it is none. Blocking."""
    path = locations.join(store.directory, basename)
    try:
        if name == index_name(basename):
            parts = [part for part in names if is_part(part, basename)]
            size = sum(os.path.getsize(os.path.join(store.directory, part)) for part in parts)
            step = re.search(r"-(\d+)$", basename)
            saved = store.mtime(name)
            return CheckpointFacts(
                path=path, step=int(step[1]) if step else None, saved=saved, bytes=size
            )
        manifest = Manifest.decode(store.content(name), path)
    except OSError:
        return None  # deleted since it was listed
    except DataLossError as error:
        if f"{basename}.safetensors" not in names:
            return None  # some other JSON file
        return CheckpointFacts(path=path, saved=store.mtime(name), verified=False, problem=str(error))
    missing = [file.name for file in manifest.files if file.name not in names]
    return CheckpointFacts(
        path=path,
        step=manifest.step,
        saved=manifest.wall_time,
        bytes=manifest.nbytes,
        verified=False if missing else None,
        problem=f"{', '.join(missing)} is missing" if missing else None,
    )
