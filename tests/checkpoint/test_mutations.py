"""Checkpoint files changed at random: an error or an older checkpoint, never wrong numbers."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from asyncmon.checkpoint import Saver, latest_checkpoint, load_checkpoint
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.errors import DataLossError, NotFoundError

pytestmark = pytest.mark.asyncio

MUTATIONS = 50


def mutate(path: Path, choose: random.Random) -> None:
    """Flip bits, cut off, insert, overwrite or delete."""
    data = bytearray(path.read_bytes())
    at = choose.randrange(len(data))
    match choose.randrange(6):
        case 0 | 1:
            data[at] ^= 1 << choose.randrange(8)
        case 2:
            del data[at:]
        case 3:
            data[at:at] = choose.randbytes(choose.randrange(1, 20))
        case 4:
            data[at : at + 50] = choose.randbytes(50)
        case 5:
            path.unlink()
            return
    path.write_bytes(data)


async def mutations(directory: Path, make_session: Callable[..., Any], count: int, seed: int) -> int:
    def state(step: int) -> dict[str, Any]:
        return {
            "w": np.full((20, 5), float(step)),
            "half": np.full(33, step, np.float16),
            "name": np.array([f"step {step}", "b"], object),
            "global_step": np.array(step),
        }

    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(**state(step)), directory / "right" / "m", step)
    await saver.close()
    choose = random.Random(seed)
    names = sorted(path.name for path in (directory / "right").iterdir() if path.name[0] != ".")
    work = directory / "work"
    noticed = 0
    for number in range(count):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(directory / "right", work)
        victims = choose.sample(names, choose.randrange(1, 3))
        for name in victims:
            mutate(work / name, choose)
        session = make_session(**state(0))
        where = (number, victims)
        path = await Saver().restore_latest(session, work)
        latest = await latest_checkpoint(work)
        # A restore does not depend on the state file; TF1's latest_checkpoint() does (CK-2).
        assert latest == (path if (work / "checkpoint").exists() else None), where
        step = int(session.state["global_step"])
        assert path == (None if step == 0 else str(work / f"m-{step}")), where
        for name, value in state(step).items():
            assert session.state[name].tolist() == value.tolist(), where
        noticed += step != 2
        for step in (1, 2):  # each alone: right, or refused
            try:
                async with await load_checkpoint(work / f"m-{step}") as reader:
                    found = await reader.get_tensors()
            except (DataLossError, NotFoundError):
                continue
            assert all(found[name].tolist() == value.tolist() for name, value in state(step).items())
    return noticed


@pytest.mark.campaign("damage", short=4)
async def test_damage_is_detected(tmp_path: Path, make_session: Callable[..., Any], seed: int) -> None:
    assert await mutations(tmp_path, make_session, MUTATIONS, seed) > MUTATIONS / 8


def signed(body: bytes) -> bytes:
    return b'{"crc32c": "%08x", %b' % (google_crc32c.value(body), body)


async def test_a_manifest_that_is_well_signed_but_wrong_is_refused(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    await Saver().save(make_session(w=np.arange(3.0)), tmp_path / "m", 1)
    right = (tmp_path / "m-1.json").read_bytes()
    members = json.loads(right)
    del members["crc32c"]
    assert signed(json.dumps(members).encode()[1:] + b"\n") == right
    w = members["tensors"]["w"]
    file = members["files"][0]
    for wrong in [
        {**members, "version": 2},
        {**members, "format": "other"},
        {**members, "files": [{**file, "name": "../m"}]},
        {**members, "files": [{"name": "m"}]},
        {**members, "files": 3},
        {**members, "tensors": {"w": {**w, "data_offsets": [0, 1 << 40]}}},
        {**members, "tensors": {"w": {**w, "file": 1}}},
        {**members, "tensors": {"w": {**w, "shape": [-3]}}},
        {**members, "tensors": {"w": {**w, "shape": [4]}}},
        {**members, "tensors": {"w": {**w, "dtype": "float65"}}},
        {**members, "tensors": {"w": {**w, "data_offsets": [0]}}},
        {**members, "texts": {"t": {"dtype": "f4", "shape": [], "values": ["1"]}}},
        {key: value for key, value in members.items() if key != "step"},
    ]:
        with pytest.raises(DataLossError, match="is not one of format"):
            Manifest.decode(signed(json.dumps(wrong).encode()[1:]), "m-1")
    for text in [b"", b"[" * 100_000, b"}", b'"a": 1}']:
        with pytest.raises(DataLossError):
            Manifest.decode(signed(text), "m-1")
    text = {"dtype": "object", "shape": [2], "values": ["one"]}
    wrong = {**members, "texts": {"t": text}}
    (tmp_path / "m-1.json").write_bytes(signed(json.dumps(wrong).encode()[1:]))
    with pytest.raises(DataLossError, match="'t': 1 strings do not fill the shape"):
        async with await load_checkpoint(tmp_path / "m-1") as reader:
            await reader.get_tensors()
