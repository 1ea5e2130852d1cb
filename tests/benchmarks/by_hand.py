"""The training step of :func:`models.mlp` by hand: numpy, in place, nothing large allocated.

Run as a script it is a peer, see :class:`harness.Peer`. It has a process of its own, for threads of
BLAS spin for some time after each product and slow down other work of their process.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from itertools import pairwise
from typing import Any

import models
import numpy as np
from harness import seconds, typical

Array = np.ndarray[Any, np.dtype[Any]]


class HandMade:
    """Dense layers with relu between them and Adam, as one writes them for speed."""

    def __init__(self, sizes: list[int], batch: int) -> None:
        rng = np.random.default_rng(0)
        pairs = list(pairwise(sizes))
        self.weights = [
            rng.uniform(-1, 1, pair).astype(np.float32) * np.float32(pair[0] ** -0.5) for pair in pairs
        ]
        self.biases = [np.zeros(columns, np.float32) for _, columns in pairs]
        self.outputs = [np.empty((batch, columns), np.float32) for _, columns in pairs]
        self.deltas = [np.empty((batch, columns), np.float32) for _, columns in pairs]
        self.positive = [np.empty((batch, columns), np.bool_) for _, columns in pairs[:-1]]
        self.variables = [*self.weights, *self.biases]
        self.gradients = [np.empty_like(variable) for variable in self.variables]
        self.means = [np.zeros_like(variable) for variable in self.variables]
        self.squares = [np.zeros_like(variable) for variable in self.variables]
        largest = max(variable.size for variable in self.variables)
        scratch = np.empty(largest, np.float32)
        self.scratch = [scratch[: v.size].reshape(v.shape) for v in self.variables]
        self.rows = np.arange(batch)
        self.share = np.float32(1 / batch)
        self.betas = np.array([0.9, 0.999], np.float32)
        self.powers = self.betas.copy()
        self.steps = 0

    def step(self, images: Array, labels: Array) -> np.float32:
        """Train on one batch; return its loss."""
        loss = self.forward(images, labels)
        self.backward(images)
        self.adam()
        self.steps += 1
        return loss

    def forward(self, images: Array, labels: Array) -> np.float32:
        hidden, last = images, len(self.weights) - 1
        for i, (weights, biases, output) in enumerate(
            zip(self.weights, self.biases, self.outputs, strict=True)
        ):
            np.dot(hidden, weights, out=output)
            output += biases
            if i < last:
                np.maximum(output, 0, out=output)
            hidden = output
        delta = self.deltas[-1]
        hidden -= hidden.max(axis=1, keepdims=True)
        np.exp(hidden, out=delta)
        total = delta.sum(axis=1, keepdims=True)
        loss: np.float32 = (np.log(total[:, 0]) - hidden[self.rows, labels]).mean()
        delta /= total
        delta[self.rows, labels] -= 1
        delta *= self.share
        return loss

    def backward(self, images: Array) -> None:
        count = len(self.weights)
        for i in reversed(range(count)):
            below = self.outputs[i - 1] if i else images
            np.dot(below.T, self.deltas[i], out=self.gradients[i])
            self.deltas[i].sum(axis=0, out=self.gradients[count + i])
            if i:
                np.dot(self.deltas[i], self.weights[i].T, out=self.deltas[i - 1])
                np.greater(below, 0, out=self.positive[i - 1])
                self.deltas[i - 1] *= self.positive[i - 1]

    def adam(self) -> None:
        slow1, slow2 = 1 - self.betas
        epsilon = np.float32(1e-8)
        rate = np.float32(0.001) * np.sqrt(1 - self.powers[1]) / (1 - self.powers[0])
        for variable, gradient, mean, square, scratch in zip(
            self.variables, self.gradients, self.means, self.squares, self.scratch, strict=True
        ):
            np.subtract(gradient, mean, out=scratch)
            scratch *= slow1
            mean += scratch
            np.multiply(gradient, gradient, out=scratch)
            scratch -= square
            scratch *= slow2
            square += scratch
            np.sqrt(square, out=scratch)
            scratch += epsilon
            np.divide(mean, scratch, out=scratch)
            scratch *= rate
            variable -= scratch
        self.powers *= self.betas


def main() -> None:
    """Answer ``{"open": "mlp", "sizes": ..., "shape": ...}`` and ``{"steps": n}``."""
    step: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, float] = {}
        if "open" in request:
            sizes, shape = request["sizes"], request["shape"]
            step = partial(HandMade(sizes, shape[0]).step, *models.batch(shape))
        else:
            answer["seconds"] = typical(partial(seconds, step), request["steps"], request.get("core"))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
