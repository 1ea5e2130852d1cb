"""The parent's side of an attempt in a child process.

Lines of JSON. To the input of the child: what to run, then ``{"stop": request, "grace": seconds}``. The
end of the input means that the parent is dead, and is a shutdown. Out of a socket: ``["running", {}]``,
``["saved", {}]``, ``["metrics", {}]`` and, last, ``["end", [state, cause, error, step]]``. A child
without an end is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from asyncmon.jobs.execution import Emit, Kind
from asyncmon.jobs.lease import Lease
from asyncmon.jobs.store import Row
from asyncmon.jobs.table import End, State
from asyncmon.system import children
from asyncmon.system.cancellation import outlast
from asyncmon.system.children import how_it_ended, source_of
from asyncmon.system.error_text import phrase
from asyncmon.system.files import in_thread

logger = logging.getLogger(__name__)

LOG_NAME = "job.log"
KILL_SECS = 5.0
"""The time after the grace period in which the child must end."""

_REST_SECS = 1.0  # for the last lines of a child that has ended, whose socket a worker of it may hold
_MOST_LINE = 1 << 24


class Child:
    """Runs one attempt in a child process, see :class:`~asyncmon.jobs.execution.Execution`.

    Args:
        row, directory, emit: of the job.
        lease: which the child inherits.
        grace: the time to end after the death of this process.
    """

    def __init__(self, row: Row, directory: Path, emit: Emit, lease: Lease, grace: float) -> None:
        self.step: int | None = None
        self._row = row
        self._directory = directory
        self._emit = emit
        self._lease = lease
        self._grace = grace
        self._request: tuple[str, float] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end: End | None = None

    def stop(self, request: str, grace: float) -> None:
        """Request a stop of the child, and kill it 5 seconds after the grace period."""
        if self._request is not None and self._request[0] == request:
            return
        self._request = request, grace
        if self._process is not None:
            self._send({"stop": request, "grace": grace})
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(grace + KILL_SECS, self._kill)

    async def execute(self, fn: Kind) -> End:
        """Run the kind to its end. A cancellation kills the child."""
        ours, theirs = socket.socketpair()
        # A duplicate: uvloop runs the fork handlers in the child, and they close the leases.
        lease = os.dup(self._lease.descriptor)
        with theirs:
            try:
                self._process = await self._spawned(theirs, lease)
            except OSError as error:  # no memory or descriptors: it may pass
                ours.close()
                return End(State.LOST, f"its process was not started, {phrase(error)}")
            except BaseException:
                ours.close()
                raise
            finally:
                os.close(lease)
        reader, writer = await asyncio.open_connection(sock=ours, limit=_MOST_LINE)
        reading = asyncio.create_task(self._read(reader), name="messages of a job")
        waiting = asyncio.create_task(self._process.wait(), name="child of a job")
        try:
            self._send(
                {
                    **source_of(fn)._asdict(),
                    "row": self._row,
                    "directory": str(self._directory),
                    "grace": self._grace,
                    "lease": lease,
                }
            )
            if self._request is not None:
                request, self._request = self._request, None
                self.stop(*request)
            await asyncio.shield(waiting)
            await asyncio.wait([reading], timeout=_REST_SECS)
        finally:
            self._kill()
            cancelled = await outlast(waiting)
            if self._timer is not None:
                self._timer.cancel()
            reading.cancel()
            writer.close()
            if cancelled is not None:
                raise cancelled
        end = self._end or End(State.LOST, f"its process {how_it_ended(waiting.result())}")
        if end.state in (State.FAILED, State.LOST):  # the traceback is in the log of the child alone
            logger.warning(
                "The job %r is %s: %s. Its log: %s.",
                self._row["name"], end.state, end.error or end.cause, self._directory / LOG_NAME,
            )  # fmt: skip
        return end

    async def _spawned(self, end: socket.socket, lease: int) -> asyncio.subprocess.Process:
        log = await in_thread(partial(open, self._directory / LOG_NAME, "ab"))
        with log:
            return await children.start(
                "asyncmon.jobs.child", str(end.fileno()),
                descriptors=(end.fileno(), lease), stdout=log, stderr=log,
            )  # fmt: skip

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None, "set by execute"
        assert self._process.stdin is not None, "a pipe"
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _kill(self) -> None:
        assert self._process is not None, "set by execute"
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            kind, data = json.loads(line)
            if kind == "end":
                self._end = End(State(data[0]), *data[1:])
                self.step = self._end.step
            else:
                if kind != "metrics":
                    self.step = data["step"]
                self._emit(kind, data)
