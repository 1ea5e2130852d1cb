"""Files of deleted checkpoints that are written over: only those that nobody can see any more."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver, load_variable, verify
from asyncmon.checkpoint import recycled_files as spare_files
from asyncmon.errors import OpError
from asyncmon.files import FileCalls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="Linux tells who has a file open"),
]


@pytest.fixture(autouse=True)
def _small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_files, "_LEAST", 1)


def spares(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name.endswith("-spare")]


def hidden(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith(".")]


def data(directory: Path, step: int) -> Path:
    (path,) = directory.glob(f"model.ckpt-{step}*.safetensors")
    return path


class Savings:
    """Saves step after step into a directory; every number of a checkpoint is its step."""

    def __init__(self, directory: Path, make_session: Callable[..., Any], **arguments: Any) -> None:
        self.directory = directory
        self.saver = Saver(max_to_keep=1, **arguments)
        self.make_session = make_session

    async def save(self, step: int, size: int = 1000, again_in: float | None = 10.0) -> None:
        session = self.make_session(a=np.full(size, float(step)))
        await self.saver.start_save(
            session, self.directory / "model.ckpt", global_step=step, again_in=again_in
        )

    async def check(self, step: int, size: int = 1000) -> None:
        found = await load_variable(self.directory / f"model.ckpt-{step}", "a")
        assert found.shape == (size,)
        assert set(found) == {step}
        assert [one.problem for one in await verify(self.directory)] == [None]


@pytest.fixture
def savings(tmp_path: Path, make_session: Callable[..., Any]) -> Savings:
    return Savings(tmp_path, make_session)


async def test_a_save_that_follows_another_writes_over_what_was_deleted(savings: Savings) -> None:
    await savings.save(1)
    inode = data(savings.directory, 1).stat().st_ino
    await savings.save(2)
    assert [path.stat().st_ino for path in spares(savings.directory)] == [inode]
    await savings.save(3)
    assert data(savings.directory, 3).stat().st_ino == inode
    await savings.check(3)
    await savings.saver.close()
    assert spares(savings.directory) == []


async def test_other_saves_delete_as_ever(savings: Savings) -> None:
    await savings.save(1, again_in=None)
    await savings.save(2, again_in=None)
    assert spares(savings.directory) == []
    await savings.saver.close()


async def test_a_longer_file_is_cut_and_a_shorter_one_grows(savings: Savings) -> None:
    await savings.save(1, 5000)
    await savings.save(2, 5000)
    await savings.save(3, 100)
    await savings.check(3, 100)
    assert data(savings.directory, 3).stat().st_size < 5000
    await savings.save(4, 7000)
    await savings.save(5, 9000)
    await savings.check(5, 9000)
    await savings.saver.close()


@pytest.mark.parametrize("how", ["open", "mapped", "linked"])
async def test_what_somebody_can_see_is_not_written_over(savings: Savings, how: str) -> None:
    """A reader that knows nothing of our locks, or a second name, as backups make it."""
    await savings.save(1)
    path = data(savings.directory, 1)
    content = path.read_bytes()
    link = savings.directory / "backup"
    descriptor = os.open(path, os.O_RDONLY)
    mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    if how == "linked":
        os.link(path, link)
    if how != "open":
        os.close(descriptor)
    if how != "mapped":
        mapped.close()
    await savings.save(2)
    await savings.save(3)
    await savings.check(3)
    if how == "open":
        assert os.pread(descriptor, len(content), 0) == content
        os.close(descriptor)
    elif how == "mapped":
        assert mapped[:] == content
        mapped.close()
    else:
        assert link.read_bytes() == content
    await savings.saver.close()
    assert spares(savings.directory) == []


async def test_a_spare_that_somebody_tidied_up_is_not_missed(savings: Savings) -> None:
    await savings.save(1)
    await savings.save(2)
    for spare in spares(savings.directory):
        spare.unlink()
    await savings.save(3)
    await savings.check(3)
    await savings.saver.close()


async def test_one_that_cannot_be_opened_is_deleted_and_not_missed(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    class Busy(FileCalls):
        def open(self, path: Path, flags: int) -> int:
            if path.name.endswith("-spare"):
                raise OSError(errno.EMFILE, "Too many open files")
            return super().open(path, flags)

    savings = Savings(tmp_path, make_session, calls=Busy())
    await savings.save(1)
    await savings.save(2)
    (first,) = spares(tmp_path)
    await savings.save(3)
    await savings.check(3)
    assert not first.exists()
    await savings.saver.close()
    assert hidden(tmp_path) == [".asyncmon.lock"]


async def test_a_save_that_fails_leaves_none_of_it(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    class Full(FileCalls):
        full = False

        def write(self, descriptor: int, data: bytes | memoryview) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(descriptor, data)

    calls = Full()
    savings = Savings(tmp_path, make_session, calls=calls)
    await savings.save(1)
    await savings.save(2)
    calls.full = True
    with pytest.raises(OpError, match="No space left"):
        await savings.save(3)
    calls.full = False
    assert spares(tmp_path) == []
    await savings.check(2)
    await savings.save(3)
    await savings.check(3)
    await savings.saver.close()
    assert hidden(tmp_path) == [".asyncmon.lock"]


async def test_what_a_crash_leaves_is_deleted_by_who_saves_next(savings: Savings) -> None:
    (savings.directory / ".asyncmon-00000000-spare").write_bytes(b"left behind")
    await savings.save(1)
    assert spares(savings.directory) == []
    await savings.saver.close()
