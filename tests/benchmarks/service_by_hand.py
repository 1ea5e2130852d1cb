"""The service of ``examples/service`` as one writes it by hand: numpy in a thread, under a lock.

It has no checkpoints, no summaries, no hooks and no orderly stop. It is the peer of ``service.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import threading
from typing import TYPE_CHECKING

import numpy as np
import uvicorn
from by_hand import HandMade
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

BATCH, CAPACITY = 128, 2048


class Service:
    """A model that a thread trains on the newest rows, and that requests ask."""

    def __init__(self, sizes: list[int]) -> None:
        self.model, self.lock = HandMade(sizes, BATCH), threading.Lock()
        self.rows = np.zeros((CAPACITY, sizes[0]), np.float32)
        self.labels = np.zeros(CAPACITY, np.int64)
        self.seen = 0
        self.stopped = threading.Event()

    def train(self) -> None:
        random = np.random.default_rng()
        while not self.stopped.is_set():
            if self.seen < BATCH:
                self.stopped.wait(0.1)
                continue
            with self.lock:
                chosen = random.integers(min(self.seen, CAPACITY), size=BATCH)
                self.model.step(self.rows[chosen], self.labels[chosen])

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        thread = threading.Thread(target=self.train)
        thread.start()
        yield
        self.stopped.set()
        thread.join()

    async def predict(self, request: Request) -> JSONResponse:
        hidden = np.asarray(json.loads(await request.body())["row"], np.float32)
        label = await asyncio.to_thread(self.label_of, hidden)
        return JSONResponse({"label": label, "step": self.model.steps})

    def label_of(self, hidden: np.ndarray) -> int:
        with self.lock:
            for i, (weights, biases) in enumerate(
                zip(self.model.weights, self.model.biases, strict=True)
            ):
                hidden = hidden @ weights + biases
                if i < len(self.model.weights) - 1:
                    np.maximum(hidden, 0, out=hidden)
        return int(hidden.argmax())

    async def learn(self, request: Request) -> JSONResponse:
        given = json.loads(await request.body())
        at = self.seen % CAPACITY
        self.rows[at], self.labels[at] = given["row"], given["label"]
        self.seen += 1
        return JSONResponse({"accepted": True}, 202)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--dir", help="unused: nothing is saved")
    parser.add_argument("--sizes", required=True)
    options = parser.parse_args()
    service = Service([int(n) for n in options.sizes.split(",")])
    routes = [
        Route("/predict", service.predict, methods=["POST"]),
        Route("/learn", service.learn, methods=["POST"]),
    ]
    uvicorn.run(
        Starlette(routes=routes, lifespan=service.lifespan), port=options.port, access_log=False
    )
