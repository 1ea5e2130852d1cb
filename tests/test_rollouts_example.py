"""The example of rollouts learns, and each of its elements counts once over kills and stops."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.killed_rollouts import Rollouts


def test_rollouts_improve_the_policy_and_draw_its_curve(tmp_path: Path) -> None:
    lines = Rollouts("async_rollouts.py", tmp_path, 2000, "--goal", "60").live()
    last = re.fullmatch(r"step \d+: (\d+) pushes, \d+ games, rollouts.png", lines[-1])
    assert last is not None, lines
    assert int(last[1]) >= 60
    assert (tmp_path / "rollouts.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.asyncio
@pytest.mark.campaign("kills", short=2)
async def test_each_game_counts_once_over_kills_and_stops(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(seed)
    training = Rollouts("async_rollouts.py", tmp_path, 90, "--goal", "1000")
    for _ in range(6):
        training.live(dice, lines=9)
    training.live()
    await training.check("play", max_age=8)
    record_property("ends", sum(training.ends.values()))
