"""Which processor a thread runs on, and keeping another one off it.

Whoever wakes a thread to be helped wants it on another processor. On a virtual machine the kernel
cannot tell one that sleeps from one that the host has taken away, and wakes the thread where it is
woken from: the two then take turns, for tens of milliseconds, while the rest of the machine is idle.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["keep_off", "processor"]


def _sched_getcpu() -> Any:
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        return ctypes.PyDLL(None).sched_getcpu  # too quick to let go of the interpreter's lock for
    except (AttributeError, OSError):
        return None


_call = _sched_getcpu()


def processor() -> int:
    """Return the number of the processor that this thread runs on; -1 where nobody can tell."""
    return -1 if _call is None else int(_call())


def keep_off(number: int, threads: Iterable[int]) -> None:
    """Keep threads off a processor, and let them use all others that the calling thread may use.

    Args:
        number: of the processor, as :func:`processor` gives it. If there is no other one, or the
            system forbids it, nothing changes.
        threads: their native ids.
    """
    others = os.sched_getaffinity(0) - {number}
    for thread in threads if others else ():
        with contextlib.suppress(OSError):  # it has ended, or a sandbox does not allow it
            os.sched_setaffinity(thread, others)
