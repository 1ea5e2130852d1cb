"""Sessions over real connections: results, large messages, tokens, requests that are none."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from asyncmon import errors, graph
from asyncmon.distributed import grpc_transport
from asyncmon.distributed.grpc_transport import CHUNK, Assembly, chunks
from asyncmon.distributed.own_token import own_token
from asyncmon.distributed.server import Server
from asyncmon.distributed.wire import decode, encode, frame
from tests import forked
from tests.distributed.over_grpc import rpc_config, until


# --- chunks ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "sizes", [[0], [1, 0, 2], [CHUNK], [CHUNK - 1, 3, 2 * CHUNK], [5, 3 * CHUNK + 7]]
)
def test_chunks_are_of_one_size(sizes: list[int]) -> None:
    data = random.Random(1).randbytes(sum(sizes))
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    parts = list(chunks(pieces, CHUNK))
    assert b"".join(parts) == data
    assert all(len(part) == CHUNK for part in parts[:-1])
    assert all(parts)


def test_a_message_is_received_into_memory_of_its_own() -> None:
    value = {"b": np.ones(3, np.uint8), "a": np.arange(600_000)}
    pieces = frame(encode(value))
    assembly = Assembly(sum(map(len, pieces)))
    with pytest.raises(errors.InvalidArgumentError, match="0 bytes of a message"):
        assembly.message()
    for chunk in chunks(pieces, 1000):
        assembly.add(chunk)
    with pytest.raises(errors.InvalidArgumentError, match="were sent"):
        assembly.add(b"x")
    found = decode(assembly.message())
    for name, array in value.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.aligned
        assert found[name].flags.writeable
        assert np.shares_memory(found[name], np.frombuffer(assembly._view, np.uint8))


@pytest.mark.parametrize("size", [grpc_transport.MAX_SIZE + 1, 1 << 62, 1 << 80])
def test_no_memory(size: int) -> None:
    with pytest.raises(errors.ResourceExhaustedError, match="no memory"):
        Assembly(size)


# --- sessions -------------------------------------------------------------------------------------
@pytest.mark.asyncio
@pytest.mark.parametrize("compression", ["", "gzip", "deflate"])
async def test_large_arrays_go_both_ways(compression: str) -> None:
    size = 300_003 if compression else 1_000_003  # more than a chunk; compression takes its time
    x = graph.placeholder(graph.float32, [None])
    v = graph.Variable(np.zeros(size, np.float32))
    pushed = v.assign(x)
    config = rpc_config(compression_algorithm=compression)
    async with (
        Server.create_local_server(config) as server,
        graph.Session(server.target, config=config) as sess,
    ):
        await sess.run(v.initializer)
        value = np.arange(size, dtype=np.float32)
        await sess.run(pushed.op, {x: value})
        found = await sess.run(v)
        np.testing.assert_array_equal(found, value)
        assert found.flags.writeable
        assert found.flags.aligned
        snapshot = await sess.snapshot()
        np.testing.assert_array_equal(snapshot[v.op.name], value)
        await sess.load({v.op.name: value + 1.0})
        assert (await sess.run(v[-1])) == size
        assert not (await sess.run(v)).flags.owndata
        small = await sess.run(v[:2])
        small[:] = 5.0  # the caller's own


@pytest.mark.asyncio
async def test_functions_are_called_at_the_client() -> None:
    async def double(a: Any) -> Any:
        await asyncio.sleep(0)
        return a * 2

    x = graph.placeholder(graph.float32, [None])
    y = graph.py_func(double, [x], graph.float32)
    async with (
        Server.create_local_server() as server,
        graph.Session(server.target, config=rpc_config()) as sess,
    ):
        value = np.ones(500_000, np.float32)
        assert (await sess.run(y, {x: value})).sum() == 1_000_000.0


@pytest.mark.asyncio
async def test_many_clients_at_once() -> None:
    v = graph.Variable(0.0)
    add = v.assign_add(1.0)

    async def train(target: str) -> None:
        async with graph.Session(target, config=rpc_config()) as sess:
            for _ in range(20):
                await sess.run(add)

    async with Server.create_local_server() as server:
        async with graph.Session(server.target) as sess:
            await sess.run(v.initializer)
            await asyncio.gather(*[train(server.target) for _ in range(8)])
            assert await sess.run(v) == 160.0
        assert server.service.num_sessions == 0


def test_a_session_is_used_by_one_loop_after_another() -> None:
    async def started() -> Server:
        server = Server.create_local_server()
        await server.start()
        return server

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(started(), loop).result(10)
        v = graph.Variable(1.0)
        sess = graph.Session(server.target)
        asyncio.run(sess.run(v.initializer))
        assert asyncio.run(sess.run(v)) == 1.0
        asyncio.run(sess.close())
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.asyncio
async def test_no_server_is_there() -> None:
    sess = graph.Session("grpc://127.0.0.1:9")
    with pytest.raises(errors.UnavailableError, match=r"127\.0\.0\.1:9"):
        await sess.run(graph.constant(1.0) + 1.0)
    await sess.close()
    for target in ("grpc://", "grpc://host", "grpc://host:x"):
        with pytest.raises(errors.InvalidArgumentError, match="Expected a target"):
            graph.Session(target)
    with pytest.raises(errors.InvalidArgumentError, match="compression_algorithm"):
        graph.Session("grpc://h:1", config=rpc_config(compression_algorithm="zip"))


@pytest.mark.asyncio
async def test_a_call_under_way_fails_when_the_channel_is_closed() -> None:
    taken = graph.FIFOQueue(1, graph.int32, [()]).dequeue()
    async with Server.create_local_server() as server:
        sess = graph.Session(server.target, config=rpc_config())
        waiting = asyncio.create_task(sess.run(taken))
        await until(server.executor.pending_operations)
        await sess.backend.channel.close()
        with pytest.raises(errors.UnavailableError, match="was closed"):
            await waiting
        await sess.close()


def test_without_grpcio_the_command_that_installs_it_is_named() -> None:
    program = (
        "import asyncio, sys; sys.modules['grpc'] = None\n"
        "import asyncmon as am\n"
        "async def serve(): am.Server.create_local_server()\n"
        "for use in (lambda: am.Session('grpc://localhost:1'), lambda: asyncio.run(serve())):\n"
        "    try: use()\n"
        "    except ModuleNotFoundError as error: print(error)"
    )
    done = forked.run("-c", program, check=True)
    assert done.stdout.count("pip install 'asyncmon[grpc]'") == 2


# --- tokens ---------------------------------------------------------------------------------------
@pytest.mark.asyncio
@pytest.mark.parametrize("token", [None, "", "wrong", "sécret"])
async def test_a_wrong_token(token: str | None) -> None:
    v = graph.Variable(1.0)
    async with Server.create_local_server(rpc_config(token="secret")) as server:
        async with graph.Session(server.target, config=rpc_config(token="secret")) as sess:
            await sess.run(v.initializer)
            assert await sess.run(v) == 1.0
        sess = graph.Session(server.target, config=rpc_config(token=token))
        with pytest.raises(errors.UnauthenticatedError, match="token is missing or wrong"):
            await sess.run(v)
        large = graph.placeholder(graph.float32, [None])
        with pytest.raises(errors.UnauthenticatedError, match="token is missing or wrong"):
            await sess.run(large + 1.0, {large: np.ones(500_000, np.float32)})
        await sess.close()
        assert server.service.num_sessions == 0


# --- requests that are none -----------------------------------------------------------------------
class Raw:
    """Sends bytes as they are."""

    def __init__(self, target: str) -> None:
        address = target.partition("://")[2]
        self._token = ("asyncmon-token-bin", own_token(int(address.rpartition(":")[2])))
        self._channel = grpc.aio.insecure_channel(address)
        self.call = self._with_token(self._channel.unary_unary("/asyncmon.Session/Call"))
        self.push = self._with_token(self._channel.stream_unary("/asyncmon.Session/Push"))
        self.pull = self._with_token(self._channel.unary_stream("/asyncmon.Session/Pull"))
        self.other = self._with_token(self._channel.unary_unary("/asyncmon.Session/Other"))

    def _with_token(self, method: Any) -> Any:
        def call(data: Any, metadata: Any = (), **options: Any) -> Any:
            return method(data, metadata=(self._token, *metadata), **options)

        return call

    async def close(self) -> None:
        await self._channel.close()

    async def status(self, call: Any) -> tuple[Any, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return caught.value.code(), caught.value.details()


@pytest.mark.asyncio
async def test_requests_that_are_none_get_an_error() -> None:
    async def parts(*data: bytes) -> AsyncIterator[bytes]:
        for one in data:
            yield one

    code = grpc.StatusCode
    async with Server.create_local_server() as server:
        raw = Raw(server.target)
        assert (await raw.status(raw.call(b"")))[0] == code.INVALID_ARGUMENT
        assert (await raw.status(raw.call(b"\xff" * 20)))[0] == code.INVALID_ARGUMENT
        assert (await raw.status(raw.other(b"")))[0] == code.UNIMPLEMENTED
        assert (await raw.status(raw.call(bytes(5 << 20))))[0] == code.RESOURCE_EXHAUSTED
        for size in ("-1", "x", "", "1.5", "9" * 5000):
            call = raw.push(parts(b"a"), metadata=(("asyncmon-size", size),))
            assert (await raw.status(call))[0] == code.INVALID_ARGUMENT
        assert (await raw.status(raw.push(parts(b"a"))))[0] == code.INVALID_ARGUMENT
        for size, status in (("0", 3), ("1", 3), ("2", 3), ("99", 3), (str(1 << 60), 8)):
            call = raw.push(parts(b"ab"), metadata=(("asyncmon-size", size),))
            assert (await raw.status(call))[0].value[0] == status
        for data in (b"", b"x", bytes(20)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in raw.pull(data):
                    pass
            assert caught.value.code() == code.NOT_FOUND
        await raw.close()


async def fuzz(rounds: int, seed: int) -> None:
    """Send frames with wrong bytes, beside a session that keeps running."""
    rng = random.Random(seed)
    v = graph.Variable(0.0)
    add = v.assign_add(1.0)
    async with (
        Server.create_local_server() as server,
        graph.Session(server.target, config=rpc_config()) as sess,
    ):
        await sess.run(v.initializer)
        seen: list[bytes] = []
        answer = server.service.answer

        async def noted(request: Any) -> Any:
            seen.append(b"".join(frame(request)))
            return await answer(request)

        server._listener._answer = noted
        await sess.run(add)
        await sess.run(v * 3.0 + graph.constant(np.ones(7, np.float32)))
        server._listener._answer = answer
        raw = Raw(server.target)
        done = 0.0
        for i in range(rounds):
            data = bytearray(rng.choice(seen))
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(data) + 1)
                match rng.randrange(4):
                    case 0:
                        data[at : at + 1] = rng.randbytes(1)
                    case 1:
                        data[at : at + rng.randrange(20)] = b""
                    case 2:
                        data[at:at] = rng.choice(
                            [b"null", b'"', b"[", b"1e999", b"-7", rng.randbytes(9)]
                        )
                    case 3:
                        data[at : at + 4] = rng.choice(seen)[at : at + 4]
            call = raw.call(bytes(data), timeout=60)
            status = await call.code()
            assert status in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)
            if status is grpc.StatusCode.OK:
                grpc_transport.unframe(await call)
            if i % 20 == 0:
                before = await sess.run(v)
                assert before >= done
                await sess.run(add)
                done = before + 1
        await raw.close()


@pytest.mark.asyncio
@pytest.mark.campaign("cluster", short=1)
async def test_fuzzed_frames_disturb_no_session(seed: int) -> None:
    await fuzz(100, seed)


@pytest.mark.asyncio
async def test_bytes_that_are_not_grpc_disturb_no_session() -> None:
    v = graph.Variable(0.0)
    rng = random.Random(3)
    async with (
        Server.create_local_server() as server,
        graph.Session(server.target, config=rpc_config()) as sess,
    ):
        await sess.run(v.initializer)
        host, _, port = server.target.partition("://")[2].rpartition(":")
        for start in (b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
            for _ in range(10):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(start + rng.randbytes(200))
                writer.close()
        assert await sess.run(v.assign_add(1.0)) == 1.0
