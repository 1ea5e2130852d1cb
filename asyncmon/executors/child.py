"""A child process of a ``ProcessExecutor``: ``python -m`` of this module. No module imports it."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from asyncmon.executors.frames import CALL, ERROR, HEADER, RESULT, WEIGHTS, write_frame
from asyncmon.executors.pool import WorkerPolicy
from asyncmon.system import portable
from asyncmon.system.children import Source, load
from asyncmon.system.error_text import phrase


def main() -> None:
    """Make calls until the parent closes the connection or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    portable.end_with_parent()
    given = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, name="end of parent", daemon=True).start()
    connection = portable.take_socket(given["socket"])
    os.set_inheritable(connection.fileno(), False)
    stream = connection.makefile("rwb")
    try:
        fn = load(Source(*given["source"]))
    except Exception as error:
        _send(stream, ERROR, _failure(error))
        return
    signal.signal(signal.SIGTERM, _exit)  # not before: SystemExit of the module is an error
    _send(stream, RESULT, pickle.dumps(None))
    with asyncio.Runner() as runner:
        _make_calls(stream, runner.run if inspect.iscoroutinefunction(fn) else _returned, fn)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _exit(number: int, frame: object) -> None:
    """Interrupt the call, whose cleanups run."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def _end_with_parent() -> None:
    portable.wait_for_end_of_parent(0)
    os._exit(0)


def _returned(value: Any) -> Any:
    return value


def _make_calls(stream: io.BufferedRWPair, run: Callable[[Any], Any], fn: Callable[..., Any]) -> None:
    packed = weights = None
    while len(header := stream.read(HEADER.size)) == HEADER.size:
        kind, size = HEADER.unpack(header)
        data = stream.read(size)
        if kind == WEIGHTS:
            packed = data
            continue
        assert kind == CALL, "there is no other message"
        try:
            element, version = pickle.loads(data)
            if packed is not None:
                weights, packed = pickle.loads(packed), None
            policy = () if version is None else (WorkerPolicy(version, weights),)
            answer = RESULT, pickle.dumps(run(fn(element, *policy)))
        except Exception as error:
            answer = ERROR, _failure(error)
        _send(stream, *answer)


def _send(stream: io.BufferedRWPair, kind: bytes, data: bytes) -> None:
    write_frame(stream, kind, data)
    stream.flush()


def _failure(error: Exception) -> bytes:
    """Return an error in bytes; it cannot be rebuilt if its class takes other arguments."""
    trace = "".join(traceback.format_exception(error))
    try:
        packed: bytes | None = pickle.dumps(error)
        pickle.loads(packed or b"")
    except Exception:
        packed = None
    return pickle.dumps((phrase(error), packed, trace))


if __name__ == "__main__":
    main()
