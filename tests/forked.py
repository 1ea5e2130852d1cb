"""Programs in processes of their own, forked from one that has imported asyncmon: a start takes 10 ms, not 400.

Such a program is ``__main__`` of its process, and its end is that of an interpreter: exit functions run,
threads are joined, and the exit status is that of ``python program.py``. It differs in what was imported
before. Use :mod:`subprocess` where imports, options of the interpreter or its start are the subject.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]


class Process:
    """A program that runs; ``stdin``, ``stdout`` and ``stderr`` are texts, as with ``Popen``."""

    def __init__(
        self, program: Path, *arguments: str, cwd: Path, options: tuple[str, ...] = ()
    ) -> None:
        request = {"program": str(program), "argv": arguments, "cwd": str(cwd), "env": {**os.environ}}
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        self._status, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with status:
            socket.send_fds(
                _server(options), [json.dumps(request).encode()], [*theirs, status.fileno()]
            )
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin: IO[str] = open(pipes[0][1], "w")
        self.stdout: IO[str] = open(pipes[1][0])
        self.stderr: IO[str] = open(pipes[2][0])
        self.pid = int(self._status.recv(64))
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(self._status.recv(64)))
        return self.returncode

    def communicate(self, text: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Return the rest of what it prints; ``stderr`` must fit into a pipe."""
        with contextlib.suppress(
            BrokenPipeError, ValueError
        ):  # it has ended, or this was called before
            self.stdin.write(text)
            self.stdin.close()
        texts = [stream.read() if not stream.closed else "" for stream in (self.stdout, self.stderr)]
        self.wait(timeout)
        for closed in (self.stdout, self.stderr, self._status):
            closed.close()
        return texts[0], texts[1]


@functools.cache
def _server(options: tuple[str, ...]) -> socket.socket:
    """Return the connection to the process that forks, started at the first use."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, *options, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    theirs.close()

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def _serve(connection: socket.socket) -> str:
    """Fork for each request. In the child, return the path of its program."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        if not text:
            raise SystemExit
        if os.fork() == 0:
            break
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        for descriptor in descriptors:
            os.close(descriptor)
    connection.close()
    child = os.fork()
    if child:
        for number in range(3):
            os.close(descriptors[number])
        os.write(descriptors[3], str(child).encode())
        _, status = os.waitpid(child, 0)
        os.write(descriptors[3], str(status).encode())
        os._exit(0)
    request = json.loads(text)
    for number in range(3):
        os.dup2(descriptors[number], number)
        os.close(descriptors[number])
    os.close(descriptors[3])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv[:] = [request["program"], *request["argv"]]
    sys.path[0] = str(Path(request["program"]).parent)
    return str(request["program"])


if __name__ == "__main__":
    import anyio._backends._asyncio
    import numpy.random

    import asyncmon
    import asyncmon.checkpoint
    import asyncmon.programs  # noqa: F401

    signal.signal(signal.SIGINT, signal.default_int_handler)
    __file__ = _serve(socket.socket(fileno=int(sys.argv[1])))
    with open(__file__) as file:
        code = compile(file.read(), __file__, "exec", dont_inherit=True)
    for name in set(globals()) - {"__name__", "__file__", "__builtins__", "code"}:
        del globals()[name]
    del globals()["name"]
    exec(code)
