"""A pytest plugin that removes system calls that only POSIX has: ``-p blocked_calls``.

File locks, processor affinity, positioned reads, fork hooks, user ids and opening directories are gone,
as they are on Windows.
"""

from __future__ import annotations

import os
import sys

sys.modules["fcntl"] = None  # type: ignore[assignment]
for _name in (
    "sched_getaffinity", "O_DIRECTORY", "preadv", "register_at_fork", "geteuid", "statvfs", "ST_RDONLY"
):  # fmt: skip
    delattr(os, _name)
