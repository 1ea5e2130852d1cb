"""Start programs by forking a process that has imported asyncmon: in 10 ms instead of 400.

A program is ``__main__`` of its process and ends as an interpreter does: exit functions run, threads
are joined, and the exit status is that of ``python program.py``. Use :mod:`subprocess` where imports or
the start of the interpreter are the subject.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).parents[1]


class Process:
    """A running file, module as with ``python -m``, or code after "-c".

    ``stdin``, ``stdout`` and ``stderr`` are texts; with ``merged`` both outputs go to ``stdout``.
    It is forked from a process that has imported the modules of ``imported``, too.
    Leaving a ``with`` block waits for the end.
    """

    def __init__(
        self,
        program: Path | str,
        *arguments: str,
        cwd: Path | None = None,
        options: tuple[str, ...] = (),
        imported: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        merged: bool = False,
    ) -> None:
        request = {
            "program": str(program),
            "is_file": isinstance(program, Path),
            "argv": arguments,
            "cwd": str(cwd or Path.cwd()),
            "env": {**os.environ, **(env or {})},
        }
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        if merged:
            os.dup2(theirs[1], theirs[2])
        self._status, status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with status:
            socket.send_fds(
                _server(options, imported), [json.dumps(request).encode()], [*theirs, status.fileno()]
            )
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin: IO[str] = os.fdopen(pipes[0][1], "w")
        self.stdout: IO[str] = os.fdopen(pipes[1][0])
        self.stderr: IO[str] = os.fdopen(pipes[2][0])
        self.pid = int(self._status.recv(64))
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stdin.close()
        self.wait()
        self._close()

    def _close(self) -> None:
        for closed in (self.stdout, self.stderr, self._status):
            closed.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

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
        """Return the rest of its output; ``stderr`` must fit into a pipe."""
        with contextlib.suppress(
            BrokenPipeError, ValueError
        ):  # it has ended, or this was called before
            self.stdin.write(text)
            self.stdin.close()
        texts = [stream.read() if not stream.closed else "" for stream in (self.stdout, self.stderr)]
        self.wait(timeout)
        self._close()
        return texts[0], texts[1]


def run(
    program: Path | str,
    *arguments: str,
    check: bool = False,
    timeout: float | None = None,
    **given: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as ``subprocess.run`` does with ``capture_output`` and ``text``."""
    process = Process(program, *arguments, **given)
    stdout, stderr = process.communicate(timeout=timeout)
    assert process.returncode is not None, "communicate() waits"
    done = subprocess.CompletedProcess(
        [str(program), *arguments], process.returncode, stdout=stdout, stderr=stderr
    )
    if check:
        done.check_returncode()
    return done


def start_example(
    directory: Path, name: str, *arguments: str, env: Mapping[str, str] | None = None
) -> Process:
    """Start an example in a directory. Its warnings are errors."""
    path, options = ROOT / "examples" / name, ("-W", "error", "-u")
    return Process(path, *arguments, cwd=directory, options=options, env=env, merged=True)


def run_example(
    directory: Path, name: str, *arguments: str, env: Mapping[str, str] | None = None
) -> str:
    """Run an example to its good end, and return its output."""
    process = start_example(directory, name, *arguments, env=env)
    out, _ = process.communicate()
    assert process.returncode == 0, out
    return out


@functools.cache
def _server(options: tuple[str, ...], imported: tuple[str, ...]) -> socket.socket:
    """Return the connection to the process that forks, started at the first use."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, *options, __file__, str(theirs.fileno()), *imported],
        pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    theirs.close()

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork for each request. In the child, return the request."""
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
    if request["program"] == "-c":
        request["code"] = request["argv"].pop(0)
    sys.argv[:] = [request["program"], *request["argv"]]
    sys.path[0] = str(Path(request["program"]).parent) if request["is_file"] else request["cwd"]
    return request


if __name__ == "__main__":
    import anyio._backends._asyncio  # noqa: F401
    import numpy.random  # noqa: F401

    from asyncmon.system.wings import wings

    for one in wings():
        importlib.import_module(f"asyncmon.{one.name}")
    for module in sys.argv[2:]:
        importlib.import_module(module)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.collect()
    gc.freeze()  # the collection at the end of each child would copy all pages
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request["is_file"]:
        __file__ = request["program"]
        with open(__file__) as file:
            code = compile(file.read(), __file__, "exec", dont_inherit=True)
    elif request["program"] == "-c":
        code = compile(request["code"], "<string>", "exec", dont_inherit=True)
        del __file__
    else:
        runpy.run_module(request["program"], run_name="__main__", alter_sys=True)
        raise SystemExit
    for name in set(globals()) - {"__name__", "__file__", "__builtins__", "code"}:
        del globals()[name]
    del globals()["name"]
    exec(code)
