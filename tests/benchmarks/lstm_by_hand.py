"""The training step of :func:`models.lstm` by hand: numpy, in place, weights' gradients in one product.

Run as a script it is a peer, see :class:`harness.Peer`.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import models
import numpy as np
from harness import seconds, typical

Array = np.ndarray[Any, np.dtype[Any]]
UNITS, WORDS = models.UNITS, models.VOCABULARY
CLIP, RATE = np.float32(5), np.float32(1)


def sigmoid(x: Array) -> None:
    """Replace x by its logistic function."""
    np.multiply(x, np.float32(0.5), out=x)
    np.tanh(x, out=x)
    x += 1
    x *= np.float32(0.5)


class Layer:
    """An LSTM over time, without a forget bias."""

    def __init__(self, rng: np.random.Generator, steps: int, batch: int) -> None:
        self.kernel = rng.uniform(-0.1, 0.1, (2 * UNITS, 4 * UNITS)).astype(np.float32)
        self.bias = np.zeros(4 * UNITS, np.float32)
        self.inputs = np.zeros((steps + 1, batch, 2 * UNITS), np.float32)  # the input, and h before
        self.gates = np.empty((steps, batch, 4 * UNITS), np.float32)
        self.c = np.zeros((steps + 1, batch, UNITS), np.float32)
        self.squashed = np.empty((steps, batch, UNITS), np.float32)
        self.h = np.empty((steps, batch, UNITS), np.float32)
        self.deltas = np.empty_like(self.gates)
        self.back = np.empty((steps, batch, 2 * UNITS), np.float32)

    def forward(self, t: int, x: Array) -> Array:
        both, gates = self.inputs[t], self.gates[t]
        both[:, :UNITS] = x
        np.dot(both, self.kernel, out=gates)
        gates += self.bias
        i, j, f, o = (gates[:, k * UNITS : (k + 1) * UNITS] for k in range(4))
        for gate in (i, f, o):
            sigmoid(gate)
        np.tanh(j, out=j)
        c = np.multiply(f, self.c[t], out=self.c[t + 1])
        c += i * j
        squashed = np.tanh(c, out=self.squashed[t])
        h = np.multiply(o, squashed, out=self.h[t])
        self.inputs[t + 1, :, UNITS:] = h
        return h

    def backward(self, t: int, dh: Array, dc: Array) -> tuple[Array, Array]:
        """Return the gradients of input and state; ``dc`` becomes that of the memory before."""
        gates, d = self.gates[t], self.deltas[t]
        i, j, f, o = (gates[:, k * UNITS : (k + 1) * UNITS] for k in range(4))
        di, dj, df, do = (d[:, k * UNITS : (k + 1) * UNITS] for k in range(4))
        squashed = self.squashed[t]
        dc += dh * o * (1 - squashed * squashed)
        np.multiply(dh * squashed, o * (1 - o), out=do)
        np.multiply(dc * j, i * (1 - i), out=di)
        np.multiply(dc * i, 1 - j * j, out=dj)
        np.multiply(dc * self.c[t], f * (1 - f), out=df)
        dc *= f
        both = np.dot(d, self.kernel.T, out=self.back[t])
        return both[:, :UNITS], both[:, UNITS:]

    def gradients(self) -> list[Array]:
        deltas = self.deltas.reshape(-1, 4 * UNITS)
        return [self.inputs[:-1].reshape(-1, 2 * UNITS).T @ deltas, deltas.sum(0)]


class HandMade:
    """The whole model."""

    def __init__(self, steps: int, batch: int) -> None:
        rng = np.random.default_rng(0)
        self.table = rng.uniform(-0.1, 0.1, (WORDS, UNITS)).astype(np.float32)
        self.layers = [Layer(rng, steps, batch) for _ in range(2)]
        self.weights = rng.uniform(-0.1, 0.1, (UNITS, WORDS)).astype(np.float32)
        self.bias = rng.uniform(-0.1, 0.1, WORDS).astype(np.float32)
        self.steps, self.batch = steps, batch
        self.logits = np.empty((steps * batch, WORDS), np.float32)
        self.rows = np.arange(steps * batch)

    def step(self, words: Array, following: Array) -> np.float32:
        """Train on one batch; return its loss."""
        first, second = self.layers
        for t in range(self.steps):
            second.forward(t, first.forward(t, self.table[words[:, t]]))
        top = second.h.reshape(-1, UNITS)
        logits = np.dot(top, self.weights, out=self.logits)
        logits += self.bias
        labels = following.T.reshape(-1)
        logits -= logits.max(axis=1, keepdims=True)
        picked = logits[self.rows, labels]
        np.exp(logits, out=logits)
        total = logits.sum(axis=1, keepdims=True)
        loss: np.float32 = (np.log(total[:, 0]) - picked).sum() / self.batch
        logits /= total
        logits[self.rows, labels] -= 1
        logits *= np.float32(1 / self.batch)
        dense = [top.T @ logits, logits.sum(0)]
        rows = self.backward((logits @ self.weights.T).reshape(second.h.shape))
        for layer in self.layers:
            dense += layer.gradients()
        self.descend(dense, rows, words)
        return loss

    def backward(self, dtop: Array) -> Array:
        shape = (self.batch, UNITS)
        dh = [np.zeros(shape, np.float32) for _ in range(2)]
        dc = [np.zeros(shape, np.float32) for _ in range(2)]
        rows = np.empty((self.steps, *shape), np.float32)
        for t in reversed(range(self.steps)):
            below, dh[1] = self.layers[1].backward(t, dh[1] + dtop[t], dc[1])
            rows[t], dh[0] = self.layers[0].backward(t, dh[0] + below, dc[0])
        return rows

    def descend(self, dense: list[Array], rows: Array, words: Array) -> None:
        norm = np.sqrt(sum(np.vdot(g, g) for g in (*dense, rows)))
        rate = RATE * CLIP / max(norm, CLIP)
        variables = [self.weights, self.bias]
        for layer in self.layers:
            variables += [layer.kernel, layer.bias]
        for variable, gradient in zip(variables, dense, strict=True):
            gradient *= rate
            variable -= gradient
        rows *= rate
        np.subtract.at(self.table, words.T.reshape(-1), rows.reshape(-1, UNITS))


def main() -> None:
    """Answer ``{"open": "lstm", "long": ..., "batch": ...}`` and ``{"steps": n}``."""
    step: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, float] = {}
        if "open" in request:
            long, batch = request["long"], request["batch"]
            step = partial(HandMade(long, batch).step, *models.sentences(long, batch))
        else:
            answer["seconds"] = typical(partial(seconds, step), request["steps"], request.get("core"))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
