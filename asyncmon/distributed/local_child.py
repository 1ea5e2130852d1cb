"""The child process of a session with the target ``"local"``: ``python -m`` of this module.

It reads one line from its input, and exits at the end of the input. Its steps have a lower priority
than other processes and peeks, so that a service beside them stays fast.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
from functools import partial
from typing import Any

from asyncmon.distributed.error_data import failure
from asyncmon.distributed.held_snapshots import HeldSnapshots
from asyncmon.distributed.local_stream import CALL, LOG, READY, Inbox, Outbox, Stream
from asyncmon.distributed.service import SessionService
from asyncmon.distributed.wire import Message
from asyncmon.errors import ResourceExhaustedError
from asyncmon.graph.session.backend import backend_for
from asyncmon.system import portable
from asyncmon.system.daemon_executor import at_start_of_threads

_SWITCH_SECS = 0.0005  # for which a step may keep Python's lock while a peek waits

logger = logging.getLogger("asyncmon.distributed.local_child")  # not "__main__"


def main() -> None:
    """Serve the parent until it closes this process's input or ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent's to handle
    portable.end_with_parent()
    given = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, name="end of parent", daemon=True).start()
    portable.lower_priority(all_others=True)  # those of BLAS
    at_start_of_threads(portable.lower_priority)
    sys.setswitchinterval(_SWITCH_SECS)
    gc.freeze()
    asyncio.run(_serve(given))


def _end_with_parent() -> None:
    portable.wait_for_end_of_parent(0)
    os._exit(0)


async def _serve(given: dict[str, Any]) -> None:
    service = SessionService(partial(backend_for, ""))
    for name, job in HeldSnapshots().jobs.items():
        service.add_job(name, job)
    lost = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    def received(_kind: int, number: int, request: Message) -> None:
        task = asyncio.create_task(_answer(service, stream, number, request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    here, there = [portable.SharedMemory(found) for found in given["memory"]]
    stream = Stream(Outbox(there), Inbox(here), received, lost.set)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: stream, sock=portable.take_socket(given["socket"]))
    forwarding = _Forwarding(stream, loop)
    logging.basicConfig(handlers=[forwarding], level=given["level"], format="%(message)s")
    logger.debug("Process %d runs a session of %d.", os.getpid(), os.getppid())
    stream.write(READY, 0, Message(b""))
    await lost.wait()
    os._exit(0)  # nothing here is needed after the parent has closed


async def _answer(service: SessionService, stream: Stream, number: int, request: Message) -> None:
    answer = await service.answer(request)
    del request  # frees its blocks; the response reports this
    try:
        await stream.send(CALL, number, answer)
    except OSError as error:
        text = f"There is no shared memory for results of {answer.nbytes:,} bytes: {error}."
        stream.write(CALL, number, failure(ResourceExhaustedError(text)))
    finally:
        answer.sent()


class _Forwarding(logging.Handler):
    """A handler that sends log records to the parent."""

    def __init__(self, stream: Stream, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._stream = stream
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, as text."""
        text = self.format(record)
        message = Message(json.dumps([record.name, record.levelno, text]).encode())
        self._loop.call_soon_threadsafe(self._stream.write, LOG, 0, message)


if __name__ == "__main__":
    main()
