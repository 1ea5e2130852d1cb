"""Pipelines whose calls run in child processes."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import pickle
import socket
import sys
from collections.abc import Callable
from typing import Any

from asyncmon.executors.frames import CALL, RESULT, WEIGHTS, read_frame, write_frame
from asyncmon.executors.pool import Pool, WorkerDiedError, WorkerPolicy
from asyncmon.runtime.pipelines import Pipeline
from asyncmon.runtime.pipelines.newest import Newest
from asyncmon.runtime.pipelines.workers import takes_policy
from asyncmon.system import portable
from asyncmon.system.cancellation import outlast
from asyncmon.system.children import Source, how_it_ended, source_of, start
from asyncmon.system.error_text import add_note

_CHILD = "asyncmon.executors.child"
_END_SECS = 5.0  # from SIGTERM to SIGKILL
_REST_SECS = 1.0  # from the end of the connection to that of the process


class ProcessExecutor:
    """Makes the calls of a pipeline in child processes, in the place of its function.

    Each process makes one call at a time. It is started with its first element, and imports the module
    of the function; a program needs ``if __name__ == "__main__"``. Elements, values and weights must be
    picklable. Weights are sent once to each process for each version that a call needs.

    An error of the function is raised as itself, with the traceback of the child as a note. The element
    of a process that dies is made again in a new one. After three deaths its call has failed, and
    ``retries`` and ``on_error`` of the pipeline decide. Three processes in a row that die before their
    first call stop the session.

    At the end of the session idle processes exit. A call gets ``SystemExit`` from SIGTERM, and its
    process SIGKILL after five seconds, or at the end of the session's grace period. The processes end
    with this one in every case.

    Args:
        fn: a plain or ``async def`` function at the top level of a module: ``fn(element)``, or
            ``fn(element, policy)`` with a :class:`WorkerPolicy`.
        processes: the most processes. Default: one for each core. ``workers`` of the pipeline is the
            bound, too.

    Raises:
        TypeError: ``fn`` is no function.
        ValueError: a child process cannot import it, or ``processes`` is less than 1.

    Example::

        games = sess.produce(seeds, am.executors.ProcessExecutor(play, processes=4), workers=4)
    """

    def __init__(self, fn: Callable[..., Any], processes: int | None = None) -> None:
        if not inspect.isfunction(fn):
            raise TypeError(f"ProcessExecutor takes a function of a module, got {fn!r}.")
        processes = portable.cores() if processes is None else processes
        if processes < 1:
            raise ValueError(f"ProcessExecutor(processes=...) must be 1 or more, got {processes!r}.")
        self.name = fn.__name__
        """The name of its pipelines, unless they have another one."""
        self._source = source_of(fn)
        self._takes_policy = takes_policy(fn)
        self._processes = processes

    async def serve(self, pipeline: Pipeline) -> None:
        """Make the calls of a pipeline. See :class:`.Executor`."""
        packed = Newest(pickle.dumps)
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])  # so children name its classes

        async def started() -> Child:
            child = Child(packed)
            await child.start(self._source)
            return child

        await Pool(pipeline, self._processes, started, self._takes_policy).serve()


class Child:
    """One child process. See :class:`.Worker`.

    Args:
        packed: makes bytes of weights.
    """

    def __init__(self, packed: Newest[bytes]) -> None:
        self._packed = packed
        self._weights: Any = None  # that it has
        self._is_busy = True
        self._stdin: int  # its end in this process means the end of this process
        self._process: asyncio.subprocess.Process
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._exit: asyncio.Task[int]

    async def start(self, source: Source) -> None:
        """Start the process, and wait until it has imported the function.

        Raises:
            WorkerDiedError: it has ended before.
            Exception: that of the import.
        """
        ours, theirs = socket.socketpair()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        # No pipe of asyncio: it is awaited before the exit, and a process that the child has forked may
        # hold the other end.
        stdin, self._stdin = os.pipe()
        try:
            self._process = process = await start(_CHILD, descriptors=(theirs.fileno(),), stdin=stdin)
            given = {"socket": portable.give_socket(theirs, process.pid), "source": source}
            os.write(self._stdin, json.dumps(given).encode() + b"\n")
        except BaseException:
            self._writer.close()
            os.close(self._stdin)
            raise
        finally:
            os.close(stdin)
            theirs.close()
        self._exit = asyncio.create_task(process.wait(), name=f"child process {process.pid}")
        self._exit.add_done_callback(lambda _: self._writer.transport.abort())
        try:
            await self._answer()
        except BaseException:
            await self.close()
            raise

    @property
    def has_ended(self) -> bool:
        """Whether the process makes no further call."""
        return self._exit.done() or self._reader.at_eof()

    async def call(self, element: Any, policy: WorkerPolicy | None) -> Any:
        """Make a call. See :class:`.Worker`."""
        version = None if policy is None else policy.version
        request = pickle.dumps((element, version))
        if policy is not None and policy.weights is not self._weights:
            packed = await self._packed.of(policy.weights)
            self._weights = policy.weights
            write_frame(self._writer, WEIGHTS, packed)
        self._is_busy = True
        write_frame(self._writer, CALL, request)
        return await self._answer()

    async def _answer(self) -> Any:
        try:
            await self._writer.drain()
            kind, data = await read_frame(self._reader)
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.wait([self._exit], timeout=_REST_SECS)
            self._kill()
            how = how_it_ended(await asyncio.shield(self._exit))
            raise WorkerDiedError(f"Child process {self._process.pid} {how}.") from None
        self._is_busy = False
        found = pickle.loads(data)  # of a child with the rights of this process
        if kind == RESULT:
            return found
        text, packed, trace = found
        error: Exception = RuntimeError(text)
        if packed is not None:
            error = pickle.loads(packed)
        add_note(error, f"asyncmon: raised in the child process {self._process.pid}:\n{trace}")
        raise error

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """End the process. See :class:`.Worker`."""
        self._writer.close()  # an idle one exits
        if self._is_busy:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            await asyncio.wait([self._exit], timeout=_END_SECS)
        finally:
            self._kill()
            await outlast(self._exit)
            os.close(self._stdin)
