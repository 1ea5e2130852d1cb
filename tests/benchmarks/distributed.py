"""The figures of sessions in other processes: ``python tests/benchmarks/distributed.py [row ...]``.

Servers are processes of this machine. Bare calls and streams have the same options and receive into the
same kind of memory, in the same run. Rows: local-scalar, local-mlp, local-service, grpc-scalar,
grpc-transfers, tf, grpc-killed, grpc-recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import models
import numpy as np
import psutil
import service
from harness import Peer, Row, command, take_turns, typical

from asyncmon import errors
from asyncmon import graph as am
from asyncmon.distributed.grpc_transport import CHUNK, Assembly, both_sides
from asyncmon.graph.variables.global_step import get_or_create_global_step
from asyncmon.session_config import RPCOptions
from asyncmon.training import MonitoredTrainingSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

LOOP = asyncio.Runner()
SIZES = [784, 512, 512, 10]
TRANSFERRED = 100_000_000
OPTIONS = [*both_sides(RPCOptions()), ("grpc.use_local_subchannel_pool", 1)]
PART = bytes(CHUNK)


# --- "local" --------------------------------------------------------------------------------------
class Trained:
    """A model in a session of a target."""

    def __init__(
        self, target: str, build: Callable[[], models.Model], shape: list[int] | None = None
    ) -> None:
        with am.Graph().as_default() as graph:
            self.model = build()
        self.session = am.Session(target, graph)
        self.feeds: dict[Any, Any] = {}
        if shape is not None:
            tensors = self.model.images, self.model.labels
            self.feeds = dict(zip(tensors, models.batch(shape), strict=True))
        LOOP.run(self.session.run(self.model.init))

    def __call__(self, steps: int) -> float:
        return typical(lambda n: LOOP.run(self.train(n)), steps)

    async def train(self, steps: int) -> float:
        run, fetches, feeds = self.session.run, self.model.step, self.feeds
        start = time.perf_counter()
        for _ in range(steps):
            await run(fetches, feeds)
        return (time.perf_counter() - start) / steps

    def close(self) -> None:
        LOOP.run(self.session.close())


def local_scalar() -> list[Row]:
    ours = Trained("local", lambda: models.counter(am))
    took = take_turns({"local": lambda: ours(2000)}, rounds=7)["local"]
    ours.close()
    return [Row("local, scalar increment", f"{took * 1e3:.3f} ms", "0.3 ms or less", took <= 0.0003)]


def local_mlp() -> list[Row]:
    build, shape = (lambda: models.mlp(am, SIZES)), [128, 784]
    here, local = Trained("", build, shape), Trained("local", build, shape)
    found = take_turns({"here": lambda: here(60), "local": lambda: local(60)}, rounds=11)
    here.close()
    local.close()
    ratio = found["local"] / found["here"]
    said = f"{found['local'] * 1e3:.2f} ms, in process {found['here'] * 1e3:.2f} ms"
    work = "local, (784,512,512,10) x 128"
    return [Row(work, said, "1.15x in process", ratio <= 1.15, {"in process": ratio})]


# --- servers of gRPC -----------------------------------------------------------------------------
async def received(stream: Any) -> None:
    """Receive a stream of chunks."""
    memory = Assembly(TRANSFERRED + CHUNK)
    while (chunk := await stream.read()) is not grpc.aio.EOF:
        memory.add(chunk)


async def bare_grpc() -> None:
    """Answer calls with nothing; take and send streams of chunks."""

    async def call(_data: bytes, _context: Any) -> bytes:
        return b""

    async def push(_requests: Any, context: Any) -> bytes:
        await received(context)
        return b""

    async def pull(_data: bytes, context: Any) -> None:
        for _ in range(TRANSFERRED // CHUNK + 1):
            await context.write(PART)

    handlers = {
        "call": grpc.unary_unary_rpc_method_handler(call),
        "push": grpc.stream_unary_rpc_method_handler(push),
        "pull": grpc.unary_stream_rpc_method_handler(pull),
    }
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    sys.stdout.write(f"grpc://localhost:{server.add_insecure_port('127.0.0.1:0')}\n")
    sys.stdout.flush()
    await server.start()
    await server.wait_for_termination()


@contextlib.contextmanager
def process(*command: str) -> Iterator[tuple[str, Any]]:
    """Start a server, and yield its target and the process."""
    started = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert started.stdout is not None, "PIPE"
    try:
        yield started.stdout.readline().strip(), started
    finally:
        started.kill()
        started.wait()


def grpc_server(port: str = "0") -> Any:
    cluster = json.dumps({"ps": [f"localhost:{port}"]})
    return process("-m", "asyncmon", "server", "--cluster", cluster)


# --- gRPC -----------------------------------------------------------------------------------------
def each(work: Callable[[], Awaitable[Any]], repeats: int, tasks: int = 1) -> float:
    """Return seconds per call, of so many tasks that each wait for one call after the other."""

    async def repeat() -> None:
        for _ in range(repeats):
            await work()

    async def run() -> float:
        start = time.perf_counter()
        await asyncio.gather(*[repeat() for _ in range(tasks)])
        return (time.perf_counter() - start) / repeats / tasks

    return LOOP.run(run())


async def connected(target: str) -> Any:
    return grpc.aio.insecure_channel(target.partition("://")[2], OPTIONS)


def grpc_scalar() -> list[Row]:
    rows = []
    with grpc_server() as (target, _), process(__file__, "bare-grpc") as (other, _):
        call = LOOP.run(connected(other)).unary_unary("/bare/call")
        v = am.Variable(0.0)
        add = v.assign_add(1.0)
        sessions = [am.Session(target) for _ in range(8)]
        for sess in sessions:
            LOOP.run(sess.run(v.initializer))
        found = take_turns(
            {
                "ours": lambda: each(lambda: sessions[0].run(add.op), 1000),
                "bare": lambda: each(lambda: call(b""), 1000),
            },
            rounds=7,
        )
        ratio = found["ours"] / found["bare"]
        said = f"{found['ours'] * 1e3:.3f} ms, a bare call {found['bare'] * 1e3:.3f} ms"
        work = "remote run of the scalar increment"
        rows.append(Row(work, said, "1.3x a bare call", ratio <= 1.3, {"bare call": ratio}))
        turns = iter(range(1 << 60))
        found = take_turns(
            {
                "ours": lambda: each(lambda: sessions[next(turns) % 8].run(add.op), 300, 8),
                "bare": lambda: each(lambda: call(b""), 300, 8),
            },
            rounds=7,
        )
        rate, bare_rate = 1 / found["ours"], 1 / found["bare"]
        said = f"{rate:,.0f} runs/s where bare {bare_rate:,.0f}"
        rows.append(Row("8 clients in flight", said, "3,500 of 4,400", rate >= bare_rate * 35 / 44))
        for sess in sessions:
            LOOP.run(sess.close())
    return rows


def grpc_transfers() -> list[Row]:
    with grpc_server() as (target, _), process(__file__, "bare-grpc") as (other, _):
        channel = LOOP.run(connected(other))
        x = am.placeholder(am.float32, [TRANSFERRED // 4])
        total = x[-1]
        held = am.Variable(am.zeros([TRANSFERRED // 4]))
        value = np.ones(TRANSFERRED // 4, np.float32)
        sess = am.Session(target)
        LOOP.run(sess.run(held.initializer))
        lags: list[float] = []

        async def bare_pull() -> None:
            await received(channel.unary_stream("/bare/pull")(b""))

        async def bare_push() -> None:
            async def parts() -> AsyncIterator[bytes]:
                for _ in range(TRANSFERRED // CHUNK + 1):
                    yield bytes(PART[:])

            await channel.stream_unary("/bare/push")(parts())

        async def pull() -> None:
            watch = asyncio.create_task(lag(lags))
            await sess.run(held)
            watch.cancel()

        async def push() -> None:
            await sess.run(total, {x: value})

        works = {"pull": pull, "bare pull": bare_pull, "push": push, "bare push": bare_push}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        LOOP.run(pull())
        extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / TRANSFERRED
        lags.clear()
        found = take_turns(
            {name: lambda work=work: each(work, 2) for name, work in works.items()}, rounds=7
        )
        rows = []
        for name in ("pull", "push"):
            ratio = found[name] / found[f"bare {name}"]
            said = f"{TRANSFERRED / found[name] / 1e6:,.0f} MB/s"
            limit = {"bare stream": ratio}
            rows.append(Row(f"{name} of 100 MB", said, "1.25x the bare stream", ratio <= 1.25, limit))
        rows.append(Row("memory of a pull, over the array", f"{extra:.2f}x", "1.1x", extra <= 1.1))
        worst = statistics.quantiles(lags, n=100)[98]
        rows.append(Row("loop lag in a pull, p99", f"{worst * 1e3:.1f} ms", "5 ms", worst <= 0.005))
        LOOP.run(sess.close())
    return rows


async def lag(lags: list[float]) -> None:
    while True:
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        lags.append(time.perf_counter() - start - 0.001)


def tf() -> list[Row]:
    """Take turns with a session of TensorFlow, if ASYNCMON_PEER_PYTHON has it."""
    wanted = {"scalar": 1.0, "pull 10": 0.8, "push 10": 0.8, "pull 100": 0.4, "push 100": 0.4}
    counts = {"scalar": 300, "10": 5, "100": 1}
    rows: list[Row] = []
    with Peer(Path(__file__).parent / "tf_cluster_peer.py") as peer, grpc_server() as (target, server):
        v = am.get_variable("v", initializer=0.0)
        sess = am.Session(target)
        fetches: dict[str, Any] = {"scalar": (v.assign_add(1.0).op, None)}
        for mb in (10, 100):
            x = am.placeholder(am.float32, [mb * 250_000])
            held = am.get_variable(f"held{mb}", initializer=am.zeros([mb * 250_000]))
            fetches[f"pull {mb}"] = held, None
            fetches[f"push {mb}"] = x[-1], {x: np.ones(mb * 250_000, np.float32)}
        LOOP.run(sess.run(am.global_variables_initializer()))
        for work, limit in wanted.items():
            count, target_text = counts[work.split()[-1]], f"{limit:g}x of TensorFlow"
            fetch, feed = fetches[work]
            turns = {
                "ours": lambda fetch=fetch, feed=feed, count=count: each(
                    lambda: sess.run(fetch, feed), count
                )
            }
            if peer.installed:
                turns["tf"] = lambda work=work, count=count: peer.ask(work=work, count=count)["secs"]
            before = psutil.Process(server.pid).cpu_times()
            found = take_turns(turns, rounds=9)
            after = psutil.Process(server.pid).cpu_times()
            said = f"{found['ours'] * 1e3:.2f} ms"
            if work == "scalar":
                used = (after.user + after.system - before.user - before.system) / (11 * count)
                said += f", {used * 1e3:.2f} ms of the server's CPU"
            ratio = found["ours"] / found["tf"] if "tf" in found else None
            met = None if ratio is None else ratio <= limit
            known = {} if ratio is None else {"TF1": ratio}
            name = f"{work} MB" if " " in work else "scalar, one server"
            rows.append(Row(name, said, target_text, met, known))
        LOOP.run(sess.close())
    return rows


def grpc_killed() -> list[Row]:
    times = []
    for _ in range(5):
        with grpc_server() as (target, server):
            v = am.Variable(0.0)
            taken = am.FIFOQueue(1, am.int32, [()]).dequeue()
            sess = am.Session(target)

            async def wait(
                sess: Any = sess, v: Any = v, taken: Any = taken, server: Any = server
            ) -> float:
                await sess.run(v.initializer)
                waiting = asyncio.create_task(sess.run(taken))
                await asyncio.sleep(0.2)
                server.send_signal(signal.SIGKILL)
                start = time.perf_counter()
                with contextlib.suppress(errors.UnavailableError):
                    await waiting
                return time.perf_counter() - start

            times.append(LOOP.run(wait()))
            LOOP.run(sess.close())
    worst = max(times)
    return [Row("killed server: error at the client", f"{worst * 1e3:.0f} ms", "100 ms", worst <= 0.1)]


async def recovered(directory: str) -> float:
    """Kill a server that trains and start another; return the seconds until that trains."""
    with am.Graph().as_default(), contextlib.ExitStack() as servers:
        target, server = servers.enter_context(grpc_server())
        add = get_or_create_global_step().assign_add(1)
        async with MonitoredTrainingSession(target, checkpoint_dir=directory) as sess:
            for _ in range(100):
                await sess.run(add)
            server.kill()
            server.wait()
            running = asyncio.create_task(sess.run(add))
            again = grpc_server(target.rpartition(":")[2])
            await asyncio.to_thread(servers.enter_context, again)
            start = time.perf_counter()
            await running
            took = time.perf_counter() - start
            assert await sess.run(add) == 2, "after that of the first checkpoint"
            return took


def grpc_recovery() -> list[Row]:
    times = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as directory:
            times.append(LOOP.run(recovered(directory)))
    worst = max(times)
    return [Row("killed server is back: training again", f"{worst:.2f} s", "3 s", worst <= 3)]


ROWS: dict[str, Callable[[], list[Row]]] = {
    "local-scalar": local_scalar,
    "local-mlp": local_mlp,
    "local-service": service.local,
    "grpc-scalar": grpc_scalar,
    "grpc-transfers": grpc_transfers,
    "tf": tf,
    "grpc-killed": grpc_killed,
    "grpc-recovery": grpc_recovery,
}


def main() -> int:
    with LOOP:
        return command("sessions in other processes", ROWS)


if __name__ == "__main__":
    if sys.argv[1:] == ["bare-grpc"]:
        asyncio.run(bare_grpc())
    else:
        sys.exit(main())
