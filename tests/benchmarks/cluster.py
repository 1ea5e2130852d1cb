"""What a session adds to calls of gRPC: ``python tests/benchmarks/cluster.py [row ...]``.

Rows: scalar, clients. The server, and that of the bare calls, are processes of this machine. Bare calls
have the same options and bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from harness import Row, command, take_turns

from asyncmon import graph as g
from asyncmon.distributed.grpc_transport import both_sides
from asyncmon.session_config import RPCOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

LOOP = asyncio.Runner()
OPTIONS = [*both_sides(RPCOptions()), ("grpc.use_local_subchannel_pool", 1)]
CLIENTS = 8
REQUEST = bytes(120)  # as long as that of a scalar increment


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, Any]]:
    """Start a server; yield its target and the process."""
    started = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert started.stdout is not None, "PIPE"
    try:
        yield started.stdout.readline().strip(), started
    finally:
        started.kill()
        started.wait()


def grpc_server() -> Any:
    """Start a parameter server."""
    return process("-m", "asyncmon", "server", "--cluster", '{"ps": ["localhost:0"]}')


async def answer_bare_calls() -> None:
    """Be the server of the bare calls."""

    async def call(data: bytes, _context: Any) -> bytes:
        return data

    handlers = {"call": grpc.unary_unary_rpc_method_handler(call)}
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    print(f"localhost:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    await server.wait_for_termination()


async def connected(address: str) -> Any:
    return grpc.aio.insecure_channel(address, OPTIONS).unary_unary("/bare/call")


def each(work: Callable[[], Awaitable[Any]], repeats: int, tasks: int) -> float:
    """Return seconds per call, of tasks that each wait for one call after the other."""

    async def repeat() -> None:
        for _ in range(repeats):
            await work()

    async def run() -> float:
        start = time.perf_counter()
        await asyncio.gather(*[repeat() for _ in range(tasks)])
        return (time.perf_counter() - start) / repeats / tasks

    return LOOP.run(run())


def calls(what: str, clients: int, repeats: int, most: float) -> Row:
    """Compare increments of a variable on a server with bare calls."""
    with (
        grpc_server() as (target, _),
        process(__file__, "bare") as (address, _),
        g.Graph().as_default(),
    ):
        bare = LOOP.run(connected(address))
        v = g.Variable(0.0)
        add = v.assign_add(1.0).op
        sessions = [g.Session(target) for _ in range(clients)]
        for one in sessions:
            LOOP.run(one.run(v.initializer))
        turns = itertools.cycle(sessions)
        found = take_turns(
            {
                "ours": lambda: each(lambda: next(turns).run(add), repeats, clients),
                "a bare call": lambda: each(lambda: bare(REQUEST), repeats, clients),
            },
            rounds=9,
        )
        for one in sessions:
            LOOP.run(one.close())
    ratio = found["ours"] / found["a bare call"]
    said = ", ".join(f"{name} {took * 1e3:.3f} ms" for name, took in found.items())
    return Row(what, said, f"{most:g}x a bare call", ratio <= most, {"a bare call": ratio})


ROWS = {
    "scalar": lambda: calls("an increment on a server", 1, 800, 1.2),
    "clients": lambda: calls(f"increments of {CLIENTS} clients", CLIENTS, 200, 1.18),
}


if __name__ == "__main__":
    if sys.argv[1:] == ["bare"]:
        asyncio.run(answer_bare_calls())
    with LOOP:
        sys.exit(command("what a session adds to calls of gRPC", ROWS))
