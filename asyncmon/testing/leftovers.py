"""Detect tasks, threads, open files and temporary files that a block of code leaves behind."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from asyncmon.testing.virtual_time import is_pool_worker

_ITERATIONS = 200  # of the loop, a millisecond each, until callbacks and threads have finished


@asynccontextmanager
async def assert_nothing_left_behind(
    *directories: str | os.PathLike[str],
    tasks: bool = True,
    threads: bool = True,
    descriptors: bool = True,
) -> AsyncGenerator[None]:
    """Assert that the block leaves no task, thread, file descriptor or temporary file behind.

    Objects from before the block and idle workers of thread pools do not count. Temporary files are
    files made through :mod:`tempfile` during the block and, below ``directories``, files whose name
    starts with a dot or ends in ``.tmp`` or ``.partial``. Lock files (``.lock``) may stay.

    An exception of the block propagates unchanged, without any assertion.

    Args:
        directories: also search these for temporary files, recursively.
        tasks: whether to check tasks; likewise ``threads`` and ``descriptors``.

    Raises:
        AssertionError: something was left behind; the message lists all of it.

    Example::

        async with assert_nothing_left_behind(tmp_path):
            async with MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
                await sess.run(train_op)
    """
    before = _Inventory(directories)
    with _private_temporary_directory() as temporary:
        yield
        checked = {"task": tasks, "thread": threads, "descriptor": descriptors, "file": True}
        left: list[str] = []
        for iteration in range(_ITERATIONS):
            found = _Inventory([*directories, temporary], any_name_in=temporary)
            left = [what for kind, what in found.beyond(before) if checked[kind]]
            if not left:
                return
            if iteration == 0:
                gc.collect()  # a traceback in a reference cycle keeps the objects of its frames
            time.sleep(0.001)  # noqa: ASYNC251 -- real time, for threads; the loop's may be virtual
            await asyncio.sleep(0)
    raise AssertionError("left behind:\n" + "\n".join(f"  {what}" for what in left))


class _Inventory:
    """The existing objects: ``(kind, identity) -> description``."""

    def __init__(
        self, directories: Iterable[str | os.PathLike[str]], any_name_in: Path | None = None
    ) -> None:
        self.things: dict[tuple[str, object], str] = {}
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                self.things["task", task] = f"task {task.get_name()!r}: {task.get_coro()!r}"
        for thread in threading.enumerate():
            if not hasattr(thread, "idle_workers") and not is_pool_worker(thread):  # the first: anyio's
                self.things["thread", thread] = f"thread {thread.name!r}"
        for number, target in _descriptors():
            self.things["descriptor", (number, target)] = f"file descriptor {number}: {target}"
        for path in _temporary_files(directories, any_name_in):
            self.things["file", path] = f"temporary file {path}"

    def beyond(self, before: _Inventory) -> list[tuple[str, str]]:
        return [(key[0], what) for key, what in self.things.items() if key not in before.things]


@contextmanager
def _private_temporary_directory() -> Iterator[Path]:
    # A directory of its own: temporary files of other processes must not count.
    outer = tempfile.tempdir
    directory = Path(tempfile.mkdtemp(prefix="asyncmon-leftovers-"))
    tempfile.tempdir = str(directory)
    try:
        yield directory
    finally:
        tempfile.tempdir = outer
        shutil.rmtree(directory, ignore_errors=True)


def _temporary_files(
    directories: Iterable[str | os.PathLike[str]], any_name_in: Path | None
) -> Iterator[Path]:
    for directory in map(Path, directories):
        for path in directory.rglob("*"):
            name, suffix = path.name, path.suffix
            temporary = name.startswith(".") or suffix in {".tmp", ".partial"}
            # lock files stay: deleting one would admit two holders
            if directory == any_name_in or (temporary and suffix != ".lock"):
                yield path


def _descriptors() -> Iterator[tuple[int, str]]:
    for listing in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(listing):
            for name in os.listdir(listing):
                try:
                    yield int(name), os.readlink(f"{listing}/{name}")
                except OSError:  # the descriptor of the listing itself, or no link on this system
                    continue
            return
