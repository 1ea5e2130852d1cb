"""Failed diagnostics are retried, then reported once with the path and the free space."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from asyncmon.system import clock
from asyncmon.system.diagnostics import Diagnostics, free_space

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

FULL = OSError(errno.ENOSPC, "No space left on device")


async def test_a_write_is_retried_and_then_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = 0

    async def write() -> None:
        nonlocal attempts
        attempts += 1
        raise FULL

    diagnostics = Diagnostics("The graph")
    for _ in range(3):
        await diagnostics.write(tmp_path / "x", write)
    assert (attempts, clock.monotonic()) == (9, pytest.approx(3.3))
    (record,) = caplog.records
    assert f"The graph cannot be written to '{tmp_path}/x': No space left" in record.getMessage()
    assert "MB free)" in record.getMessage()


async def test_a_success_is_reported_not_at_all_and_the_next_failure_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [FULL] * 2 + [None] + [FULL] * 3 + [None] + [FULL] * 3

    async def write() -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure

    diagnostics = Diagnostics("The graph")
    await diagnostics.write(tmp_path, write)
    assert not caplog.records
    for _ in range(3):
        await diagnostics.write(tmp_path, write)
    assert (len(caplog.records), failures) == (2, [])


async def test_a_mistake_of_the_code_is_raised(tmp_path: Path) -> None:
    async def write() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await Diagnostics("The graph").write(tmp_path, write)
    with pytest.raises(ValueError, match="wrong"), Diagnostics("The graph").tolerated(tmp_path):
        raise ValueError("wrong")


async def test_the_free_space_of_a_path_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert free_space(tmp_path / "file" / "a" / "b").endswith(" MB free")
