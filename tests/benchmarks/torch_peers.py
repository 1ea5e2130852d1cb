"""A torch training under ignite, Lightning and asyncmon, against the bare loop.

Each has the hooks that it has by default and trains the same perceptron in a process of its own, which
this file is, too. The time of a step is that between two batches that the loop asks for.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from harness import Peer, Row, ratios, take_turns

import asyncmon as am
from asyncmon.programs.torch import TorchProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = {"200us": (64, 32, 1.25), "1ms": (192, 64, 1.12), "10ms": (448, 128, 1.03)}
"""Width and rows of steps, and the goal for their time over that of the bare loop."""


class Perceptron:
    """A perceptron with Adam: the bare step, and a program of it."""

    def __init__(self, width: int, rows: int, layers: int = 3) -> None:
        torch.manual_seed(0)
        linear = [torch.nn.Linear(width, width) for _ in range(layers)]
        model = torch.nn.Sequential(*(part for one in linear for part in (one, torch.nn.Tanh())))
        self.model, self.optimizer = model, torch.optim.Adam(model.parameters(), 1e-4)
        self.x = torch.randn(rows, width)
        self.program = TorchProgram({"model": model, "optimizer": self.optimizer})
        self.program.step(self.train)

    def train(self, state: Any, x: Any) -> dict[str, Any]:
        state["optimizer"].zero_grad()
        loss = (state["model"](x) - 1).square().mean()
        loss.backward()
        state["optimizer"].step()
        return {"loss": loss}


class Batches:
    """Yields the same batch again and again, and takes the time."""

    def __init__(self, x: Any, count: int) -> None:
        self.x, self.count = x, count
        self.seconds = 0.0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        begin, first = 0.0, self.count // 5  # a loop prepares something at its start
        for number in range(self.count):
            if number == first:
                begin = time.perf_counter()
            elif number > first:  # not at the end, which not every loop asks for
                self.seconds = (time.perf_counter() - begin) / (number - first)
            yield self.x


def bare(work: Perceptron, batches: Batches, directory: str) -> None:
    state = {"model": work.model, "optimizer": work.optimizer}
    for x in batches:
        work.train(state, x)


def ignite(work: Perceptron, batches: Batches, directory: str) -> None:
    from ignite.engine import Engine  # type: ignore[import-not-found,unused-ignore]  # optional

    state = {"model": work.model, "optimizer": work.optimizer}
    Engine(lambda _, x: work.train(state, x)).run(batches, max_epochs=1)


def lightning(work: Perceptron, batches: Batches, directory: str) -> None:
    import lightning as pl  # type: ignore[import-not-found,unused-ignore]  # optional

    class Module(pl.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]  # optional
        def __init__(self) -> None:
            super().__init__()
            self.model = work.model

        def training_step(self, x: Any, _number: int) -> Any:
            return (self.model(x) - 1).square().mean()

        def configure_optimizers(self) -> Any:
            return work.optimizer

    trainer = pl.Trainer(max_epochs=1, default_root_dir=directory, accelerator="cpu")
    trainer.fit(Module(), batches)


def asyncmon(work: Perceptron, batches: Batches, directory: str) -> None:
    async def train() -> None:
        async with am.MonitoredTrainingSession(program=work.program, checkpoint_dir=directory) as sess:
            for x in batches:
                await sess.run("train", {"x": x})

    asyncio.run(train())


PEERS: dict[str, Callable[[Perceptron, Batches, str], None]] = {
    "bare loop": bare, "ignite": ignite, "lightning": lightning, "asyncmon": asyncmon,
}  # fmt: skip


def row(step: str) -> list[Row]:
    """Let them take turns at steps of one of the ``SIZES``."""
    width, rows, goal = SIZES[step]
    names = [
        one for one in PEERS if one not in ("ignite", "lightning") or importlib.util.find_spec(one)
    ]
    with ExitStack() as stack:
        peers = {
            name: stack.enter_context(Peer(Path(__file__), python=sys.executable)) for name in names
        }
        count = max(150, round(400 * 1e5 / (width * width * rows)))
        turns = {
            name: lambda name=name, peer=peer: float(
                peer.ask(name=name, width=width, rows=rows, count=count)["seconds"]
            )
            for name, peer in peers.items()
        }
        found = take_turns(turns, rounds=7)
    found["ours"] = found.pop("asyncmon")
    base = found["bare loop"]
    said = ", ".join(f"{name} {took / base:.2f}" for name, took in found.items() if name != "bare loop")
    ratio = found["ours"] / base
    what = f"torch-{step}, {base * 1e6:,.0f} us a step"
    return [Row(what, f"{said} of the bare loop", f"{goal}x", ratio <= goal, ratios(found))]


def answer_requests() -> None:
    """Be a peer: train as each request says."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # those of one process would wait for a core that another one has
    out, sys.stdout = sys.stdout, sys.stderr  # Lightning prints
    for line in sys.stdin:
        request = json.loads(line)
        work = Perceptron(request["width"], request["rows"])
        batches = Batches(work.x, request["count"])
        with tempfile.TemporaryDirectory() as directory:
            PEERS[request["name"]](work, batches, directory)
        print(json.dumps({"seconds": batches.seconds}), file=out, flush=True)


if __name__ == "__main__":
    answer_requests()
