"""Functions for child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from asyncmon.executors import WorkerPolicy


class Broken(Exception):
    pass


class Odd(Exception):
    """Cannot be rebuilt from its arguments."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def double(element: int) -> int:
    return 2 * element


async def async_double(element: int) -> int:
    await asyncio.sleep(0)
    return 2 * element


def arguments(element: int) -> list[str]:
    return sys.argv


def seen(element: int, policy: WorkerPolicy) -> tuple[int, int, Any]:
    return os.getpid(), policy.version, policy.weights


def die_once(element: tuple[int, str]) -> int:
    number, place = element
    if number == 2 and not Path(place).exists():
        Path(place).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(element: int) -> int:
    if element == 2:
        os._exit(7)
    return element


def leave(element: int) -> int:
    raise SystemExit(3)


def fail(element: int) -> int:
    if element == 2:
        raise Broken(f"no {element}")
    return element


def fail_oddly(element: int) -> int:
    raise Odd(element, 5)


def unpicklable(element: int) -> Any:
    return threading.Lock()


def wait(place: str) -> None:
    """Send the number of the process into a pipe, and wait. Note the cleanup."""
    try:
        report(place)
        while True:
            time.sleep(0.01)
    finally:
        open(f"{place}/cleaned", "w").close()


def report(place: str) -> None:
    while not os.path.exists(f"{place}/process"):
        time.sleep(0.01)
    with open(f"{place}/process", "w") as pipe:
        pipe.write(str(os.getpid()))


async def async_wait(place: str) -> None:
    try:
        report(place)
        await asyncio.Event().wait()
    finally:
        open(f"{place}/cleaned", "w").close()  # noqa: ASYNC230 - in a process of its own


def ignore_stop(place: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait(place)


def forking(element: int) -> int:
    """Die, and leave a process that holds all descriptors."""
    if element == 0:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        os._exit(1)
    return element
