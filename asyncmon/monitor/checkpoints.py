"""The checkpoints of one directory, read again only when their files change."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace
from typing import Any, NamedTuple

from asyncmon import checkpoint
from asyncmon.checkpoint import locations
from asyncmon.checkpoint.directory import main_files, read_manifest
from asyncmon.checkpoint.state_file import STATE_NAME, read_state
from asyncmon.checkpoint.store import Store
from asyncmon.checkpoint.tf_checkpoint import index_name, is_part
from asyncmon.errors import OpError
from asyncmon.monitor.run import CheckpointFacts
from asyncmon.system.files import in_thread


class _Known(NamedTuple):
    """The row of a checkpoint and its files; the row is None if the file is no checkpoint."""

    row: CheckpointFacts | None
    files: tuple[str, ...]
    fingerprint: Any  # of the files


class CheckpointTable:
    """The checkpoints in a directory, asyncmon's and TensorFlow's, the newest first.

    A checkpoint is read once, and again when one of its files has changed. Symbolic links are skipped.

    Args:
        directory: a local directory.
    """

    def __init__(self, directory: str) -> None:
        self._store = locations.open_store(directory)
        self._read: dict[str, _Known] = {}  # by the main file's name
        self._lock = asyncio.Lock()  # a scan reuses the earlier rows and verdicts
        self._verifying = asyncio.Lock()

    async def rows(self) -> tuple[CheckpointFacts, ...]:
        """Return all checkpoints, with the verdicts of :meth:`verify` for unchanged files."""
        state = await in_thread(read_state, self._store, STATE_NAME)
        kept = {os.path.basename(path) for path in state.all_model_checkpoint_paths} if state else set()
        found = await self._scanned()
        rows = [replace(row, kept=os.path.basename(row.path) in kept) for row in found]
        return tuple(sorted(rows, key=lambda row: (row.saved or 0.0, row.step or 0), reverse=True))

    async def verify(self) -> tuple[CheckpointFacts, ...]:
        """Read every byte of each checkpoint without a verdict; return the rows with the verdicts.

        Concurrent calls read each checkpoint once.
        """
        await self._scanned()
        for name in list(self._read):
            async with self._verifying:
                known = self._read.get(name)
                if known is None or known.row is None or known.row.verified is not None:
                    continue
                for found in await checkpoint.verify(known.row.path):
                    row = replace(known.row, verified=found.problem is None, problem=found.problem)
                    async with self._lock:
                        if self._read.get(name) == known:
                            self._read[name] = known._replace(row=row)
        return await self.rows()

    async def _scanned(self) -> list[CheckpointFacts]:
        async with self._lock:
            return await in_thread(self._scan)

    def _scan(self) -> list[CheckpointFacts]:
        names = self._store.names()
        before, self._read = self._read, {}
        for name, basename in main_files(names):
            if os.path.islink(os.path.join(self._store.directory, name)):
                continue
            known = before.get(name)
            found = known and self._store.fingerprint(known.files)
            if known is None or found is None or found != known.fingerprint:
                row, files = _row(self._store, name, basename, names)
                known = _Known(row, files, self._store.fingerprint(files))
            self._read[name] = known
        return [known.row for known in self._read.values() if known.row is not None]


def _row(
    store: Store, name: str, basename: str, names: list[str]
) -> tuple[CheckpointFacts | None, tuple[str, ...]]:
    """Return the row of a checkpoint, from its manifest, and its files. Blocking."""
    path = locations.join(store.directory, basename)
    try:
        if name == index_name(basename):
            parts = tuple(part for part in names if is_part(part, basename))
            size = sum(os.path.getsize(os.path.join(store.directory, part)) for part in parts)
            step = re.search(r"-(\d+)$", basename)
            saved = store.mtime(name)
            return CheckpointFacts(
                path=path, step=int(step[1]) if step else None, saved=saved, bytes=size
            ), parts
        manifest = read_manifest(store, basename, path)
    except FileNotFoundError:
        return None, (name,)  # deleted since it was listed
    except (OpError, OSError) as error:
        if f"{basename}.safetensors" not in names:
            return None, (name,)  # some other JSON file
        facts = CheckpointFacts(path=path, saved=store.mtime(name), verified=False, problem=str(error))
        return facts, (name,)
    files = [file.name for file in manifest.files]
    missing = [file for file in files if file not in names]
    return CheckpointFacts(
        path=path,
        step=manifest.step,
        saved=manifest.wall_time,
        bytes=manifest.nbytes,
        verified=False if missing else None,
        problem=f"{', '.join(missing)} is missing" if missing else None,
    ), (name, *files)
