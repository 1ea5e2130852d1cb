"""A service that predicts, and learns from its own traffic: one process, one event loop."""

import argparse
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import uvicorn
from learner import Buffer, Model, learn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import asyncmon as am


class Service:
    """The routes, and a monitored session that is open as long as the application runs."""

    def __init__(self, directory: Path, sizes: list[int], master: str, batch: int = 128) -> None:
        self.sizes, self.batch = sizes, batch
        self.model, self.buffer = Model(sizes), Buffer(sizes[0])
        self.session = am.MonitoredTrainingSession(
            master,
            checkpoint_dir=directory,
            hooks=[self.buffer],
            program=self.model.graph,
            save_checkpoint_secs=60,
        )

    def application(self) -> Starlette:
        routes = [
            Route("/predict", self.predict, methods=["POST"]),
            Route("/learn", self.learn, methods=["POST"]),
            Mount("/train", am.monitor.create_app({"service": self.session})),
        ]
        return Starlette(routes=routes, lifespan=self.lifespan)

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with self.session as sess:
            assert sess.coord is not None, "the session is open"
            self.incoming = sess.coord.channel(1024, name="rows")
            training = sess.coord.create_task(
                learn, sess, self.model, self.incoming, self.buffer, self.batch
            )
            yield  # requests are served, beside the training
            sess.request_stop("the service stops")
            await training  # with the rows that were accepted; then the session saves

    async def predict(self, request: Request) -> JSONResponse:
        row, _ = await self.parsed(request)
        (label,) = await self.session.peek(self.model.predicted, {self.model.rows: row[None]})
        return JSONResponse({"label": int(label), "step": self.session.global_step})

    async def learn(self, request: Request) -> JSONResponse:
        try:
            self.incoming.send_nowait(await self.parsed(request))
        except (am.errors.ResourceExhaustedError, am.errors.CancelledError):  # full, or it is stopping
            return JSONResponse({"error": "no room for the row"}, 503, {"Retry-After": "1"})
        return JSONResponse({"accepted": True}, 202)

    async def parsed(self, request: Request) -> tuple[np.ndarray, int]:
        """Return the row of a request, and its label, 0 where it has none."""
        try:
            given = json.loads(await request.body())
            row, label = np.asarray(given["row"], np.float32), int(given.get("label", 0))
        except (ValueError, TypeError, LookupError, AttributeError):
            raise HTTPException(400, '{"row": [numbers], "label": a number} is expected') from None
        if row.shape != (self.sizes[0],) or not 0 <= label < self.sizes[-1]:
            raise HTTPException(400, f"{self.sizes[0]} numbers, {self.sizes[-1]} labels are expected")
        return row, label


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--dir", type=Path, default=Path("runs/service"))
    parser.add_argument("--sizes", default="64,128,10", help="of a row, of layers, of the classes")
    parser.add_argument("--master", default="", help="'local' trains in a process of its own")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    service = Service(options.dir, [int(n) for n in options.sizes.split(",")], options.master)
    uvicorn.run(
        service.application(), port=options.port, access_log=False, timeout_graceful_shutdown=10
    )  # training is saved when the last connection has ended, or after 10 s
