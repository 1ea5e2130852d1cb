"""Servers that are killed, stopped, cut off and started again, and the sessions that they had."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import errors, graph
from tests.distributed.over_grpc import Proxy, ServerProcess, free_port, rpc_config


def counter() -> tuple[Any, Any]:
    v = graph.Variable(0.0)
    return v, v.assign_add(1.0)


async def fails_within(secs: float, run: Any) -> None:
    """Assert that a run ends as unavailable within some seconds, on a busy machine."""
    begun = monotonic()
    with pytest.raises(errors.UnavailableError):
        await run
    assert monotonic() - begun < secs


async def once_available(sess: graph.Session, fetches: Any) -> Any:
    """Run until the server is found, and return the result."""
    begun = monotonic()
    while monotonic() - begun < 20.0:
        with contextlib.suppress(errors.UnavailableError):
            return await sess.run(fetches)
    raise AssertionError("The server was not found in 20 s.")


@pytest.mark.asyncio
async def test_a_server_that_is_killed() -> None:
    v, add = counter()
    waits = graph.FIFOQueue(1, graph.int32, [()]).dequeue()
    async with ServerProcess() as server, graph.Session(server.target, config=rpc_config()) as sess:
        await sess.run(v.initializer)
        await sess.run(add)
        waiting = asyncio.create_task(sess.run(waits))
        await asyncio.sleep(0)
        await sess.run(add)
        server.signal(signal.SIGKILL)
        await fails_within(10.0, waiting)
        await fails_within(10.0, sess.run(add))


@pytest.mark.asyncio
async def test_a_server_that_does_not_answer() -> None:
    v, add = counter()
    x = graph.placeholder(graph.float32, [None])
    total = graph.reduce_sum(x)
    async with ServerProcess() as server:
        sess = graph.Session(server.target, config=rpc_config(timeout_secs=2.0))
        await sess.run(v.initializer)
        await sess.run(add)
        server.signal(signal.SIGSTOP)
        await fails_within(5.0, sess.run(add))
        await fails_within(5.0, sess.run(total, {x: np.ones(3_000_000, np.float32)}))
        server.signal(signal.SIGCONT)
        await sess.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, 3_000_000])
async def test_a_connection_that_is_cut_in_silence_and_mended(size: int) -> None:
    v = graph.Variable(np.zeros(size, np.float32))
    x = graph.placeholder(graph.float32, [size])
    pushed = v.assign(x).op
    environment = {"ASYNCMON_TOKEN": "of a server behind another port"}
    async with ServerProcess(env=environment) as server, Proxy(server.port) as proxy:
        config = rpc_config(timeout_secs=2.0, token=environment["ASYNCMON_TOKEN"])
        sess = graph.Session(proxy.target, config=config)
        await sess.run(v.initializer)
        value = np.ones(size, np.float32)
        await sess.run(pushed, {x: value})
        proxy.is_cut = True
        await fails_within(5.0, sess.run(pushed, {x: value * 2.0}))
        proxy.is_cut = False
        found = await once_available(sess, v)  # the old connection is given up, another one made
        assert found[0] in (1.0, 2.0)
        await sess.close()


@pytest.mark.asyncio
async def test_a_server_that_is_started_again_aborts_its_old_sessions() -> None:
    v, add = counter()
    async with ServerProcess() as server, graph.Session(server.target, config=rpc_config()) as sess:
        await sess.run(v.initializer)
        await server.killed()
        await fails_within(10.0, sess.run(add))
        async with ServerProcess(server.port):
            with pytest.raises(errors.AbortedError, match="started anew"):
                await once_available(sess, add)


@pytest.mark.asyncio
async def test_training_continues_from_its_checkpoint(tmp_path: Path) -> None:
    step = am.get_or_create_global_step()
    w = graph.get_variable("w", initializer=0.0)
    train = graph.group(w.assign_add(1.0), step.assign_add(1))
    server = ServerProcess()
    await server.start()
    again = ServerProcess(server.port)
    is_again = False
    try:
        async with am.MonitoredTrainingSession(
            server.target,
            checkpoint_dir=str(tmp_path),
            save_checkpoint_steps=5,
            save_checkpoint_secs=None,
            hooks=[am.StopAtStepHook(last_step=20)],
            config=rpc_config(timeout_secs=5.0),
        ) as sess:
            while not sess.should_stop():
                await sess.run(train)
                if sess.raw_session().global_step == 12 and not is_again:
                    is_again = True
                    await server.killed()
                    await again.start()
            assert await sess.raw_session().run([w, step]) == [20.0, 20]
    finally:
        for one in (server, again):
            await one.killed()
    assert is_again


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_ends_at_a_signal(number: int, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    v, _ = counter()
    async with ServerProcess(0, "--token-file", str(tmp_path / "token")) as server:
        sess = graph.Session(server.target, config=rpc_config(token="secret"))
        await sess.run(v.initializer)
        server.signal(number)
        written = await server.errors()
        assert server.process.wait() == 0
        assert "stopped" in written
        assert "neither a token" not in written
        with pytest.raises(errors.UnavailableError):
            await sess.run(v)
        await sess.close()


@pytest.mark.asyncio
async def test_the_command_listens_at_the_port_of_its_option() -> None:
    port = free_port()
    server = ServerProcess(free_port(), "--port", str(port))
    server.target = f"grpc://localhost:{port}"
    async with server, graph.Session(server.target, config=rpc_config()) as sess:
        assert await sess.run(graph.constant(1.0) + 1.0) == 2.0


@pytest.mark.asyncio
async def test_the_command_takes_its_token_from_the_environment() -> None:
    v, _ = counter()
    async with ServerProcess(env={"ASYNCMON_TOKEN": "secret"}) as server:
        sess = graph.Session(server.target, config=rpc_config())
        with pytest.raises(errors.UnauthenticatedError):
            await sess.run(v.initializer)
        await sess.close()


@pytest.mark.asyncio
async def test_a_worker_does_not_wait_longer_than_its_bound_for_a_dead_server() -> None:
    config = rpc_config(timeout_secs=0.4)
    am.get_or_create_global_step()
    creator = am.WorkerSessionCreator(
        master=f"grpc://localhost:{free_port()}", config=config, max_wait_secs=1
    )
    begun = monotonic()
    with pytest.raises(errors.DeadlineExceededError, match="not ready after waiting 1 secs: localhost"):
        async with am.MonitoredSession(creator):
            pass
    assert 1.0 <= monotonic() - begun < 20.0
