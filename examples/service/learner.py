"""What the service learns: a model, and a buffer of the rows that came in last."""

from itertools import pairwise
from typing import Any

import numpy as np

import asyncmon as am
from asyncmon import graph as g


class Model:
    """Dense layers with relu between them, and Adam.

    Args:
        sizes: of a row, of each layer, and last the number of classes.
    """

    def __init__(self, sizes: list[int]) -> None:
        self.graph = g.Graph()
        with self.graph.as_default():
            self.rows = g.placeholder(g.float32, [None, sizes[0]], "rows")
            self.labels = g.placeholder(g.int64, [None], "labels")
            hidden = self.rows
            for i, (inputs, outputs) in enumerate(pairwise(sizes)):
                weights = g.get_variable(f"weights{i}", [inputs, outputs])
                biases = g.get_variable(f"biases{i}", [outputs], initializer=g.zeros_initializer())
                hidden = g.nn.bias_add(g.matmul(hidden, weights), biases)
                hidden = g.nn.relu(hidden) if i < len(sizes) - 2 else hidden
            losses = g.nn.sparse_softmax_cross_entropy_with_logits(labels=self.labels, logits=hidden)
            loss = g.reduce_mean(losses, name="mean_loss")
            step = am.get_or_create_global_step()
            self.train_op = g.train.AdamOptimizer(0.001).minimize(loss, global_step=step)
            self.predicted = g.argmax(hidden, 1)
            am.summary.scalar("loss", loss)


class Buffer(am.SessionRunHook):
    """The newest rows with their labels. As a hook with a state it is saved in every checkpoint."""

    def __init__(self, features: int, capacity: int = 2048) -> None:
        self.rows = np.zeros((capacity, features), np.float32)
        self.labels = np.zeros(capacity, np.int64)
        self.seen = 0
        self._random = np.random.default_rng()

    def add(self, row: np.ndarray, label: int) -> None:
        at = self.seen % len(self.labels)
        self.rows[at], self.labels[at] = row, label
        self.seen += 1

    def batch(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = self._random.integers(min(self.seen, len(self.labels)), size=size)
        return self.rows[chosen], self.labels[chosen]

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "labels": self.labels, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.labels, self.seen = state["rows"], state["labels"], state["seen"]


async def learn(sess: Any, model: Model, incoming: Any, buffer: Buffer, batch: int) -> None:
    """Train, from the first ``batch`` rows until the session is to stop; take in all rows before it."""
    while not sess.should_stop():
        while incoming.statistics().size or (buffer.seen < batch and not incoming.closed):
            buffer.add(*await incoming.receive())
        if buffer.seen >= batch:
            rows, labels = buffer.batch(batch)
            await sess.run(model.train_op, {model.rows: rows, model.labels: labels})
    async for row, label in incoming:
        buffer.add(row, label)
