"""Failures of diagnostics, which must not end a training.

Diagnostics are what shows a training and is no part of its state: ``graph.pbtxt``, event files, traces,
the progress, the monitor. A failed write is retried, then reported once, with the path and the free
space of its disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from asyncmon.system.files import in_thread

logger = logging.getLogger(__name__)

_RETRY_SECS = (0.1, 1.0)


class Diagnostics:
    """Tolerates and reports the errors of the operating system of one kind of output.

    An error is reported once, and again only after a success.

    Args:
        what: the output, as the subject of the log line.

    Example::

        diagnostics = Diagnostics("The progress")
        with diagnostics.tolerated("standard error"):
            print(text, file=sys.stderr)
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._failing = False

    @contextlib.contextmanager
    def tolerated(self, where: str | Path) -> Iterator[None]:
        """Report an ``OSError`` of the block, and suppress it.

        Args:
            where: a path, or a description of another place.
        """
        try:
            yield
        except OSError as error:
            self._report(error, where)
        else:
            self._failing = False

    async def write(self, path: str | os.PathLike[str], write: Callable[[], Awaitable[object]]) -> None:
        """Write a file by an async function; retry after an ``OSError``, and report the last one."""
        for secs in (*_RETRY_SECS, None):
            try:
                await write()
            except OSError as error:
                if secs is None:
                    await in_thread(self._report, error, Path(path))
                else:
                    await asyncio.sleep(secs)
            else:
                self._failing = False
                return

    def _report(self, error: OSError, where: str | Path) -> None:
        if not self._failing:
            self._failing = True
            logger.error(
                "%s cannot be written to %r: %s%s. The training continues; this is logged once.",
                self._what,
                str(where),
                error.strerror or error,
                f" ({free_space(where)})" if isinstance(where, Path) else "",
            )


def free_space(path: str | os.PathLike[str]) -> str:
    """Return the free space of the disk of a path, which may not exist, as a text. Blocking."""
    place = Path(os.path.abspath(path))
    for directory in (place, *place.parents):
        with contextlib.suppress(OSError):
            return f"{shutil.disk_usage(directory).free / 1e6:,.1f} MB free"
    return "free space unknown"
