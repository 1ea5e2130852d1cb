"""What one client uses of a server leaves enough for the others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import numpy as np
import pytest

from asyncmon import errors, graph
from asyncmon.distributed.server import Server
from tests.distributed.over_grpc import ServerProcess, rpc_config

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.asyncio
LARGE = np.ones(1 << 19, np.float32)  # 2 MiB


async def test_large_requests_wait_for_room() -> None:
    x = graph.placeholder(graph.float32, [None])
    total = graph.reduce_sum(x)
    config = rpc_config(max_bytes_in_flight=5 << 20)
    async with Server({"a": ["localhost:0"]}, config=config) as server:
        room: Any = server._listener._room
        most = 0
        answered = server._listener._answered

        async def noted(request: Any) -> Any:
            nonlocal most
            most = max(most, room._used)
            return await answered(request)

        server._listener._answered = noted
        async with graph.Session(server.target, config=rpc_config()) as sess:
            sums = await asyncio.gather(*[sess.run(total, {x: LARGE}) for _ in range(8)])
            assert sums == [1 << 19] * 8
            assert 2 << 20 <= most <= 5 << 20
            alone = np.ones(1 << 21, np.float32)  # 8 MiB
            assert await sess.run(total, {x: alone}) == 1 << 21
        assert room._used == 0


async def test_a_large_request_without_room_is_refused_and_others_are_served() -> None:
    x = graph.placeholder(graph.float32, [None])
    total = graph.reduce_sum(x)
    config = rpc_config(max_bytes_in_flight=3 << 20, timeout_secs=1.0)
    async with (
        Server({"a": ["localhost:0"]}, config=config) as server,
        graph.Session(server.target, config=rpc_config()) as sess,
    ):
        assert await sess.run(total, {x: LARGE[:3]}) == 3.0
        async with server._listener._room.taken(2 << 20, 1.0):  # another client's
            refused = asyncio.create_task(sess.run(total, {x: LARGE}))
            assert await sess.run(total, {x: LARGE[:5]}) == 5.0
            with pytest.raises(errors.ResourceExhaustedError, match="max_bytes_in_flight"):
                await refused
        assert await sess.run(total, {x: LARGE}) == 1 << 19


async def test_connections_that_send_nothing_do_not_lock_out_others() -> None:
    limit = 200
    async with ServerProcess(0, "--timeout-secs", "2", descriptors=limit) as server:
        with contextlib.ExitStack() as idle:
            for _ in range(2 * limit):
                connection = idle.enter_context(socket.socket())
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    connection.connect(("127.0.0.1", server.port))
            sess = graph.Session(server.target, config=rpc_config(timeout_secs=5.0))
            found = None
            async with asyncio.timeout(60):
                while found is None:
                    with contextlib.suppress(errors.UnavailableError):
                        found = await sess.run(graph.constant(1.0) + 1.0)
            assert found == 2.0
            await sess.close()
