"""A process of a cluster on Ray: its task, and the actor that runs it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.distributed.server import Server
from asyncmon.errors import OpError
from asyncmon.session_config import SessionConfig


@dataclass(frozen=True, slots=True, eq=False)
class ClusterTask:
    """The task of a process of a cluster. See :func:`.ray_launch.launch`.

    Attributes:
        job_name: "worker".
        task_index: its number in the job.
        is_chief: whether it initialises, restores and saves; true for task 0.
        cluster: the addresses of all tasks; of the workers that were added later, only its own.
        target: the target of its own server, for sessions.
        config: the config for sessions, needed to reach the other tasks.
    """

    job_name: str
    task_index: int
    is_chief: bool
    cluster: ClusterSpec
    target: str
    config: SessionConfig


class TaskActor:
    """The process of a task. The launcher calls its methods in this order."""

    def __init__(self, job: str, index: int, log_dir: str | None) -> None:
        self._job = job
        self._index = index
        self._cluster = ClusterSpec({})
        self._config = SessionConfig()
        self._server: Server | None = None
        self._run: asyncio.Task[Any] | None = None
        self._stopped = False
        handlers: list[logging.Handler] = [logging.StreamHandler()]
        if log_dir is not None:
            Path(log_dir).mkdir(parents=True, exist_ok=True)
            handlers.append(logging.FileHandler(Path(log_dir) / f"{job}-{index}.log"))
        logging.basicConfig(
            level=logging.INFO,
            handlers=handlers,
            format="%(asctime)s %(process)d %(levelname)s %(message)s",
        )

    def __repr__(self) -> str:
        """Return the prefix that Ray prints before lines of this process."""
        return f"{self._job}:{self._index}"

    async def place(self, port: int) -> tuple[str, int]:
        """Return the address of this machine and a free port, preferably the given one."""
        from ray import util

        ray_util: Any = util  # partly untyped
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                probe.bind(("", 0))
            return ray_util.get_node_ip_address(), probe.getsockname()[1]

    async def serve(
        self, cluster: dict[str, Any], config: SessionConfig, elastic: Sequence[str] = ()
    ) -> None:
        """Start the server. UnknownError: the port is taken."""
        self._cluster = ClusterSpec(cluster, elastic=elastic)
        self._config = config
        self._server = Server(self._cluster, self._job, self._index, config=config)
        await self._server.start()

    async def join(self) -> None:
        """Serve until the process ends."""
        assert self._server is not None, "serve() comes first"
        await self._server.join()

    async def run(self, fn: Callable[[ClusterTask], Awaitable[Any]]) -> Any:
        """Call the function, and return its result."""
        assert self._server is not None, "serve() comes first"
        task = ClusterTask(
            self._job, self._index, self._index == 0, self._cluster, self._server.target, self._config
        )
        self._run = asyncio.ensure_future(fn(task))
        try:
            if self._stopped:
                self._run.cancel()
            return await self._run
        except asyncio.CancelledError:
            if self._stopped:
                return None
            raise
        except OpError as error:
            error.op = None  # it refers to the whole graph
            raise

    async def stop(self) -> None:
        """Cancel the function."""
        self._stopped = True
        if self._run is not None:
            self._run.cancel()
