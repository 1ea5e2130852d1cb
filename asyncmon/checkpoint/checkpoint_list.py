"""A saver's list of its checkpoints: kept here, written to the state file, pruned."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.commit import remove
from asyncmon.checkpoint.directory import read_entry
from asyncmon.checkpoint.manifest import Manifest, manifest_name
from asyncmon.checkpoint.retention import Decision, Kept, Retention
from asyncmon.checkpoint.state_file import CheckpointState, encode_state, load_state
from asyncmon.checkpoint.store import Store
from asyncmon.errors import DataLossError, OpError
from asyncmon.system.files import in_thread

logger = logging.getLogger(__name__)


class CheckpointList:
    """Which checkpoints a saver has committed and still keeps, oldest first.

    Each directory has its own: a save deletes none of another directory, where a graph's saver may have
    been used before. A list that the user has set counts as one.
    """

    def __init__(
        self, retention: Retention, open_store: Callable[[str], Store], relative: bool
    ) -> None:
        self.kept: list[Kept] = []
        self._retention = retention
        self._open_store = open_store
        self._relative = relative
        self._warned = False
        self._is_set = False  # by the user: no state file replaces the list
        self._continued: set[str] = set()
        self._restored_from: str | None = None  # the directory whose list is read again

    def replace(self, kept: Sequence[Kept]) -> None:
        """Replace the list by one that no state file replaces, unless it is empty."""
        self.kept = list(kept)
        self._is_set = bool(kept)

    async def continue_from(self, directory: str, latest_filename: str) -> None:
        """Take over the list in the state file, after a restore from the directory.

        The first save there reads it again: taking the directory may complete a commit that a crash cut
        off.

        Raises:
            OSError: the state file or a manifest cannot be read.
        """
        if self._is_set:
            return
        directory, _ = locations.split(locations.join(directory, "x"))  # as savers spell it
        store = self._open_store(directory)
        await self._take_over(store, latest_filename)
        self._continued.discard(store.directory)
        self._restored_from = store.directory

    async def continue_list(self, store: Store, latest_filename: str) -> None:
        """Take over the list in the state file, at the first save into a directory.

        So ``max_to_keep`` covers the checkpoints of earlier runs and savers. Those that were about to
        be deleted come first. A list that the user has set stays.

        Raises:
            OSError: the state file or a manifest cannot be read. A new list would lose the old ones.
        """
        if store.directory in self._continued:
            return
        if not self._is_set and (
            not self._in(store.directory) or store.directory == self._restored_from
        ):
            await self._take_over(store, latest_filename)
        self._continued.add(store.directory)

    async def _take_over(self, store: Store, latest_filename: str) -> None:
        state = await load_state(store, latest_filename)
        if state is None:
            return
        listed = state.all_model_checkpoint_paths
        excess = [path for path in state.excess_model_checkpoint_paths if path not in listed]
        mine = self._in(store.directory)
        others = [one for one in self.kept if one not in mine]
        self.kept = others + await in_thread(self._existing, [*excess, *listed], store.directory)
        if state.last_preserved_timestamp is not None:
            self._retention = self._retention.marked(state.last_preserved_timestamp)

    async def recover(self, paths: Sequence[str]) -> None:
        """Replace the list, as the user does, by those of these checkpoints that exist."""
        self.replace(await in_thread(self._existing, paths))
        self._continued.update(locations.split(path)[0] for path in paths)

    def plan(
        self, store: Store, path: str, manifest: Manifest, latest_filename: str
    ) -> tuple[Decision, bytes]:
        """Return the decision about the list, and the state file, once a checkpoint is committed.

        Raises:
            RuntimeError: the checkpoint has the path of the state file itself.
        """
        key = locations.split(path)
        kept = [one for one in self._in(key[0]) if locations.split(one.path) != key]
        kept.append(Kept(path, manifest.wall_time, manifest.metrics))
        decision = self._retention.decide(kept)
        best = self._retention.best
        if best is not None and decision.excess and not best.best(kept) and not self._warned:
            self._warned = True
            logger.warning(
                "No checkpoint has the metric %r, by which the best are to be kept: %s is deleted. "
                "Save with metrics={%r: ...}, or give a CheckpointSaverHook metrics=.",
                best.metric, decision.excess[0].path, best.metric,
            )  # fmt: skip
        state = CheckpointState(
            model_checkpoint_path=path,
            all_model_checkpoint_paths=[one.path for one in decision.listed],
            all_model_checkpoint_timestamps=[one.time for one in decision.listed],
            last_preserved_timestamp=decision.after.last_preserved,
            excess_model_checkpoint_paths=[one.path for one in decision.excess],
        )
        return decision, encode_state(store.directory, state, latest_filename, relative=self._relative)

    async def settle(self, directory: str, decision: Decision) -> None:
        """Delete checkpoints after the commit of the state file that no longer lists them."""
        self._retention = decision.after
        left = await in_thread(self._delete, decision.excess) if decision.excess else []
        mine = self._in(directory)
        self.kept = [one for one in self.kept if one not in mine] + left + decision.listed

    def _in(self, directory: str) -> list[Kept]:
        """Return the checkpoints that count together with those of a directory."""
        if self._is_set:
            return self.kept
        return [one for one in self.kept if locations.split(one.path)[0] == directory]

    def _delete(self, excess: Sequence[Kept]) -> list[Kept]:
        """Delete checkpoints; return those that stay, to be tried again after the next save."""
        left = []
        for one in excess:
            directory, basename = locations.split(one.path)
            try:
                if not remove(self._open_store(directory), basename):
                    left.append(one)
            except (OSError, OpError) as error:
                logger.warning("Ignoring: %s", error)
                left.append(one)
        return left

    def _existing(self, paths: Sequence[str], directory: str | None = None) -> list[Kept]:
        """Return the existing ones; the paths of those in ``directory`` as savers write them."""
        found: list[Kept] = []
        for path in paths:
            if directory is not None:
                path = locations.own_path(directory, path) or path
            parent, basename = locations.split(path)
            store = self._open_store(parent)
            with contextlib.suppress(FileNotFoundError):
                try:
                    found.append(read_entry(store, basename, path))
                except DataLossError:  # damaged ones count, too
                    found.append(Kept(path, store.mtime(manifest_name(basename))))
        return found
