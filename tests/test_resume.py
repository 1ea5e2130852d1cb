"""Interrupted and resumed, a training run ends where an uninterrupted one does: bit for bit."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.testing import run

DIGITS = Path(__file__).parents[1] / "examples" / "data" / "digits.npz"
STEPS = 60
LENGTH = STEPS * 0.05
"""About how many virtual seconds an uninterrupted run takes."""


class MeanLoss(am.SessionRunHook):
    """A hook with a state that every step changes, some time after the step."""

    def __init__(self, loss: g.Tensor, dice: random.Random) -> None:
        self.loss, self.dice = loss, dice
        self.total, self.count = 0.0, 0

    async def before_run(self, run_context: Any) -> am.SessionRunArgs:
        await asyncio.sleep(self.dice.choice([0, 0.02]))
        return am.SessionRunArgs(self.loss)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        await asyncio.sleep(self.dice.choice([0, 0.02]))
        self.total += float(run_values.results)
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.count = state["total"], state["count"]


class Training:
    """The digits, a perceptron with dropout, Adam: built again for each run, as a process does."""

    def __init__(self, directory: Path, seed: int, **saves: Any) -> None:
        with np.load(DIGITS) as digits:
            images = digits["images"].reshape(-1, 64)[:640].astype(np.float32) / 16
            labels = digits["labels"][:640].astype(np.int64)
        data = am.data.from_arrays((images, labels)).shuffle(1000, seed=3).repeat().batch(32)
        self.data = data.prefetch(2) if seed % 2 else data
        self.dice = random.Random(seed)
        with g.Graph().as_default() as graph:
            g.set_random_seed(7)
            self.x = g.placeholder(g.float32, [None, 64])
            self.y = g.placeholder(g.int64, [None])
            hidden = g.layers.dense(self.x, 32, activation=g.nn.relu)
            logits = g.layers.dense(g.nn.dropout(hidden, rate=0.3), 10)
            loss = g.nn.sparse_softmax_cross_entropy_with_logits(labels=self.y, logits=logits)
            self.loss = g.reduce_mean(loss)
            self.train_op = g.train.AdamOptimizer(1e-2).minimize(self.loss, am.create_global_step())
        self.hook = MeanLoss(self.loss, self.dice)
        self.session = am.MonitoredTrainingSession(
            checkpoint_dir=directory,
            hooks=[am.StopAtStepHook(last_step=STEPS), am.NanTensorHook(self.loss), self.hook],
            program=graph,
            save_graph_def=False,
            save_summaries_steps=0,
            log_step_count_steps=None,
            **saves,
        )

    async def train(self) -> dict[str, Any]:
        """Train until a stop; return the state in the end."""
        async with self.session as sess:
            async for x, y in sess.iterate(self.data):
                await asyncio.sleep(self.dice.choice([0, 0.02]))
                await sess.run(self.train_op, {self.x: x, self.y: y})
                await asyncio.sleep(self.dice.choice([0, 0.02, 0.04]))
            snapshot = await sess.raw_session().snapshot()
            state = {name: np.array(value) for name, value in snapshot.items()}
            [numbers] = [name for name in state if name.startswith("__")]
            state[numbers][0] = 0  # the session's own seed, which the graph's takes the place of
            return state | {"position": self.data.state_dict(), "hook": self.hook.state_dict()}

    async def interrupted(self, way: str) -> None:
        """Train for a part of the way."""
        loop = asyncio.get_running_loop()
        after = self.dice.uniform(0.2, LENGTH - 1)
        task = asyncio.create_task(self.train())
        if way == "stop":
            loop.call_later(after, self.session.request_stop)
            await task
        elif way == "cancel":
            loop.call_later(after, task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            loop.call_later(after, lambda: self.session.coord.request_stop(LookupError("injected")))
            with pytest.raises(LookupError):
                await task


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The state at the end of an undisturbed run."""
    return run(Training(tmp_path_factory.mktemp("whole"), 0, save_checkpoint_steps=50).train())


CADENCES: dict[str, dict[str, Any]] = {
    "by steps": {"save_checkpoint_steps": 7},
    "by seconds": {"save_checkpoint_secs": 0.3},
}


@pytest.mark.parametrize("cadence", CADENCES)
@pytest.mark.parametrize("way", ["stop", "cancel", "error"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(
    uninterrupted: dict[str, Any], tmp_path: Path, seed: int, way: str, cadence: str
) -> None:
    saves = CADENCES[cadence]
    run(Training(tmp_path, seed, **saves).interrupted(way))
    resumed = run(Training(tmp_path, seed + 100, **saves).train())
    assert resumed.keys() == uninterrupted.keys()
    assert resumed["global_step"] == STEPS
    for name, value in uninterrupted.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(resumed[name], value, err_msg=name)
    assert resumed["hook"] == uninterrupted["hook"]
