"""Maintain a saver's list of checkpoints, its state file, and the deletion of old checkpoints."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.commit import remove
from asyncmon.checkpoint.directory import read_entry
from asyncmon.checkpoint.manifest import manifest_name
from asyncmon.checkpoint.retention import Decision, Kept, Retention
from asyncmon.checkpoint.state_file import checkpoint_table, encode_state, load_state, state_of
from asyncmon.checkpoint.store import Store
from asyncmon.errors import DataLossError, OpError, PermissionDeniedError

logger = logging.getLogger(__name__)


def saver_html(saver: Any) -> str:
    """Return what a notebook shows of a saver: its checkpoints. A method of the saver."""
    return checkpoint_table([(one.path, one.time) for one in saver._list.kept])


class CheckpointList:
    """The checkpoints that a saver keeps, oldest first. Its methods block.

    Retention applies to each directory separately, unless the user has set the list: a save deletes no
    checkpoint of another directory into which the same saver has saved.
    """

    def __init__(
        self, retention: Retention, open_store: Callable[[str], Store], relative: bool
    ) -> None:
        self.kept: list[Kept] = []
        self.retention = retention
        self._open_store = open_store
        self._relative = relative
        self._warned = False
        self._is_set = False  # by the user; then no state file replaces the list
        self._continued: set[str] = set()
        self._restored_from: str | None = None  # its list is read again by the next save there

    def replace(self, kept: Sequence[Kept]) -> None:
        """Set the list. No state file replaces it, unless it is empty."""
        self.kept = list(kept)
        self._is_set = bool(kept)

    def continue_from(self, directory: str, latest_filename: str) -> None:
        """Take over the list in the state file of a directory that was restored from.

        The first save there reads the file again, as claiming the directory may complete the commit of
        an interrupted save.
        """
        if self._is_set:
            return
        directory, _ = locations.split(locations.join(directory, "x"))  # spelled as in a save
        store = self._open_store(directory)
        self._take_over(store, latest_filename)
        self._continued.discard(store.directory)
        self._restored_from = store.directory

    def continue_list(self, store: Store, latest_filename: str) -> None:
        """Take over the list in the state file before the first save into a directory.

        Thus ``max_to_keep`` includes the checkpoints of earlier runs and savers, and pending deletions
        come first. A list that the user has set stays. An OSError prevents the save, which would lose
        the list.
        """
        if store.directory in self._continued:
            return
        if not self._is_set and (
            not self._in(store.directory) or store.directory == self._restored_from
        ):
            self._take_over(store, latest_filename)
        self._continued.add(store.directory)

    def _take_over(self, store: Store, latest_filename: str) -> None:
        state = load_state(store, latest_filename)
        if state is None:
            return
        listed = state.all_model_checkpoint_paths
        excess = [path for path in state.excess_model_checkpoint_paths if path not in listed]
        mine = self._in(store.directory)
        others = [one for one in self.kept if one not in mine]
        self.kept = others + self._existing([*excess, *listed], store.directory)
        if state.last_preserved_timestamp is not None:
            self.retention = self.retention.marked(state.last_preserved_timestamp)

    def recover(self, paths: Sequence[str]) -> None:
        """Set the list to the existing ones of these checkpoints."""
        self.replace(self._existing(paths))
        self._continued.update(locations.split(path)[0] for path in paths)

    def plan(self, store: Store, new: Kept, latest_filename: str) -> tuple[Decision, bytes]:
        """Return which checkpoints stay after a commit, and the new state file.

        A new checkpoint of a state that was captured earlier than others precedes them.
        """
        key = locations.split(new.path)
        kept = [one for one in self._in(key[0]) if locations.split(one.path) != key]
        place = len(kept)
        while place and kept[place - 1].number > new.number:
            place -= 1
        kept.insert(place, new)
        decision = self.retention.decide(kept)
        best = self.retention.best
        if best is not None and decision.excess and not best.best(kept) and not self._warned:
            self._warned = True
            logger.warning(
                "No checkpoint has the metric %r, by which the best are to be kept: %s is deleted. "
                "Save with metrics={%r: ...}, or give a CheckpointSaverHook metrics=.",
                best.metric, decision.excess[0].path, best.metric,
            )  # fmt: skip
        preserved = decision.after.last_preserved
        newest = decision.listed[-1].path
        state = state_of(newest, decision.listed, decision.excess, preserved)
        return decision, encode_state(store.directory, state, latest_filename, relative=self._relative)

    def settle(self, directory: str, decision: Decision) -> None:
        """Delete checkpoints that the committed state file no longer lists."""
        self.retention = decision.after
        left = self._delete(decision.excess)
        mine = self._in(directory)
        self.kept = [one for one in self.kept if one not in mine] + left + decision.listed

    def _in(self, directory: str) -> list[Kept]:
        """Return the checkpoints to which retention applies together."""
        if self._is_set:
            return self.kept
        return [one for one in self.kept if locations.split(one.path)[0] == directory]

    def _delete(self, excess: Sequence[Kept]) -> list[Kept]:
        """Delete checkpoints. Return failed ones, whose deletion the next save retries."""
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
        """Return the existing checkpoints. Blocking; for ``directory`` see ``own_path``."""
        found: list[Kept] = []
        for path in paths:
            if directory is not None:
                path = locations.own_path(directory, path) or path
            parent, basename = locations.split(path)
            store = self._open_store(parent)
            with contextlib.suppress(FileNotFoundError):
                try:
                    found.append(read_entry(store, basename, path))
                except (DataLossError, PermissionDeniedError):  # such ones count, too
                    found.append(Kept(path, store.mtime(manifest_name(basename))))
        return found
