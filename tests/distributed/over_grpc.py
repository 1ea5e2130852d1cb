"""Sessions that use gRPC though their server is of the same process, and servers that are not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import asyncmon as am
from tests import forked


def rpc_config(**options: Any) -> am.SessionConfig:
    """Return a config with these ``rpc_options``."""
    config = am.SessionConfig()
    config.rpc_options.use_rpc_for_inprocess_master = True
    config.rpc_options.timeout_secs = 60.0
    for name, value in options.items():
        setattr(config.rpc_options, name, value)
    return config


async def until(condition: Callable[[], Any]) -> None:
    """Iterate the loop until that is true."""
    while True:
        if condition():
            return
        await asyncio.sleep(0)


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


LIMITED = """
import resource, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from asyncmon.cli import main
sys.exit(main())
"""


class ServerProcess:
    """``python -m asyncmon server`` on this machine. Leaving ``async with`` kills it."""

    def __init__(
        self,
        port: int = 0,
        *options: str,
        env: dict[str, str] | None = None,
        descriptors: int | None = None,
    ) -> None:
        self.port = port or free_port()
        self.target = f"grpc://localhost:{self.port}"
        self._options = options
        self._env = env
        self._descriptors = descriptors

    async def start(self) -> None:
        """Start, and wait until it takes sessions."""
        cluster = json.dumps({"ps": [f"localhost:{self.port}"]})
        program = ["asyncmon"] if self._descriptors is None else ["-c", LIMITED, str(self._descriptors)]
        self.process = forked.Process(
            *program, "server", "--cluster", cluster, *self._options, env=self._env
        )
        line = await asyncio.to_thread(self.process.stdout.readline)
        if line.strip() != self.target:
            self.process.kill()
            raise AssertionError((line, self.target, await self.errors()))

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def errors(self) -> str:
        """Return the text on standard error, once the process has ended."""
        return await asyncio.to_thread(self.process.stderr.read)

    async def killed(self) -> None:
        """Kill it, and wait for its end."""
        self.process.kill()
        await asyncio.to_thread(self.process.communicate)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.killed()


def make_certificates(place: Path, *addresses: str) -> None:
    """Write two authorities, and a server's and a client's certificate of the first.

    Args:
        place: the directory.
        addresses: of the servers, besides those of this machine.
    """

    def openssl(command: str) -> None:
        subprocess.run(["openssl", *command.split()], cwd=place, check=True, capture_output=True)

    curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    for name in ("authority", "stranger"):
        openssl(f"req -x509 {curve} -keyout {name}.key -out {name}.pem -subj /CN={name} -days 2")
    names = ["DNS:localhost", *(f"IP:{address}" for address in ("127.0.0.1", *addresses))]
    (place / "names").write_text(f"subjectAltName={','.join(names)}\n")
    for name in ("server", "client"):
        openssl(f"req {curve} -keyout {name}.key -out {name}.csr -subj /CN={name}")
        openssl(
            f"x509 -req -in {name}.csr -CA authority.pem -CAkey authority.key -CAcreateserial "
            f"-out {name}.pem -days 2 -extfile names",
        )


class Proxy:
    """Carries bytes to a port until it is cut, from when on it drops them in silence.

    Attributes:
        is_cut: whether it drops them.
        flips: the number of next pieces of which it changes a byte.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.is_cut = False
        self.flips = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.target = f"grpc://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except ConnectionRefusedError:
            writer.close()
            return
        self._writers.append(far_writer)
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if not self.is_cut:
                    if self.flips:
                        self.flips -= 1
                        data = bytes([data[0] ^ 1]) + data[1:]
                    writer.write(data)
                    await writer.drain()
        if not self.is_cut:
            writer.close()
