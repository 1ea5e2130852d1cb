"""A log directory: each folder in it with event files or checkpoints is a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from asyncmon.monitor.run_directory import RunDirectory
from asyncmon.summary.reader import is_event_file
from asyncmon.system.files import in_thread

logger = logging.getLogger(__name__)

MOST_RUNS = 200
_DEEPEST = 6
_MOST_FOLDERS = 20_000


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
        folders = [(self.path, 0)]
        seen = 0
        while folders and seen < _MOST_FOLDERS:
            path, depth = folders.pop()
            seen += 1
            try:
                with os.scandir(path) as entries:
                    found = list(entries)
            except (FileNotFoundError, NotADirectoryError):
                continue  # not there yet, or no longer
            except OSError as error:
                if path not in self._refused:
                    self._refused.add(path)
                    logger.warning("The monitor cannot list %s: %s", path, error.strerror)
                continue
            shown = [entry for entry in found if _shows(entry)]
            if shown:
                yield path, max(map(_changed, shown))
            if depth < _DEEPEST:
                inner = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
                folders += [(e.path, depth + 1) for e in inner if not e.name.startswith(".")]


def _shows(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    wanted = is_event_file(name) or name == "checkpoint" or name.endswith((".safetensors", ".index"))
    return wanted and entry.is_file(follow_symlinks=False)


def _changed(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0  # deleted since the scan
