"""The example of a language model learns, and each of its elements counts once over kills and stops."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

from tests.killed_rollouts import Rollouts


@pytest.mark.asyncio
@pytest.mark.campaign("kills", short=1)
async def test_it_learns_and_each_text_counts_once_over_kills_and_stops(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(seed)
    training = Rollouts("llm_rollouts.py", tmp_path, 40)
    lives = [training.live(dice, lines=25) for _ in range(2)]
    lives.append(training.live())
    await training.check("write", max_age=2)
    rewards = re.findall(r"reward (\S+),", "\n".join(line for life in lives for line in life))
    assert float(rewards[-1]) > 0.3  # 0.08 by chance
    record_property("ends", sum(training.ends.values()))
