"""A saver's list of its checkpoints: kept here, written to the state file, pruned."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from asyncmon.checkpoint import places
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.retention import Kept, Retention
from asyncmon.checkpoint.state import CheckpointState, read_state, write_state
from asyncmon.errors import DataLossError, OpError
from asyncmon.files import FileCalls, in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.checkpoint.store import Store

__all__ = ["Ledger"]

logger = logging.getLogger(__name__)


class Ledger:
    """Which checkpoints a saver has committed and still keeps, oldest first."""

    def __init__(self, retention: Retention, calls: FileCalls) -> None:
        self.kept: list[Kept] = []
        self._retention = retention
        self._calls = calls
        self._continued: set[str] = set()

    async def continue_list(self, store: Store, latest_filename: str) -> None:
        """Take over what the state file lists, at the first save into a directory.

        So ``max_to_keep`` goes on where an earlier run, or an earlier saver, stopped.
        """
        if store.directory in self._continued:
            return
        if not self.kept:
            state = await read_state(store, latest_filename)
            if state is not None:
                await self.recover(state.all_model_checkpoint_paths)
                if state.last_preserved_timestamp is not None:
                    self._retention = self._retention.marked(state.last_preserved_timestamp)
        self._continued.add(store.directory)

    async def recover(self, paths: Sequence[str]) -> None:
        """Replace the list by those of these checkpoints that exist."""
        self.kept = []
        for path in paths:
            directory, basename = places.split(path)
            store = places.open_store(directory, self._calls)
            self._continued.add(directory)
            try:
                data = await store.read(f"{basename}.json")
                manifest = await in_thread(Manifest.decode, data, path)
                self.kept.append(Kept(path, manifest.wall_time, manifest.metrics))
            except DataLossError:
                self.kept.append(Kept(path, await store.mtime(f"{basename}.json")))
            except OSError:
                continue

    async def record(self, store: Store, path: str, manifest: Manifest, latest_filename: str) -> None:
        """Add a committed checkpoint: first the state file says so, then old ones are deleted.

        Where the state file cannot be written the checkpoint is deleted again, unless it took the
        place of an earlier one of its name.
        """
        key = places.split(path)
        kept = [one for one in self.kept if places.split(one.path) != key]
        kept.append(Kept(path, manifest.wall_time, manifest.metrics))
        decision = self._retention.decide(kept)
        state = CheckpointState(
            model_checkpoint_path=path,
            all_model_checkpoint_paths=tuple(one.path for one in decision.listed),
            all_model_checkpoint_timestamps=tuple(one.time for one in decision.listed),
            last_preserved_timestamp=decision.after.last_preserved,
        )
        try:
            await write_state(store, state, latest_filename)
        except BaseException:
            if not manifest.replaces:
                await self._delete(path)
            raise
        self._retention = decision.after
        left = [one for one in decision.excess if not await self._delete(one.path)]
        self.kept = left + decision.listed  # those that could not be deleted are tried again

    async def _delete(self, path: str) -> bool:
        directory, basename = places.split(path)
        try:
            return await places.open_store(directory, self._calls).remove(basename)
        except (OSError, OpError) as error:
            logger.warning("Ignoring: %s", error)
            return False
