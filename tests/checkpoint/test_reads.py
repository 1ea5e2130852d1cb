"""Reads that fail in passing are tried again; only missing and malformed files are damage."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import (
    Saver,
    get_checkpoint_state,
    latest_checkpoint,
    load_checkpoint,
    verify,
)
from asyncmon.checkpoint.manifest import Manifest, TextEntry
from asyncmon.errors import (
    DataLossError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
    UnknownError,
)
from asyncmon.system.files import FileCalls, system_calls

pytestmark = pytest.mark.asyncio

MakeSession = Callable[..., Any]
PASSING = ["ESTALE", "EIO", "EINTR", "EMFILE", "ETIMEDOUT"]
CALLS = ["open", "fstat", "read_at", "close", "lock", "map", "stat", "listdir"]


class Faults(FileCalls):
    """The system's calls, of which the nth of a kind fails, and with ``sticky`` all later ones."""

    def __init__(self, kind: str, nth: int, code: int, *, sticky: bool = False) -> None:
        self.kind, self.nth, self.code, self.sticky = kind, nth, code, sticky
        self.count = 0

    def __getattribute__(self, name: str) -> Any:
        call = super().__getattribute__(name)
        if name not in CALLS or name != self.kind:
            return call

        def failing(*args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.nth or (self.sticky and self.count > self.nth):
                if name == "close":
                    call(*args)
                raise OSError(self.code, os.strerror(self.code))
            return call(*args, **options)

        return failing


@pytest.fixture
def arm() -> Iterator[Callable[..., Faults]]:
    """Return a function that replaces the system's calls until the end of the test."""
    before = system_calls.get()

    def arm(*args: Any, **options: Any) -> Faults:
        faults = Faults(*args, **options)
        system_calls.set(faults)
        return faults

    yield arm
    system_calls.set(before)


async def saved(directory: Path, make_session: MakeSession) -> None:
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=np.full(10, float(step))), directory / "m", step)
    await saver.close()


async def restored(directory: Path, make_session: MakeSession) -> float:
    session = make_session(a=np.zeros(10))
    saver = Saver()
    await saver.restore_latest(session, directory)
    await saver.continue_from(directory)
    await saver.claim(directory)
    await saver.close()
    return float(session.state["a"][0])


@pytest.mark.parametrize("code", PASSING)
@pytest.mark.parametrize("kind", CALLS)
async def test_one_failed_call_changes_nothing(
    tmp_path: Path, make_session: MakeSession, arm: Callable[..., Faults], kind: str, code: str
) -> None:
    """Each call in turn of a restore, the taking over of the list, and the claim of the directory."""
    await saved(tmp_path, make_session)
    nth = 0
    while True:
        nth += 1
        faults = arm(kind, nth, getattr(errno, code))
        assert await restored(tmp_path, make_session) == 2.0, f"call {nth}"
        if faults.count < nth:
            break
    assert nth > 1
    arm(kind, 1, getattr(errno, code))
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-2")
    arm(kind, 1, getattr(errno, code))
    assert [one.problem for one in await verify(tmp_path)] == [None, None]


@pytest.mark.parametrize(
    ("code", "error"),
    [("ESTALE", UnavailableError), ("EIO", UnknownError), ("EMFILE", ResourceExhaustedError)],
)
@pytest.mark.parametrize("kind", ["open", "read_at"])
async def test_call_that_keeps_failing_is_an_error_with_the_path(
    tmp_path: Path, make_session: MakeSession, arm: Callable[..., Faults],
    kind: str, code: str, error: type[OpError],
) -> None:  # fmt: skip
    await saved(tmp_path, make_session)
    arm(kind, 1, getattr(errno, code), sticky=True)
    with pytest.raises(error, match=rf"{code}\) at '{tmp_path}/checkpoint'"):
        await restored(tmp_path, make_session)
    with pytest.raises(error, match=f"{tmp_path}/checkpoint"):
        await get_checkpoint_state(tmp_path)
    with pytest.raises(error, match=f"{tmp_path}/m-1"):
        await load_checkpoint(tmp_path / "m-1")


async def test_lack_of_descriptors_while_saving_is_waited_for(
    tmp_path: Path, make_session: MakeSession
) -> None:
    await saved(tmp_path, make_session)
    nth = 0
    while True:
        nth += 1
        faults = Faults("open", nth, errno.EMFILE)
        saver = Saver(calls=faults)
        path = await saver.save(make_session(a=np.zeros(10)), tmp_path / "m", 2 + nth)
        assert await latest_checkpoint(tmp_path) == path
        await saver.close()
        if faults.count < nth:
            break
    assert nth > 10


async def test_name_that_is_too_long_is_said_to_be(tmp_path: Path, make_session: MakeSession) -> None:
    saver, session, name = Saver(), make_session(a=1.0), str(tmp_path / ("x" * 256))
    calls: list[tuple[Any, ...]] = [
        (saver.save, session, name[:-20], 1),
        (load_checkpoint, f"{name}/m-1"),
        (latest_checkpoint, name),
        (saver.restore, session, name),
        (saver.claim, name),
        (saver.save, session, tmp_path / "m", 1, "y" * 256),
    ]
    for call, *arguments in calls:
        with pytest.raises(InvalidArgumentError, match=r"\(ENAMETOOLONG\).* at most 255 bytes"):
            await call(*arguments)


async def test_strings_that_a_small_manifest_claims_are_refused_by_their_size(
    tmp_path: Path, make_session: MakeSession
) -> None:
    await Saver().save(make_session(t=np.array(["a"])), tmp_path / "m", 1)
    manifest = Manifest.decode((tmp_path / "m-1.json").read_bytes(), "m-1")
    for entry in (TextEntry("<U500000000", (1,), ("a",)), TextEntry("|S90000", (2000,), ("a",) * 2000)):
        changed = Manifest(checkpoint="m-1", files=manifest.files, texts={"t": entry})
        (tmp_path / "m-1.json").write_bytes(changed.encode())
        with pytest.raises(DataLossError, match=r"'t'.* take [\d,]+ bytes"):
            await load_checkpoint(tmp_path / "m-1")


async def test_strings_that_a_restore_would_refuse_are_not_saved(
    tmp_path: Path, make_session: MakeSession
) -> None:
    wide = np.zeros(2000, "S90000")
    with pytest.raises(ValueError, match=r"'t'.* take [\d,]+ bytes.*dtype=object"):
        await Saver().save(make_session(t=wide), tmp_path / "m", 1)
    path = await Saver().save(make_session(t=wide.astype(object)), tmp_path / "m", 1)
    async with await load_checkpoint(str(path)) as reader:
        assert (await reader.get_tensor("t")).shape == (2000,)
