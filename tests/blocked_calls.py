"""A pytest plugin that removes system calls that only POSIX has: ``-p blocked_calls``.

File locks, processor affinity, positioned reads, fork hooks, user ids and opening directories are gone,
as they are on Windows.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - from Python 3.12 on it asks for fork hooks where there is fork
import os
import sys

sys.modules["fcntl"] = None  # type: ignore[assignment]  # no such module
for _name in (
    "sched_getaffinity", "O_DIRECTORY", "preadv", "register_at_fork", "geteuid", "statvfs", "ST_RDONLY"
):  # fmt: skip
    delattr(os, _name)
os.process_cpu_count = os.cpu_count  # type: ignore[attr-defined]  # of 3.13, as it is without affinity
