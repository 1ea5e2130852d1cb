"""A training and its restart, in which one system call fails: nothing is lost or set back."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver, latest_checkpoint, verify
from asyncmon.errors import OpError
from asyncmon.system.files import FileCalls, system_calls

pytestmark = pytest.mark.asyncio

MakeSession = Callable[..., Any]
KINDS = {
    "open": ["open"], "read": ["read_at"], "close": ["close"], "stat": ["stat", "fstat"],
    "list": ["listdir"], "mmap": ["map"], "fsync": ["fsync"], "rename": ["replace"],
    "write": ["write"], "lock": ["lock"], "unlink": ["unlink"],
}  # fmt: skip
ERRORS = [errno.EIO, errno.ESTALE, errno.EINTR, errno.ENOSPC, errno.EMFILE, errno.EACCES]


class OneFault(FileCalls):
    """The system's calls, of which the nth of a kind fails.

    Attributes:
        hit: whether it has failed.
    """

    def __init__(self, kind: str, nth: int, code: int) -> None:
        self.names, self.left, self.code, self.hit = KINDS[kind], nth, code, False

    def __getattribute__(self, name: str) -> Any:
        call = super().__getattribute__(name)
        if name.startswith("_") or name in {"names", "left", "code", "hit"} or name not in self.names:
            return call

        def failing(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.hit = True
                if name == "close":
                    call(*args)
                raise OSError(self.code, os.strerror(self.code))
            return call(*args, **options)

        return failing


class Training:
    """Saves steps into a directory, and restores them.

    Attributes:
        acknowledged: the last step whose save returned.
    """

    def __init__(self, directory: Path, make_session: MakeSession, calls: FileCalls) -> None:
        self.directory = directory
        self.make_session = make_session
        self.calls = calls
        self.acknowledged = 0

    def state(self, step: int) -> Any:
        return self.make_session(global_step=np.int64(step), a=np.full(20, float(step)))

    async def live(self, steps: int) -> None:
        """Restore, continue for some steps with a save each, and close."""
        saver = Saver(max_to_keep=2, calls=self.calls)
        try:
            step = await self.restored(saver)
            assert step >= self.acknowledged
            await saver.claim(self.directory)
            for _ in range(steps):
                step += 1
                await saver.save(self.state(step), self.directory / "m", step)
                self.acknowledged = step
        finally:
            await saver.close()

    async def restored(self, saver: Saver) -> int:
        session = self.state(0)
        path = await saver.restore_latest(session, self.directory)
        if path is not None:
            await saver.continue_from(self.directory)
        step = int(session.state["global_step"])
        assert (session.state["a"] == step).all()
        assert path is None or path.endswith(f"-{step}")
        return step


@pytest.mark.campaign("system-calls", short=30)
async def test_one_failed_system_call_loses_and_sets_back_nothing(
    tmp_path: Path, make_session: MakeSession, seed: int
) -> None:
    """Where the call fails for good, an error says so, and the next attempt is as without it."""
    dice = random.Random(seed)
    kind, code = dice.choice(list(KINDS)), dice.choice(ERRORS)
    faults = OneFault(kind, dice.randrange(1, dice.choice([4, 12, 40])), code)
    training = Training(tmp_path, make_session, faults)
    before = system_calls.get()
    system_calls.set(faults)
    failures = []
    try:
        for _ in range(3):
            try:
                await training.live(3)
            except OpError as error:
                failures.append(str(error))
    finally:
        system_calls.set(before)
    assert len(failures) <= faults.hit
    assert all(str(tmp_path) in failure for failure in failures)
    training.calls = FileCalls()
    await training.live(1)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / f"m-{training.acknowledged}")
    found = await verify(tmp_path)
    assert [one.problem for one in found] == [None, None]
    names = {name for one in found if one.facts for name in one.facts.file_names}
    assert {*os.listdir(tmp_path)} == {*names, "checkpoint", ".asyncmon.lock"}
