"""ClusterHook in one process; tests/distributed has those of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncmon.checkpoint import Saver
from asyncmon.hooks import CheckpointSaverHook, ClusterHook
from asyncmon.runtime.hook_check import check_hooks
from asyncmon.testing import RecordingHook
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest.mark.parametrize("is_chief", [True, False])
async def test_it_has_no_effect_outside_a_cluster(train: Train, is_chief: bool) -> None:
    session = await train(ClusterHook(is_chief), runs=3)
    assert session.runs == ["train"] * 3


async def test_it_comes_after_other_hooks_and_before_savers(tmp_path: Path) -> None:
    saver = CheckpointSaverHook(tmp_path, save_steps=1, saver=Saver())
    hook, other = ClusterHook(), RecordingHook()
    assert check_hooks([saver, hook, other]) == (other, hook, saver)
