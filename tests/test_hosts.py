"""Signals in processes of another owner: a server, a prompt, a notebook; and under uvloop."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked

TRAINING = """
import asyncio, signal, sys
import asyncmon as am

program = am.programs.FunctionProgram(state={"weight": 0.0})

@program.step
async def train(state):
    await asyncio.sleep(0.001)
    state["weight"] += 1

def session(**kwargs):
    return am.MonitoredTrainingSession(checkpoint_dir="run", program=program, **kwargs)

async def train_on(sess):
    while not sess.should_stop():
        await sess.run("train")
        if sess.global_step == 5:
            print("ready", flush=True)

async def main():
    async with session(stop_grace_period_secs=10) as sess:
        await train_on(sess)
    print("after", sess.stop_reason, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "training.py").write_text(TRAINING)
    return tmp_path


@contextlib.contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHON_BASIC_REPL": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str] | forked.Process, line: str) -> None:
    assert process.stdout is not None
    for seen in process.stdout:
        if seen.strip().endswith(line):
            return
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_under_uvloop(folder: Path, number: signal.Signals) -> None:
    if importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")
    (folder / "main.py").write_text("""
import uvloop
from training import *

async def main():
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    async with session() as sess:
        await train_on(sess)
    print("after", sess.stop_reason)

am.run(main, loop_factory=uvloop.new_event_loop, stop_grace_period_secs=10)
""")
    with forked.Process(folder / "main.py", cwd=folder, options=("-u",)) as process:
        wait_for(process, "ready")
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
    assert (process.returncode, out) == (75, f"after signal {number.name}\n"), err


SERVICE = """
import contextlib
from training import *

@contextlib.asynccontextmanager
async def lifespan():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with session() as sess:
        assert before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        training = asyncio.create_task(train_on(sess))
        yield sess
        sess.request_stop("the service ends")
        await training
    print("after", sess.stop_reason, flush=True)

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        async with contextlib.AsyncExitStack() as stack:
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    await stack.enter_async_context(lifespan())
                    await send({"type": "lifespan.startup.complete"})
                else:
                    await stack.aclose()
                    return await send({"type": "lifespan.shutdown.complete"})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"trained"})
"""


def test_under_uvicorn_the_server_keeps_its_handlers(folder: Path) -> None:
    if importlib.util.find_spec("uvicorn") is None:
        pytest.skip("uvicorn is not installed")
    (folder / "service.py").write_text(SERVICE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = ["uvicorn", "service:app", "--port", str(port)]
    with forked.Process(*command, cwd=folder, options=("-u",)) as process:
        wait_for(process, "ready")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            assert answer.read() == b"trained"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=40)
    assert "after the service ends\n" in out, err
    assert process.returncode in (0, -signal.SIGTERM)  # it sends itself the signal again


def test_at_the_prompt_of_asyncio_a_session_stops_and_the_prompt_stays(folder: Path) -> None:
    with started(folder, "-i", "-m", "asyncio") as process:

        def type_in(text: str) -> None:
            assert process.stdin is not None
            process.stdin.write(text)
            process.stdin.flush()

        type_in("from training import *\nawait main()\n")
        wait_for(process, "ready")
        process.send_signal(signal.SIGINT)
        wait_for(process, "after signal SIGINT")
        type_in('print("handler", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\nexit()\n')
        out, err = process.communicate(timeout=40)
    assert "handler True" in out, err


LINES = """
import asyncmon as am
from asyncmon import graph as g

v = g.get_variable("v", initializer=2.0)
doubled = v.assign(v * 2)
sess = await am.MonitoredSession().start()
print(await sess.run(doubled), await sess.run(doubled))
await sess.close()
g.reset_default_graph()
print(g.constant(1).op.name, g.constant(2).op.name)
exit()
"""


def test_lines_at_the_prompt_of_asyncio_share_a_graph(folder: Path) -> None:
    with started(folder, "-i", "-m", "asyncio") as process:
        out, err = process.communicate(LINES, timeout=40)
    assert "4.0 8.0\n" in out, err
    assert "Const Const_1\n" in out, err


CELL = """
from training import *
before = signal.getsignal(signal.SIGINT)
async with session(save_on_cancel=True) as sess:
    assert signal.getsignal(signal.SIGINT) == before
    await train_on(sess)
"""


def test_in_a_notebook_interrupting_a_cell_ends_the_session_and_not_the_kernel(folder: Path) -> None:
    manager = pytest.importorskip("jupyter_client.manager", reason="jupyter_client is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    kernel, client = manager.start_new_kernel(cwd=str(folder))
    try:
        client.execute(CELL)
        assert ("stream", "ready\n") in messages(client, lambda kind, text: text == "ready\n")
        kernel.interrupt_kernel()
        ended = messages(client, lambda kind, text: (kind, text) == ("status", "idle"))
        assert [text for kind, text in ended if kind == "error"] in (
            ["CancelledError"],
            ["KeyboardInterrupt"],
        )
        client.execute("print(sess.stop_reason, sess.global_step)")
        shown = messages(client, lambda kind, text: (kind, text) == ("status", "idle"))
        [line] = [text for kind, text in shown if kind == "stream"]
        reason, step = line.split()
        assert reason == "cancelled"
        assert int(step) >= 5
        assert kernel.is_alive()
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


def messages(client: Any, is_last: Any) -> list[tuple[str, str]]:
    """Return the kinds and texts of a kernel's messages up to one, within ten seconds."""
    seen: list[tuple[str, str]] = []
    until = time.monotonic() + 10
    while not (seen and is_last(*seen[-1])):
        with contextlib.suppress(queue.Empty):
            message = client.get_iopub_msg(timeout=1)
            content = message["content"]
            text = content.get("text") or content.get("ename") or content.get("execution_state", "")
            seen.append((message["msg_type"], text))
        assert time.monotonic() < until, seen
    return seen
