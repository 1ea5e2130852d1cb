"""What asyncmon does where a system lacks calls that Linux has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from asyncmon.system import portable

HERE = Path(__file__).parents[1]
MAIN_JOB = ["test_training.py", "test_resume.py", "checkpoint/test_saver.py",
            "test_import.py::test_no_name_of_another_package_is_visible"]  # fmt: skip
TWO_SEEDS = "not test_an_interrupted_run or ([1- and steps) or ([2- and seconds)"
"""Of test_resume: with and without prefetching, saves by steps and by time."""


def test_the_main_job_runs_without_posix() -> None:
    """No fcntl, no affinity, no fsync of directories: training, checkpoints and resuming work."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "blocked_calls",
        "-p",
        "no:cacheprovider",
        "-k",
        TWO_SEEDS,
    ]
    done = subprocess.run(
        [*command, *(str(HERE / name) for name in MAIN_JOB)],
        cwd=HERE.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_an_exclusive_lock_excludes_every_other_one(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    one, other = (portable.open_file(tmp_path / "f", os.O_RDWR) for _ in range(2))
    portable.lock(one, shared=True)
    portable.lock(other, shared=True)
    with pytest.raises(BlockingIOError):
        portable.lock(one)
    portable.unlock(other)
    portable.lock(one)
    with pytest.raises(BlockingIOError):
        portable.lock(other, shared=True)
    os.close(one)
    os.close(other)


def test_without_any_locks_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "_fcntl", None)
    (tmp_path / "f").touch()
    descriptor = portable.open_file(tmp_path / "f", os.O_RDWR)
    with pytest.raises(OSError, match="not supported"):
        portable.lock(descriptor)
    os.close(descriptor)


def test_windows_locks_a_byte_behind_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a lock file stays readable, because the locked byte is far behind it."""
    held: set[int] = set()

    def locking(descriptor: int, _mode: int, count: int) -> None:
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        if position in held:
            raise PermissionError(13, "Permission denied")
        held.update(range(position, position + count))

    monkeypatch.setattr(portable, "_fcntl", None)
    monkeypatch.setattr(portable, "_msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    (tmp_path / "f").write_text("pid 1")
    one, other = (portable.open_file(tmp_path / "f", os.O_RDWR) for _ in range(2))
    portable.lock(one)
    portable.lock(other, shared=True)  # the system refuses to delete open files
    with pytest.raises(BlockingIOError):
        portable.lock(other)
    assert min(held) > 1 << 20
    assert os.read(other, 10) == b"pid 1"
    os.close(one)
    os.close(other)


def test_a_rename_over_a_missing_directory_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(FileNotFoundError):
        portable.replace(tmp_path / "f", tmp_path / "none" / "f")


@pytest.mark.parametrize("positioned", [True, False])
def test_a_file_is_read_at_a_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positioned: bool
) -> None:
    if not positioned:
        monkeypatch.delattr(os, "preadv")
    (tmp_path / "f").write_bytes(b"0123456789")
    descriptor = portable.open_file(tmp_path / "f", os.O_RDONLY)
    buffer = bytearray(4)
    assert portable.read_at(descriptor, memoryview(buffer), 3) == 4
    assert buffer == b"3456"
    assert portable.read_at(descriptor, memoryview(buffer), 8) == 2
    assert buffer[:2] == b"89"
    os.close(descriptor)


@pytest.mark.skipif(os.name == "nt", reason="Windows maps no file")
def test_shared_memory_is_reserved_where_the_system_has_no_call_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To write where the disk is full would be a SIGBUS, which ends the process."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    memory = portable.SharedMemory()
    mapping = memory.map(1 << 16, 5 << 16, new=True)
    assert os.fstat(memory.descriptor).st_blocks * 512 >= 5 << 16
    assert mapping[:] == bytes(5 << 16)
    memory.close()
