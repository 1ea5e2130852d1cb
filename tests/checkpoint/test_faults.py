"""A save that fails at any of its system calls leaves the directory and the saver as they were."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from asyncmon.checkpoint import (
    Saver,
    get_checkpoint_state,
    latest_checkpoint,
    load_checkpoint,
    update_checkpoint_state,
    verify,
)
from asyncmon.checkpoint.manifest import Manifest, TensorFile
from asyncmon.errors import (
    FailedPreconditionError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnknownError,
)
from asyncmon.system.files import FileCalls
from tests import forked

pytestmark = pytest.mark.asyncio

ERRORS = {
    errno.ENOSPC: ResourceExhaustedError,
    errno.EIO: UnknownError,
    errno.EACCES: PermissionDeniedError,
}


class FailingCalls(FileCalls):
    """The system's calls, of which one fails: the ``nth``, once armed."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.nth = -1
        self.count = 0
        self.log: list[str] = []
        self.reading: set[int] = set()

    def _tick(self, what: str) -> None:
        self.log.append(what)
        self.count += 1
        if self.count == self.nth:
            raise OSError(self.code, os.strerror(self.code), "the file")

    def make_dirs(self, path: Path) -> None:
        self._tick("make_dirs")
        super().make_dirs(path)

    def open(self, path: Path, flags: int) -> int:
        reads = flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_DIRECTORY
        self._tick("open to read" if reads else "open")
        descriptor = super().open(path, flags)
        if reads:
            self.reading.add(descriptor)
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._tick("write")
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self._tick("fsync")
        super().fsync(descriptor)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)  # a close that fails has closed all the same
        reads = descriptor in self.reading
        self.reading.discard(descriptor)
        self._tick("close after reading" if reads else "close")

    def replace(self, source: Path, target: Path) -> None:
        self._tick("replace")
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._tick("unlink")
        super().unlink(path)

    def listdir(self, path: Path) -> list[str]:
        self._tick("listdir")
        return super().listdir(path)

    def arm(self, nth: int) -> None:
        self.count = 0
        self.nth = nth
        self.log.clear()


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".asyncmon.lock"
    }


async def calls_of_a_save(directory: Path, make_session: Callable[..., Any], step: int) -> list[str]:
    calls = FailingCalls()
    saver = Saver(max_to_keep=1, calls=calls)
    session = make_session(a=np.arange(20.0), b=np.arange(20.0))
    await saver.save(session, directory / "model.ckpt", 1)
    calls.arm(-1)
    await saver.save(session, directory / "model.ckpt", step)
    await saver.close()
    return list(calls.log)


async def outcome(save: Awaitable[str | None]) -> tuple[str | None, OpError | None]:
    try:
        return await save, None
    except OpError as error:
        return None, error


@pytest.mark.parametrize("step", [2, 1], ids=["new step", "same step again"])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
async def test_an_error_at_each_call_of_a_save_leaves_everything_as_it_was(
    tmp_path: Path, make_session: Callable[..., Any], code: int, step: int
) -> None:
    """SA-19, CK: write beside, flush, rename, manifest, state file, directory; then delete the old."""
    log = await calls_of_a_save(tmp_path / "count", make_session, step)
    renames = [number for number, call in enumerate(log, 1) if call == "replace"]
    committed = renames[1] + 3  # manifest, state file, and the directory: open, fsync, close
    for nth in range(1, len(log) + 1):
        directory = tmp_path / str(nth)
        calls = FailingCalls(code)
        saver = Saver(max_to_keep=1, calls=calls)
        session = make_session(a=np.arange(20.0), b=np.arange(20.0))
        first = await saver.save(session, directory / "model.ckpt", 1)
        before = content(directory)
        session.step()
        calls.arm(nth)
        where = f"call {nth} of {log}"
        path, error = await outcome(saver.save(session, directory / "model.ckpt", step))
        passes = code == errno.EIO and log[nth - 1] in {"listdir", "open to read"}
        if error is None:  # the save was committed, and went on to tidy up
            assert nth > committed or passes or log[nth - 1] == "close after reading", where
        else:
            assert type(error) is ERRORS[code], where
            assert str(directory) in str(error), where
            assert isinstance(error.__cause__, OSError), where
            assert saver.last_checkpoints == [first], where
            path = first
            assert content(directory) == before, where
        assert await latest_checkpoint(directory) == path, where
        calls.arm(-1)
        assert await saver.save(session, directory / "model.ckpt", 3)
        assert saver.last_checkpoints[-1:] == [str(directory / "model.ckpt-3")]
        await saver.restore(session, str(directory / "model.ckpt-3"))
        await saver.close()
        shutil.rmtree(directory)


class DyingCalls(FailingCalls):
    """The system's calls; from the ``nth`` on nothing is done any more, as after a kill."""

    def _tick(self, what: str) -> None:
        self.log.append(what)
        self.count += 1
        if 0 < self.nth <= self.count:
            raise OSError(errno.ECANCELED, "dead")  # not one that is tried again


@pytest.mark.parametrize("step", [2, 1], ids=["new step", "same step again"])
async def test_a_start_after_a_death_at_each_call_leaves_no_orphan(
    tmp_path: Path, make_session: Callable[..., Any], step: int
) -> None:
    """SA-6: each checkpoint there is either listed or about to be deleted, and then is."""
    log = await calls_of_a_save(tmp_path / "count", make_session, step)
    newest = set()
    for nth in range(1, len(log) + 1):
        directory = tmp_path / str(nth)
        calls = DyingCalls()
        saver = Saver(max_to_keep=1, calls=calls)
        session = make_session(a=np.arange(20.0), b=np.arange(20.0))
        await saver.save(session, directory / "model.ckpt", 1)
        calls.arm(nth)
        with contextlib.suppress(OpError):
            await saver.save(session, directory / "model.ckpt", step)
        await saver.close()  # the only effect of the death of a process: its lock is gone
        calls.arm(-1)
        again = Saver(max_to_keep=1)
        await again.claim(directory)
        state = await get_checkpoint_state(directory)
        assert state is not None
        newest.add(state.model_checkpoint_path.rpartition("-")[2])
        async with await load_checkpoint(state.model_checkpoint_path) as reader:
            assert reader.manifest is not None
            pending = {str(directory / name) for name in reader.manifest.excess}
        found = await verify(directory)
        listed = {*state.all_model_checkpoint_paths, *pending}
        assert {one.path for one in found if one.facts} <= listed, f"call {nth} of {log}"
        await again.save(session, directory / "model.ckpt", 3)
        (found_now,) = await verify(directory)
        assert found_now.facts is not None
        assert content(directory).keys() == {"checkpoint", *found_now.facts.file_names}
        await again.close()
    assert newest == {"1", str(step)}


def write_journal(path: Path, files: list[str], state: bytes, before: bytes) -> None:
    journal = Manifest(
        files=tuple(TensorFile(name, 0, "") for name in files),
        program={
            "asyncmon.state_file": {"checkpoint": state.decode()},
            "asyncmon.state_file_before": {"checkpoint": google_crc32c.value(before)},
        },
    )
    path.write_bytes(journal.encode())


async def test_state_file_of_an_interrupted_save_is_written_unless_it_was_changed_since(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """The save names the content that it was to replace, at any time of the clock."""
    saver = Saver()
    states = []
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
        states.append((tmp_path / "checkpoint").read_bytes())
    await saver.close()
    journal = tmp_path / ".asyncmon-0123abcd-m-2.json"
    await update_checkpoint_state(tmp_path, str(tmp_path / "m-1"), last_preserved_timestamp=1.0)
    by_hand = (tmp_path / "checkpoint").read_bytes()
    for present, expected in [(states[0], "m-2"), (by_hand, "m-1"), (states[1], "m-2")]:
        for age in (-86400, 86400):
            write_journal(journal, ["m-2.safetensors"], states[1], before=states[0])
            (tmp_path / "checkpoint").write_bytes(present)
            changed = os.stat(tmp_path / "checkpoint").st_mtime
            os.utime(tmp_path / "m-2.json", (changed + age, changed + age))
            await saver.claim(tmp_path)
            assert await latest_checkpoint(tmp_path) == str(tmp_path / expected)
            assert not journal.exists()
            await saver.close()


async def test_journal_that_was_not_deleted_takes_no_later_save_back(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """As where a store refuses one deletion, and the next save is committed in the same second."""

    class NoDeletionOfJournals(FileCalls):
        def unlink(self, path: Path) -> None:
            if path.name.startswith(".asyncmon-") and path.name.endswith("m-2.json"):
                raise PermissionError(errno.EACCES, "not this one", str(path))
            super().unlink(path)

    saver = Saver(calls=NoDeletionOfJournals())
    for step in (1, 2, 3):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    await saver.close()
    names = os.listdir(tmp_path)
    assert [name for name in names if name.startswith(".asyncmon-") and name.endswith("m-2.json")]
    for name in names:
        os.utime(tmp_path / name, (1e9, 1e9))
    await saver.claim(tmp_path)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-3")
    await saver.close()


class ShortWrites(FileCalls):
    """A disk that takes at most seven bytes at a time."""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return super().write(descriptor, data[:7])


class FullAfterAWhile(FileCalls):
    """A disk that takes 100 bytes of each write, and then nothing more without saying why."""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return super().write(descriptor, data[:100]) if len(data) > 100 else 0


async def test_short_writes_are_continued(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    saver = Saver(calls=ShortWrites())
    session = make_session(a=np.arange(1000.0))
    path = await saver.save(session, tmp_path / "model.ckpt", 1)
    session.step()
    await saver.restore(session, path)
    np.testing.assert_array_equal(session.state["a"], np.arange(1000.0))


async def test_a_write_that_takes_nothing_fails_the_save(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver(calls=FullAfterAWhile())
    with pytest.raises(UnknownError, match="takes no more than"):
        await saver.save(make_session(a=np.arange(1000.0)), tmp_path / "model.ckpt", 1)
    assert content(tmp_path) == {}


@pytest.mark.parametrize("nth", range(1, 38))
async def test_a_directory_that_vanishes_during_a_save_fails_it_and_the_next_one_makes_it_again(
    tmp_path: Path, make_session: Callable[..., Any], nth: int
) -> None:
    directory = tmp_path / "run"

    class Vanishing(FailingCalls):
        def _tick(self, what: str) -> None:
            self.count += 1
            if self.count == self.nth:
                shutil.rmtree(directory)

    calls = Vanishing()
    saver = Saver(max_to_keep=1, calls=calls)
    session = make_session(a=np.arange(20.0), b=np.arange(20.0))
    await saver.save(session, directory / "model.ckpt", 1)
    calls.arm(nth)
    _, error = await outcome(saver.save(session, directory / "model.ckpt", 2))
    assert error is None or isinstance(error, NotFoundError | FailedPreconditionError)
    calls.arm(-1)
    path = await saver.save(session, directory / "model.ckpt", 3)
    assert await latest_checkpoint(directory) == path
    await saver.restore(session, path)
    await saver.close()


async def test_a_file_in_the_directorys_place_is_named(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    (tmp_path / "run").write_bytes(b"mine")
    saver = Saver()
    with pytest.raises(FailedPreconditionError, match=r"run' is not a directory but a file of 4 bytes"):
        await saver.save(make_session(a=1.0), tmp_path / "run" / "model.ckpt", 1)
    assert (tmp_path / "run").read_bytes() == b"mine"


UNPRIVILEGED = """
import asyncio, os, sys
import numpy as np
from asyncmon.checkpoint import Saver
from tests.checkpoint.memory_session import MemorySession

async def main():
    session = MemorySession(a=np.arange(3.0))
    await Saver().save(session, sys.argv[2] + "/model.ckpt", 1)  # all of Python that it takes is loaded
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    try:
        await Saver().save(session, sys.argv[1] + "/model.ckpt", 2)
    except Exception as error:
        print(type(error).__name__, error)

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without permission")
async def test_a_directory_without_permission_is_named_and_left_alone(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = open_to_all(Path(place))
        saver = Saver()
        path = await saver.save(make_session(a=np.arange(3.0)), directory / "model.ckpt", 1)
        await saver.close()
        before = content(directory)
        text = forked.run("-c", UNPRIVILEGED, str(directory), str(tmp_path)).stdout
        assert text.startswith("PermissionDeniedError Checkpoints cannot be saved into")
        assert "mode 0755" in text
        assert "this process is user 65534" in text
        assert content(directory) == before
        assert await latest_checkpoint(directory) == path


def open_to_all(directory: Path) -> Path:
    directory.chmod(0o755)
    return directory
