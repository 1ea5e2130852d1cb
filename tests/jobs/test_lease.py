"""Leases end with the processes that hold them, and not before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from asyncmon.jobs.lease import Lease

HOLDER = "import os, sys; os.set_inheritable(int(sys.argv[1]), False); print('ready'); sys.stdin.read()"


def take(path: Path) -> Lease:
    lease = Lease.take(path)
    assert lease is not None
    return lease


def is_free(path: Path) -> bool:
    lease = Lease.take(path)
    if lease is not None:
        lease.release()
    return lease is not None


def test_a_lease_is_held_by_one_holder_at_a_time(tmp_path: Path) -> None:
    lease = take(tmp_path / "job")
    assert not is_free(tmp_path / "job")
    lease.release()
    lease.release()  # nothing more
    assert is_free(tmp_path / "job")


def test_a_child_process_holds_the_lease_that_it_inherits(tmp_path: Path) -> None:
    lease = take(tmp_path / "job")
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lease.descriptor)],
        pass_fds=[lease.descriptor], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        lease.release()  # as at the death of the parent
        assert not is_free(tmp_path / "job")
        child.kill()
    assert is_free(tmp_path / "job")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")  # where another test has imported JAX
def test_a_forked_worker_does_not_hold_the_lease(tmp_path: Path) -> None:
    lease = take(tmp_path / "job")
    (ended, end), (forked, fork) = os.pipe(), os.pipe()
    worker = os.fork()
    if worker == 0:  # as a worker of a DataLoader that outlives the process of the job
        os.close(end)
        os.write(fork, b"f")
        os.read(ended, 1)
        os._exit(0)
    os.read(forked, 1)
    try:
        lease.release()
        assert is_free(tmp_path / "job")
    finally:
        for descriptor in (end, ended, forked, fork):
            os.close(descriptor)
        os.waitpid(worker, 0)


def test_a_lock_on_a_removed_file_is_no_lease(tmp_path: Path) -> None:
    path = tmp_path / "job"
    lease = take(path)
    path.unlink()
    new = take(path)
    lease.release(remove=False)
    assert not is_free(path)
    new.release(remove=True)
    assert not path.exists()


def test_a_lease_follows_no_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / "job").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        Lease.take(tmp_path / "job")
