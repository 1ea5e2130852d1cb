"""The rows of PyTorch for ``programs.py``, by which they are measured.

The bare loop and the session train in a process each, which take turns: in one process each would find
the other's OpenMP threads awake. So this file is a peer too, see :class:`harness.Peer`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from harness import Peer, Row, ratios, take_turns
from programs import lag_of, stretch

import asyncmon as am
from asyncmon.programs.torch import TorchProgram

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


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

    async def bare(self) -> None:
        self.train({"model": self.model, "optimizer": self.optimizer}, self.x)


async def step(width: int, rows: int, count: int) -> list[Row]:
    """Compare with the bare loop."""
    here, size = Path(__file__), {"width": width, "rows": rows}
    with Peer(here, python=sys.executable) as bare, Peer(here, python=sys.executable) as ours:
        bare.ask(monitored=False, **size)
        ours.ask(monitored=True, **size)
        found = take_turns(
            {
                "ours": lambda: float(ours.ask(steps=count)["seconds"]),
                "bare loop": lambda: float(bare.ask(steps=count)["seconds"]),
            }
        )
    ratio = found["ours"] / found["bare loop"]
    said = ", ".join(f"{name} {took * 1e3:.2f} ms" for name, took in found.items())
    return [Row(f"torch MLP of {width}", said, "1.03x the bare loop", ratio <= 1.03, ratios(found))]


async def lag() -> list[Row]:
    """Watch the event loop beside steps of 16 ms."""
    work = Perceptron(1024, 256)
    session, feeds = work.program.create_session(), {"x": work.x}
    late = await lag_of(lambda: session.run("train", feeds), 2.0)
    await session.close()
    return [Row("torch, loop lag p99", f"{late * 1e3:.2f} ms", "5 ms or less", late <= 5e-3)]


async def answer_requests() -> None:
    """Be a peer: train bare or monitored, as the first request says, in stretches."""
    request = json.loads(sys.stdin.readline())
    work = Perceptron(request["width"], request["rows"])
    monitored = am.MonitoredSession(am.ChiefSessionCreator(program=work.program))
    async with monitored:
        step = work.bare
        if request["monitored"]:

            async def step() -> None:
                await monitored.run("train", {"x": work.x})

        await stretch(step, 20)
        print("{}", flush=True)
        for line in sys.stdin:
            print(json.dumps({"seconds": await stretch(step, json.loads(line)["steps"])}), flush=True)


ROWS: dict[str, Callable[[], Awaitable[list[Row]]]] = {
    "3ms": lambda: step(384, 128, 100),
    "16ms": lambda: step(1024, 256, 20),
    "lag": lag,
}


if __name__ == "__main__":
    asyncio.run(answer_requests())
