"""The folders of a log directory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

MOST_FOLDERS = 20_000


def folders(
    root: str, on_error: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield a directory and the folders below it, the nearest ones first, with their entries. Blocking.

    Links are not followed, hidden folders are skipped, and there are ``MOST_FOLDERS`` at most.

    Args:
        root: the directory; it need not exist.
        on_error: called with the error of each folder that cannot be listed, and if there are more.
    """
    waiting = deque([root])
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        path = waiting.popleft()
        try:
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            inner = [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            continue  # not there yet, or no longer
        except OSError as error:
            if on_error is not None:
                on_error(error)
            continue
        yield path, found
        waiting.extend(path for path in inner if not os.path.basename(path).startswith("."))
    if waiting and on_error is not None:
        on_error(OSError(f"{root!r} has more than {MOST_FOLDERS:,} folders; the others are not read."))
