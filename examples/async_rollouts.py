"""Learn cart-pole (PPO) from 32 workers that play meanwhile, with bounded staleness."""

import argparse
import asyncio
import math
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import asyncmon as am
from asyncmon import graph as g

WORKERS, SEGMENT, BATCH, EPOCHS = 32, 32, 32, 4


class CartPole:
    """A pole on a cart that is pushed left or right, until it falls or 500 pushes are done."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        self.state, self.pushes = self.random.uniform(-0.05, 0.05, 4), 0

    def push(self, right: bool) -> bool:
        x, speed, angle, spin = self.state.tolist()
        sin, cos = math.sin(angle), math.cos(angle)
        force = ((10 if right else -10) + 0.05 * spin * spin * sin) / 1.1
        turn = (9.8 * sin - cos * force) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        self.state += 0.02 * np.array([speed, force - 0.05 * turn * cos / 1.1, spin, turn])
        self.pushes += 1
        return abs(x) > 2.4 or abs(angle) > math.radians(12) or self.pushes == 500


async def play(game: CartPole, policy: list, channel: am.Channel, lengths: list[int]) -> None:
    """Play for ever; send what happened in segments, with the version of the policy that played."""
    while True:
        version, (w, b, wp, bp, wv, bv) = channel.version, policy
        values, ends, rows = np.zeros(SEGMENT + 1), [], []
        for t in range(SEGMENT + 1):
            hidden = np.tanh(game.state @ w + b)
            values[t] = (hidden @ wv + bv).item()
            if t < SEGMENT:
                p = 1 / (1 + math.exp(-(hidden @ wp + bp).item()))
                right = game.random.random() < p
                rows.append([*game.state, right, math.log(p if right else 1 - p)])
                ends.append(game.push(right))
                if ends[-1]:
                    lengths.append(game.pushes)
                    game.reset()
        advantage, advantages = 0.0, np.zeros(SEGMENT)
        for t in reversed(range(SEGMENT)):
            ahead = 0.0 if ends[t] else values[t + 1] + 0.9 * advantage
            advantages[t] = advantage = 1 + 0.98 * ahead - values[t]
        await channel.send(np.column_stack([rows, advantages, advantages + values[:-1]]), version)
        await asyncio.sleep(0)


async def train(goal: float, curve: Path) -> None:
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

    lengths, averages, began = list[int](), [0.0], time.monotonic()
    async with am.MonitoredSession() as sess:
        policy = await sess.peek(g.trainable_variables())
        channel = sess.coord.channel(BATCH, max_staleness=2)
        for seed in range(WORKERS):
            sess.coord.create_task(play, CartPole(seed), policy, channel, lengths)
        while averages[-1] < goal and not sess.should_stop():
            batch = np.concatenate([await channel.receive() for _ in range(BATCH)])
            for _ in range(EPOCHS):
                await sess.run(train_op, {data: batch})
            policy[:] = await sess.peek(g.trainable_variables())
            channel.version += 1
            averages.append(sum(lengths[-100:]) / 100)
    (figure := Figure()).subplots().plot(averages)
    figure.suptitle("Cart-pole: mean length of the last 100 games, by updates of the policy")
    await asyncio.to_thread(figure.savefig, curve)
    print(f"{averages[-1]:.0f} pushes, {len(lengths)} games, {time.monotonic() - began:.1f} s, {curve}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=float, default=475)
    parser.add_argument("--curve", type=Path, default=Path("rollouts.png"))
    asyncio.run(train(**vars(parser.parse_args())))
