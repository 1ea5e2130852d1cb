"""The figure of recurrent networks: ``python tests/benchmarks/recurrent.py``.

A training step of a small language model: two LSTMs of 200 units over 20 steps, 20 sentences, 1000
words, clipped gradient descent. ``ASYNCMON_PEER_PYTHON`` names an interpreter with TensorFlow, which
runs the same lines with its own ``dynamic_rnn`` of a ``while_loop``; numpy by hand is measured, too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import models
from engine import LOOP, PEER, Contestant, Ours, opened, race, verdict, with_tf1
from harness import Peer, Row, command

import asyncmon.tf1 as tf

STEPS = BATCH = 20
NUMPY = Peer(Path(__file__).parent / "lstm_by_hand.py", python=sys.executable)


def ours() -> Ours:
    found: list[models.Model] = []

    def build() -> models.Model:
        found.append(models.lstm(tf, STEPS, BATCH))
        return found[0]

    made = Ours(build)
    words, following = models.sentences(STEPS, BATCH)
    made.feeds = {found[0].images: words, found[0].labels: following}
    return made


def contestants() -> dict[str, Contestant]:
    work = {"open": "lstm", "long": STEPS, "batch": BATCH}
    return with_tf1({"ours": ours(), "numpy": opened(NUMPY, **work)}, **work)


def main() -> int:
    def lstm() -> Row:
        found = race(contestants, sittings=3, rounds=5)
        return verdict("lstm", found, {"TF1": 0.9}, "0.9x TF1")

    with PEER, NUMPY, LOOP:
        return command("recurrent networks", {"lstm": lstm})


if __name__ == "__main__":
    sys.exit(main())
