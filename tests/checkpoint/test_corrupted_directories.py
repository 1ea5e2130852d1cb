"""Any content of a directory: never a wait, never a file outside, always the newest intact one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from asyncmon.checkpoint import (
    KeepBest,
    Saver,
    get_checkpoint_state,
    latest_checkpoint,
    load_checkpoint,
    prune,
    verify,
)
from asyncmon.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    OpError,
    UnknownError,
)
from asyncmon.monitor.run_directory import CheckpointTable
from tests import forked

pytestmark = pytest.mark.asyncio

MakeSession = Callable[..., Any]
WRONG: list[Any] = [
    None, True, -1, 1 << 70, 1.5, float("inf"), float("nan"), "", "x", "../x", "a/b", "a\0b", [], [1],
    ["../x"], {}, {"x": 1}, [[[]]], {"x": {"y": []}},
]  # fmt: skip


def signed(members: dict[str, Any]) -> bytes:
    """Return a manifest with these members and a right checksum."""
    members = {key: value for key, value in members.items() if key != "crc32c"}
    body = json.dumps(members)[1:].encode() + b"\n"
    return b'{"crc32c": "%08x", %b' % (google_crc32c.value(body), body)


async def saved(directory: Path, make_session: MakeSession, *steps: int) -> None:
    saver = Saver(max_to_keep=None)
    for step in steps:
        session = make_session(
            global_step=np.int64(step), w=np.full(40, float(step)), name=np.array("x")
        )
        await saver.save(session, directory / "m", step, metrics={"loss": 1.0})
    await saver.close()


async def restored(directory: Path, make_session: MakeSession) -> int | None:
    """Return the step that a restore of the directory gives, after a check of its values."""
    session = make_session(global_step=np.int64(-1), w=np.zeros(40), name=np.array("y"))
    saver = Saver()
    path = await saver.restore_latest(session, directory)
    await saver.close()
    if path is None:
        return None
    step = int(session.state["global_step"])
    assert (session.state["w"] == step).all()
    return step


async def look_at(directory: Path) -> None:
    """Call all that reads or tidies up a directory."""
    await latest_checkpoint(directory)
    await verify(directory)
    table = CheckpointTable(str(directory))
    await table.rows()
    await table.verify()
    with contextlib.suppress(NotFoundError):
        await prune(directory, 1, dry_run=True)


def damage(directory: Path, dice: random.Random) -> str:
    """Damage the checkpoint of step 2, or add something; return the kind of damage."""
    manifest = directory / "m-2.json"
    part = dice.choice(sorted(directory.glob("m-2*.safetensors")))
    file = dice.choice([manifest, part, directory / "checkpoint"])
    match dice.randrange(9):
        case 0:
            with file.open("r+b") as opened:
                opened.truncate(dice.randrange(file.stat().st_size))
        case 1:
            data = bytearray(file.read_bytes())
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            file.write_bytes(data)
        case 2:
            members = json.loads(manifest.read_bytes())
            place, key = members, dice.choice(sorted(members))
            while isinstance(place[key], dict | list) and place[key] and dice.random() < 0.7:
                place = place[key]
                key = (
                    dice.choice(sorted(place))
                    if isinstance(place, dict)
                    else dice.randrange(len(place))
                )
            place[key] = dice.choice(WRONG)
            manifest.write_bytes(signed(members))
            return f"{key!r} in the manifest is {place[key]!r}"
        case 3:
            file.unlink()
        case 4:
            file.unlink()
            os.mkfifo(file)
        case 5:
            file.unlink()
            file.mkdir()
        case 6:
            file.unlink()
            file.symlink_to(file)
        case 7:
            shutil.copy(directory / "m-1.json", manifest)
        case 8:
            state = json.loads((directory / "checkpoint").read_bytes())
            state[dice.choice(sorted(state))] = dice.choice(WRONG)
            (directory / "checkpoint").write_text(json.dumps(state))
    return f"{file.name} is {file.lstat() if file.is_symlink() or file.exists() else 'missing'}"


@pytest.mark.campaign("damage", short=12)
async def test_the_newest_intact_checkpoint_is_restored(
    tmp_path: Path, make_session: MakeSession, seed: int
) -> None:
    (tmp_path / "outside").write_text("not ours")
    directory = tmp_path / "run"
    await saved(directory, make_session, 1, 2)
    done = damage(directory, random.Random(seed))
    await look_at(directory)
    if done == "'texts' in the manifest is {}":  # signed: the checkpoint of a program without texts
        with pytest.raises(NotFoundError, match=r"m-2':\n  'name' is not in the checkpoint"):
            await restored(directory, make_session)
        return
    step = await restored(directory, make_session)
    assert step in {1, 2}, done
    problems = {one.path[-3:]: one.problem for one in await verify(directory)}
    assert (step == 2) == (problems.get("m-2", "it is missing") is None), (done, problems)
    saver = Saver(max_to_keep=2)
    session = make_session(global_step=np.int64(3), w=np.full(40, 3.0), name=np.array("x"))
    refused = None
    try:
        await saver.save(session, directory / "m", 3)
    except OpError as error:
        refused = error
    if refused is None:
        assert await restored(directory, make_session) == 3, done
    else:
        assert str(directory) in str(refused), done
    await saver.close()
    assert (tmp_path / "outside").read_text() == "not ours"


async def test_each_wrong_member_is_damage_of_that_checkpoint_alone(
    tmp_path: Path, make_session: MakeSession
) -> None:
    await saved(tmp_path, make_session, 1, 2)
    manifest = tmp_path / "m-2.json"
    right = json.loads(manifest.read_bytes())
    for key in right:
        for wrong in WRONG:
            manifest.write_bytes(signed({**right, key: wrong}))
            found = {one.path[-3:]: one for one in await verify(tmp_path)}
            if found["m-2"].problem is not None:
                assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-1"), (key, wrong)
                assert await restored(tmp_path, make_session) == 1, (key, wrong)
            else:
                await look_at(tmp_path)


@pytest.mark.parametrize("where", ["replaces", "files", "journal", "journal's state", "excess"])
async def test_names_in_files_are_never_paths(
    tmp_path: Path, make_session: MakeSession, where: str
) -> None:
    """A directory from elsewhere makes no save delete or replace a file outside, or one of others."""
    directory, victims = tmp_path / "run", [tmp_path / "victim", tmp_path / "run" / "mine.safetensors"]
    await saved(directory, make_session, 1, 2)
    await saved(tmp_path / "other", make_session, 1)
    for victim in victims:
        victim.write_text("precious")
    manifest = directory / "m-2.json"
    members = json.loads(manifest.read_bytes())
    for name in ("../victim", str(victims[0]), "mine.safetensors", "m-2/../../victim"):
        if where == "replaces":
            manifest.write_bytes(signed({**members, "replaces": [name]}))
        elif where == "files":
            files = [{**file, "name": name} for file in members["files"]]
            manifest.write_bytes(signed({**members, "files": files}))
        elif where == "excess":
            excess = ["../other/m-1", str(tmp_path / "other" / "m-1")]
            manifest.write_bytes(signed({**members, "excess": excess}))
        else:
            empty = {key: value for key, value in members.items() if key != "checkpoint"}
            empty |= {"files": [], "tensors": {}, "texts": {}, "stateful": {}, "program": None}
            if where == "journal":
                empty["files"] = [{"name": name, "bytes": 0, "header_crc32c": ""}]
            else:
                text = '{"model_checkpoint_path": "m-2"}'
                empty["program"] = {
                    "asyncmon.state_file": {name: text},
                    "asyncmon.state_file_before": {name: None},
                }
            (directory / ".asyncmon-0123abcd-m-2.json").write_bytes(signed(empty))
        saver = Saver(max_to_keep=1)
        session = make_session(global_step=np.int64(2), w=np.full(40, 2.0), name=np.array("x"))
        await saver.restore_latest(session, directory)
        await saver.continue_from(directory)
        for step in (2, 2, 3):
            await saver.save(session, directory / "m", step)
        await saver.close()
        assert [victim.read_text() for victim in victims] == ["precious"] * 2, name
        assert await latest_checkpoint(tmp_path / "other") is not None
        shutil.rmtree(directory)
        await saved(directory, make_session, 1, 2)
        victims[1].write_text("precious")


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "directory"])
async def test_only_a_file_is_the_lock(tmp_path: Path, make_session: MakeSession, kind: str) -> None:
    lock, victim = tmp_path / "run" / ".asyncmon.lock", tmp_path / "victim"
    lock.parent.mkdir()
    if kind == "link":
        victim.write_text("precious")
        lock.symlink_to(victim)
    elif kind == "dangling link":
        lock.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(FailedPreconditionError, match=r"\.asyncmon\.lock"):
        await Saver().save(make_session(w=np.zeros(3)), tmp_path / "run" / "m", 1)
    if kind == "link":
        assert victim.read_text() == "precious"
    else:
        assert not victim.exists()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", ["m-2.json", "m-2.safetensors", "other.json", "m-3.index", "checkpoint"]
)
@pytest.mark.parametrize("kind", ["pipe", "socket", "directory", "device"])
async def test_nothing_waits_for_what_is_no_file(
    tmp_path: Path, make_session: MakeSession, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver()
    for step in (1, 2):
        session = make_session(
            global_step=np.int64(step), w=np.full(40, float(step)), name=np.array("x")
        )
        await saver.save(session, tmp_path / "m", step)
    await saver.close()
    (tmp_path / name).unlink(missing_ok=True)
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    if kind == "pipe":
        os.mkfifo(name)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(name)
    elif kind == "directory":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    await look_at(tmp_path)
    assert await restored(tmp_path, make_session) == (1 if "m-2" in name else 2)


async def test_a_large_other_file_is_not_read(tmp_path: Path, make_session: MakeSession) -> None:
    await saved(tmp_path, make_session, 1)
    for name in ("train.json", "m-2.json"):
        with (tmp_path / name).open("wb") as file:
            if name == "m-2.json":
                file.write(b'{"crc32c": "')
            file.truncate(4 << 30)
    tracemalloc.start()
    try:
        await look_at(tmp_path)
        assert await restored(tmp_path, make_session) == 1
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


async def test_a_copied_manifest_is_damage(tmp_path: Path, make_session: MakeSession) -> None:
    await saved(tmp_path, make_session, 4)
    shutil.copy(tmp_path / "m-4.json", tmp_path / "m-10.json")
    found = {one.path.rpartition("/")[2]: one.problem for one in await verify(tmp_path)}
    assert found["m-4"] is None
    assert "it is that of the checkpoint 'm-4'" in str(found["m-10"])
    with pytest.raises(DataLossError, match="copied or renamed"):
        await load_checkpoint(tmp_path / "m-10")
    assert await restored(tmp_path, make_session) == 4


async def test_disk_that_fails_for_the_newest_checkpoint_restores_no_older_one(
    tmp_path: Path, make_session: MakeSession
) -> None:
    """Reading /proc/self/mem from its start is an error EIO, each time: the error has the path."""
    await saved(tmp_path, make_session, 1, 2)
    manifest = tmp_path / "m-2.json"
    manifest.unlink()
    manifest.symlink_to("/proc/self/mem")
    text = r"cannot be read: .*\(EIO\) at '.*/m-2\.json'.*try again"
    with pytest.raises(UnknownError, match=text):
        await restored(tmp_path, make_session)
    for call in (latest_checkpoint, load_checkpoint):
        with pytest.raises(UnknownError, match=text):
            await call(tmp_path)


WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, sys
import numpy as np
from asyncmon.checkpoint import Saver, latest_checkpoint, verify
from tests.checkpoint.memory_session import MemorySession

async def main():
    session = MemorySession(global_step=np.int64(-1), w=np.zeros(40), name=np.array("y"))
    saver = Saver()
    await saver.restore_latest(session, sys.argv[1])  # starts threads
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    for more in range(3):
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, hard))
        for call in (saver.restore_latest(session, sys.argv[1]), latest_checkpoint(sys.argv[1]),
                     saver.continue_from(sys.argv[1])):
            try:
                print(await call)
            except Exception as error:
                print(type(error).__name__, error)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("then", await saver.restore_latest(session, sys.argv[1]))

asyncio.run(main())
"""


async def test_a_lack_of_descriptors_is_no_damage(tmp_path: Path, make_session: MakeSession) -> None:
    """Else training would resume from an older checkpoint, and its next one would be the newest."""
    await saved(tmp_path, make_session, 5, 10)
    lines = forked.run("-c", WITHOUT_DESCRIPTORS, str(tmp_path)).stdout.splitlines()
    assert len(lines) == 10
    errors = [line for line in lines if "Error" in line]
    assert errors
    for line in lines[:-1]:
        assert (
            line.endswith("m-10") or line == "None" or line.startswith(("ResourceExhausted", "OSError"))
        )
        assert "EMFILE" in line or "Too many open files" in line or "Error" not in line
        assert str(tmp_path) in line or line == "None"
    assert lines[-1] == f"then {tmp_path}/m-10"


WITHOUT_PERMISSION = """
import asyncio, os, sys
import numpy as np
from asyncmon.checkpoint import Saver
from tests.checkpoint.memory_session import MemorySession

async def main():
    session = MemorySession(global_step=np.int64(-1), w=np.zeros(40), name=np.array("y"))
    await Saver().restore_latest(session, sys.argv[1])  # imports what it needs
    os.setuid(65534)
    try:
        print(await Saver().restore_latest(session, sys.argv[1]))
    except Exception as error:
        print(type(error).__name__, error)

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without permission")
async def test_a_lack_of_permission_is_no_damage(make_session: MakeSession) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        await saved(directory, make_session, 5, 10)
        os.chmod(directory, 0o755)
        os.chmod(directory / "m-10.json", 0o600)
        out = forked.run("-c", WITHOUT_PERMISSION, str(directory)).stdout
        assert out.startswith("PermissionDeniedError Checkpoint")
        assert "m-10" in out


async def test_prune_names_the_metrics_that_there_are(
    tmp_path: Path, make_session: MakeSession
) -> None:
    await saved(tmp_path, make_session, 1, 2, 3)
    with pytest.raises(ValueError, match=r"'los'.*there are: loss"):
        await prune(tmp_path, 1, keep_best=KeepBest("los"))
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert len(state.all_model_checkpoint_paths) == 3
