"""Learn cart-pole (PPO) while 32 workers play. Kill it, run it again: it resumes."""

import argparse
import asyncio
import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import asyncmon as am
from asyncmon import graph as g
from asyncmon.runtime import Policy

WORKERS, BATCH, EPOCHS, CHUNK = 32, 32, 4, 32


class CartPole:
    """A pole on a cart that is pushed left or right, until it falls or 500 pushes are done."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.state, self.pushes = self.random.uniform(-0.05, 0.05, 4), 0

    def push(self, right: bool) -> bool:
        x, speed, angle, spin = self.state.tolist()
        sin, cos = math.sin(angle), math.cos(angle)
        force = ((10 if right else -10) + 0.05 * spin * spin * sin) / 1.1
        turn = (9.8 * sin - cos * force) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        self.state += 0.02 * np.array([speed, force - 0.05 * turn * cos / 1.1, spin, turn])
        self.pushes += 1
        return abs(x) > 2.4 or abs(angle) > math.radians(12) or self.pushes == 500


async def play(seed: int, policy: Policy) -> np.ndarray:
    """Play the game of a seed, each chunk by the newest weights; return a row for each push."""
    game, rows, values, is_over = CartPole(seed), [], [], False
    while not is_over:
        w, b, wp, bp, wv, bv = await policy.weights()
        await asyncio.sleep(0)
        for _ in range(CHUNK):
            hidden = np.tanh(game.state @ w + b)
            p = 1 / (1 + math.exp(-(hidden @ wp + bp).item()))
            right = game.random.random() < p
            rows.append([*game.state, right, math.log(p if right else 1 - p)])
            values.append((hidden @ wv + bv).item())
            if is_over := game.push(right):
                break
    ahead, advantages = 0.0, np.zeros(len(rows))
    for t in reversed(range(len(rows))):
        advantages[t] = 1 + 0.98 * ahead - values[t]
        ahead = values[t] + 0.9 * advantages[t]
    return np.column_stack([rows, advantages, advantages + values])


async def train(goal: float, steps: int, run_dir: Path, curve: Path) -> None:
    g.set_random_seed(1)
    data = g.placeholder(g.float32, [None, 8])
    right, before, advantage, worth = (data[:, i] for i in range(4, 8))
    hidden = g.layers.dense(data[:, :4], 64, activation=g.tanh)
    logit, value = (g.squeeze(g.layers.dense(hidden, 1), 1) for _ in range(2))
    ratio = g.exp(-g.nn.sigmoid_cross_entropy_with_logits(labels=right, logits=logit) - before)
    mean, variance = g.nn.moments(advantage, [0])
    gain = (advantage - mean) / g.sqrt(variance + 1e-6)
    kept = g.minimum(ratio * gain, g.clip_by_value(ratio, 0.8, 1.2) * gain)
    loss = -g.reduce_mean(kept) + 0.5e-2 * g.reduce_mean(g.square(value - worth))
    train_op = g.train.AdamOptimizer(3e-3).minimize(loss, am.get_or_create_global_step())

    averages = [0.0]
    async with am.MonitoredTrainingSession(
        checkpoint_dir=run_dir, hooks=[am.StopAtStepHook(last_step=steps)], save_checkpoint_steps=20
    ) as sess:
        print(f"begins at step {sess.global_step}")
        games = sess.produce(
            range(1_000_000), play, workers=WORKERS, max_age=2 * EPOCHS, weights=g.trainable_variables()
        )
        async for batch in games.batches(BATCH):
            versions = {item.element: item.version for item in batch}
            averages.append(sum(len(item.value) for item in batch) / BATCH)
            print(f"step {sess.global_step}: {averages[-1]:.0f} pushes, {versions=}")
            if averages[-1] >= goal:
                break
            rows = np.concatenate([item.value for item in batch])
            for _ in range(EPOCHS):
                await sess.run(train_op, {data: rows})
    found = games.statistics()
    (figure := Figure()).subplots().plot(averages)
    figure.suptitle("Cart-pole: mean length of the games of a batch, by updates of the policy")
    await asyncio.to_thread(figure.savefig, curve)
    print(f"step {found.version}: {averages[-1]:.0f} pushes, {found.consumed} games, {curve}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=float, default=475)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--run-dir", type=Path, default=Path("runs/rollouts"))
    parser.add_argument("--curve", type=Path, default=Path("rollouts.png"))
    asyncio.run(train(**vars(parser.parse_args())))
