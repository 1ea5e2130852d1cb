"""An attempt in a child process: ``python -m asyncmon.jobs.child``, and the side of its parent.

Lines of JSON. To the input of the child: what to run, then ``{"stop": request, "grace": seconds}``. The
end of the input means that the parent is dead, and is a shutdown. Out of a socket: ``["running", {}]``,
``["saved", {}]``, ``["metrics", {}]`` and, last, ``["end", [state, cause, error, step]]``. A child
without an end is lost.

The child has a session of its own (``setsid``), ignores SIGINT, and takes SIGTERM for a shutdown:
systemd signals the whole group. It inherits the lease, so that the job is not run again before it has
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

from asyncmon.jobs.execution import Emit, Execution, Kind
from asyncmon.jobs.kinds import source_of
from asyncmon.jobs.lease import Lease
from asyncmon.jobs.store import Row, json_text
from asyncmon.jobs.table import End, State
from asyncmon.system import portable
from asyncmon.system.cancellation import outlast
from asyncmon.system.files import in_thread

logger = logging.getLogger("asyncmon.jobs.child")  # not "__main__"

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
        with theirs:
            try:
                self._process = await self._spawned(theirs)
            except BaseException:
                ours.close()
                raise
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
                    "lease": self._lease.descriptor,
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
        return self._end or End(State.LOST, f"its process {_ended(waiting.result())}")

    async def _spawned(self, end: socket.socket) -> asyncio.subprocess.Process:
        path = os.pathsep.join([part or "." for part in sys.path])
        log = await in_thread(partial(open, self._directory / LOG_NAME, "ab"))
        with log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "asyncmon.jobs.child", str(end.fileno()),
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                **portable.inherited(end.fileno(), self._lease.descriptor),
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


def _ended(status: int) -> str:
    if status >= 0:
        return f"has ended with the status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by the signal {-status}"


# -- in the child


def main() -> None:
    """Run the job that the parent sends, and exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    given = json.loads(sys.stdin.buffer.readline())
    Lease.inherited(given["lease"])
    portable.after_fork_in_child(partial(_close, channel))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Not by a return: threads of the kind would keep the process, and with it the lease.
    os._exit(asyncio.run(_run(given, channel)))


def _close(channel: socket.socket) -> None:
    with contextlib.suppress(OSError):
        os.close(channel.detach())


async def _run(given: Mapping[str, Any], channel: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    _reader, writer = await asyncio.open_connection(sock=channel)

    def emit(kind: str, data: Any) -> None:
        writer.write(json_text([kind, data]).encode() + b"\n")  # does not wait for a parent that hangs

    execution = Execution(given["row"], Path(given["directory"]), emit)
    loop.add_signal_handler(signal.SIGTERM, execution.stop, "shutdown", given["grace"])
    listener = threading.Thread(
        target=_listen, args=(execution, loop, given["grace"]), name="stops of the job", daemon=True
    )
    listener.start()
    try:
        end = await asyncio.create_task(execution.execute(_function(given)), name=execution.job.name)
        end = end._replace(step=execution.step)
    except Exception as error:
        logger.exception("The kind cannot be imported.")
        end = End(State.FAILED, "error", f"The kind cannot be imported: {error!r}")
    emit("end", end)
    with contextlib.suppress(OSError, TimeoutError):  # the parent is dead, or hangs
        async with asyncio.timeout(given["grace"]):
            writer.close()
            await writer.wait_closed()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return 0


def _function(given: Mapping[str, Any]) -> Kind:
    """Import the kind. Raises whatever its module raises."""
    if given["path"] is not None:
        # The name that multiprocessing uses: `if __name__ == "__main__"` is false.
        names = runpy.run_path(given["path"], run_name="__mp_main__")
        found: Kind = names[given["function"]]
        return found
    module = importlib.import_module(given["module"])
    return reduce(getattr, given["function"].split("."), module)  # type: ignore[return-value]


def _listen(execution: Execution, loop: asyncio.AbstractEventLoop, grace: float) -> None:
    """Pass on the requests of the parent. After its death end the process within the grace period."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        loop.call_soon_threadsafe(execution.stop, request["stop"], request["grace"])
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(execution.stop, "shutdown", grace)
    portable.pause(grace + KILL_SECS)
    os._exit(os.EX_TEMPFAIL)


if __name__ == "__main__":
    main()
