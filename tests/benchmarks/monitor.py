"""What the monitor takes of a core: 20 charts, 10 updates a second, 5 viewers; or 1,000 idle ones.

Run by name: ``python tests/benchmarks/monitor.py [given] [files] [idle]``. The viewers are sockets of
this process; the server is another one, of which processor time counts, all threads together: with
five viewers, less what it takes with none. Updates are given to the run (``given``), as a session in
the server's process would, or this process writes them to an event file (``files``). ``idle`` compares
steps of 12 ms alone with those beside 1,000 viewers, for which the limit of viewers is raised, by the
processor time that each takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from harness import Row, command

import asyncmon as am
from asyncmon.monitor import feed
from asyncmon.system import clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

CHARTS, VIEWERS, EVERY_SECS = 20, 5, 0.1
SECS = 10.0
ROUNDS = 3


def serve(directory: str, given: bool) -> None:
    """Serve one run of a directory, and the processor time at ``/cpu``, in a process of its own."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Mount, Route

    run = am.monitor.RunDirectory(directory, poll_secs=1.0 if given else EVERY_SECS)

    async def give() -> None:
        step = 0
        while given:
            await asyncio.sleep(EVERY_SECS)
            step += 1
            for chart in range(CHARTS):
                run.scalars.add(f"chart/{chart}", step, 0.1 * step, clock.wall())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(give())
        yield
        task.cancel()

    routes = [
        Route("/cpu", lambda _: JSONResponse(time.process_time())),
        Mount("/", am.monitor.create_app(run)),
    ]
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        Starlette(routes=routes, lifespan=lifespan), log_level="warning", access_log=False
    )
    uvicorn.Server(config).run(sockets=[listener])


async def request(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    return reader, writer


async def processor_secs(port: int) -> float:
    reader, writer = await request(port, "/cpu")
    answer = await reader.read()
    writer.close()
    return float(json.loads(answer.rpartition(b"\r\n")[2]))


async def view(port: int, counts: list[int]) -> None:
    """Count the updates that one viewer gets, until cancelled."""
    reader, writer = await request(port, "/api/events")
    try:
        while line := await reader.readline():
            counts[-1] += line == b"event: scalars\n"
    finally:
        writer.close()


async def write(directory: str) -> None:
    async with am.summary.FileWriter(directory) as writer:
        writer.start(0)
        step, due = 0, time.perf_counter()
        while True:
            step += 1
            due += EVERY_SECS
            for chart in range(CHARTS):
                writer.add_scalar(f"chart/{chart}", 0.1 * step, step)
            await writer.flush()
            await asyncio.sleep(due - time.perf_counter())


async def measure(port: int, viewers: int) -> tuple[float, float]:
    """Return the share of a core, and updates a second that each viewer gets."""
    counts = [0]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(view(port, counts)) for _ in range(viewers)]
        await asyncio.sleep(2)
        counts.append(0)
        begin, start = await processor_secs(port), time.perf_counter()
        await asyncio.sleep(SECS)
        used = await processor_secs(port) - begin
        secs = time.perf_counter() - start
        for task in tasks:
            task.cancel()
    return used / secs, counts[-1] / secs / max(1, viewers)


@contextlib.contextmanager
def server(directory: str, given: bool) -> Iterator[int]:
    arguments = [sys.executable, __file__, "serve", directory, "given" if given else "files"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def rounds(directory: str, given: bool) -> list[tuple[float, float]]:
    """Return the share of a core that viewers take, and their updates, of each round."""
    found = []
    with server(directory, given) as port:
        writing = None if given else asyncio.create_task(write(directory))
        for _ in range(ROUNDS):
            idle, _ = await measure(port, 0)
            busy, updates = await measure(port, VIEWERS)
            found.append((busy - idle, updates))
        if writing is not None:
            writing.cancel()
    return found


def figures(name: str, given: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(rounds(directory, given))
    share, updates = (statistics.median(column) for column in zip(*found, strict=True))
    said = f"{share:.2%} of a core at {updates:.1f} updates/s each"
    return [Row(name, said, "2 % at 10", share < 0.02 and updates > 9)]


IDLE = 1_000
VIEW = """if True:
    import resource, select, socket, sys, time
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    polled = select.poll()
    viewers = {}
    for _ in range(int(sys.argv[2])):
        viewer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        viewer.sendall(b"GET /api/events HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
        viewers[viewer.fileno()] = viewer
        polled.register(viewer, select.POLLIN)
    while True:
        for number, _ in polled.poll():
            viewers[number].recv(1 << 16)
"""


async def processor_ms(sess: am.MonitoredSession, secs: float) -> float:
    """Return the processor time of a step and what is done beside it."""
    count, start, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < secs:
        await sess.run("train")
        await asyncio.sleep(0)
        count += 1
    return 1e3 * (time.process_time() - used) / count


async def beside_viewers(count: int) -> tuple[float, float]:
    """Return the processor time of a step in ms, alone and beside the viewers."""
    import uvicorn

    program = am.programs.FunctionProgram(state={"steps": 0})

    @program.step
    async def train(state: dict[str, int]) -> None:
        end = time.thread_time() + 0.012
        while time.thread_time() < end:
            state["steps"] += 1

    sess = am.MonitoredTrainingSession(program=program, signals=None)
    config = uvicorn.Config(am.monitor.create_app(sess), log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    async with sess:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        alone = await processor_ms(sess, SECS)
        port = str(listener.getsockname()[1])
        viewers = await asyncio.create_subprocess_exec(sys.executable, "-c", VIEW, port, str(count))
        await processor_ms(sess, 3)  # while they connect
        beside = await processor_ms(sess, SECS)
        viewers.kill()
        server.should_exit = True
        await asyncio.gather(viewers.wait(), serving)
    return alone, beside


def idle() -> list[Row]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    feed.MOST_VIEWERS = IDLE
    alone, beside = asyncio.run(beside_viewers(IDLE))
    said = f"{beside:.2f} ms a step, {alone:.2f} alone"
    return [Row(f"a training beside {IDLE:,} idle viewers", said, "10 % more", beside < 1.1 * alone)]


ROWS: dict[str, Callable[[], list[Row]]] = {
    "given": lambda: figures("points given by the session", True),
    "files": lambda: figures("points of another process's file", False),
    "idle": idle,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], sys.argv[3] == "given")
    else:
        sys.exit(command(f"the monitor with {CHARTS} charts and {VIEWERS} viewers", ROWS))
