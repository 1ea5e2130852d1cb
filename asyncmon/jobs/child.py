"""An attempt in a child process: ``python -m asyncmon.jobs.child``, which ``child_process`` starts.

The child has a session of its own (``setsid``), ignores SIGINT, and takes SIGTERM for a shutdown:
systemd signals the whole group. It inherits the lease, so that the job is not run again before it has
ended. No module imports this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from asyncmon.jobs.child_process import KILL_SECS
from asyncmon.jobs.execution import Execution, Kind
from asyncmon.jobs.lease import Lease
from asyncmon.jobs.store import json_text
from asyncmon.jobs.table import End, State
from asyncmon.runtime import RunFormatter
from asyncmon.system import portable
from asyncmon.system.children import Source, load

logger = logging.getLogger("asyncmon.jobs.child")  # not "__main__"


def main() -> None:
    """Run the job that the parent sends, and exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    # Unbuffered: a thread that reads sys.stdin holds its lock, which a forked process has for ever, and
    # multiprocessing closes sys.stdin there.
    requests = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115  # for good
    given = json.loads(requests.readline())
    Lease.inherited(given["lease"])
    portable.after_fork_in_child(partial(_close, channel))
    handler = logging.StreamHandler()
    handler.setFormatter(RunFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Not by a return: threads of the kind would keep the process, and with it the lease.
    os._exit(asyncio.run(_run(given, channel, requests)))


def _close(channel: socket.socket) -> None:
    with contextlib.suppress(OSError):
        os.close(channel.detach())


async def _run(given: Mapping[str, Any], channel: socket.socket, requests: io.RawIOBase) -> int:
    loop = asyncio.get_running_loop()
    _reader, writer = await asyncio.open_connection(sock=channel)

    def emit(kind: str, data: Any) -> None:
        writer.write(json_text([kind, data]).encode() + b"\n")  # does not wait for a parent that hangs

    execution = Execution(given["row"], Path(given["directory"]), emit)
    loop.add_signal_handler(signal.SIGTERM, execution.stop, "shutdown", given["grace"])
    listener = threading.Thread(
        target=_listen, args=(execution, loop, given["grace"], requests),
        name="stops of the job", daemon=True,
    )  # fmt: skip
    listener.start()
    try:
        end = await asyncio.create_task(execution.execute(_kind(given)), name=execution.job.name)
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
        with contextlib.suppress(OSError, ValueError):  # its reader is gone, or the kind has closed it
            stream.flush()
    return 0


def _kind(given: Mapping[str, Any]) -> Kind:
    kind: Kind = load(Source(**{field: given[field] for field in Source._fields}))
    return kind


def _listen(
    execution: Execution, loop: asyncio.AbstractEventLoop, grace: float, requests: io.RawIOBase
) -> None:
    """Pass on the requests of the parent. After its death end the process within the grace period."""
    for line in requests:
        request = json.loads(line)
        loop.call_soon_threadsafe(execution.stop, request["stop"], request["grace"])
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(execution.stop, "shutdown", grace)
    portable.pause(grace + KILL_SECS)
    os._exit(os.EX_TEMPFAIL)


if __name__ == "__main__":
    main()
