"""Checkpoints of earlier versions are restored, with the states of hooks and data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph as g

DATA = Path(__file__).parent / "version_0_1_0"

pytestmark = pytest.mark.asyncio


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def elements() -> am.data.Dataset:
    return am.data.from_iterable(np.arange(10, dtype=np.float32)).shuffle(4, seed=1)


async def test_a_checkpoint_of_version_0_1_0_is_restored_whole(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("make.py"))
    all_elements = [float(x) async for x in elements()]
    x = g.placeholder(g.float32, [], name="x")
    weight = g.get_variable("weight", initializer=1.0)
    train = g.group(weight.assign_add(x), am.get_or_create_global_step().assign_add(1))
    evaluation = am.EvalHook({"loss": g.constant(1.0)}, lambda: [{}], every_steps=1, concurrent=False)
    stop = am.stop_if_no_decrease(evaluation, "loss", 6)
    seen = []
    async with am.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), hooks=[evaluation, stop]
    ) as sess:
        assert sess.global_step == 4
        assert await sess.peek(weight) == 1.0 + sum(all_elements[:4])
        async for value in sess.iterate(elements()):
            seen.append(float(value))
            await sess.run(train, {x: value})
    assert seen == all_elements[4:7]  # the position; and 3 evaluations without a decrease came before
    assert sess.stop_reason is not None
    assert "no decrease of 'loss' in 6 evaluations up to step 7" in sess.stop_reason
    manifest = read_json(tmp_path / "model.ckpt-7.json")
    assert "travellers" not in manifest
    assert manifest["stateful"]["hooks/EarlyStoppingHook"]["rule"]["without_progress"] == 6
    assert any(name.startswith("__stateful__/data/") for name in manifest["tensors"])
