"""A log directory: each folder in it with event files, checkpoints or a run record is a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from asyncmon.checkpoint.manifest import RECORD_NAME
from asyncmon.monitor.run_directory import RunDirectory
from asyncmon.summary.reader import is_event_file
from asyncmon.system.files import in_thread
from asyncmon.system.folders import folders

logger = logging.getLogger(__name__)

MOST_RUNS = 200


class LogDirectory:
    """Finds the runs in a directory. Symbolic links are not followed.

    Args:
        path: the directory; it need not exist yet.
        name: a prefix of the names of its runs; none by default.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.path = os.path.realpath(path)
        self._name = name
        self._by_path: dict[str, RunDirectory] = {}
        self._is_cut = False
        self._refused: set[str] = set()  # unreadable folders that were logged

    async def scan(self) -> list[RunDirectory]:
        """Return the current runs, sorted by path. A run keeps its object between scans."""
        found = await in_thread(lambda: dict(self._folders()))
        paths = sorted(found)
        if len(paths) > MOST_RUNS:
            if not self._is_cut:
                self._is_cut = True
                logger.warning(
                    "%s has %d runs; the newest %d are shown.", self.path, len(paths), MOST_RUNS
                )
            paths.sort(key=found.__getitem__, reverse=True)
            del paths[MOST_RUNS:]
        before, self._by_path = self._by_path, {}
        for path in sorted(paths):
            self._by_path[path] = before.get(path) or RunDirectory(path, self._run_name(path))
        return list(self._by_path.values())

    def _run_name(self, path: str) -> str:
        below = os.path.relpath(path, self.path)
        if below == ".":
            return self._name or os.path.basename(self.path) or "run"
        return f"{self._name}/{below}" if self._name else below.replace(os.sep, "/")

    def _folders(self) -> Iterator[tuple[str, float]]:
        """Yield folders with event files or checkpoints, and the time of the last change. Blocking."""
        for path, found in folders(self.path, self._cannot_list):
            if shown := [entry for entry in found if _shows(entry)]:
                yield path, max(map(_changed, shown))

    def _cannot_list(self, error: OSError) -> None:
        path = str(error.filename or self.path)
        if path not in self._refused:
            self._refused.add(path)
            logger.warning("The monitor cannot list %s: %s", path, error.strerror or error)


def _shows(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    wanted = (
        is_event_file(name)
        or name in ("checkpoint", RECORD_NAME)
        or name.endswith((".safetensors", ".index"))
    )
    return wanted and entry.is_file(follow_symlinks=False)


def _changed(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0  # deleted since the scan
