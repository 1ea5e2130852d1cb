"""Servers: how they are described, what their sessions share, how they end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed import targets
from asyncmon.distributed.server import Server
from asyncmon.protobuf.cluster_def import ServerDef
from tests import forked
from tests.distributed.over_grpc import free_port, rpc_config, until

CLUSTER: dict[str, Any] = {"ps": ["localhost:0"], "worker": ["localhost:0", "localhost:0"]}


# --- how it is described --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((CLUSTER,), ValueError, "Must specify an explicit `job_name`."),
        (({},), ValueError, "Must specify an explicit `job_name`."),
        ((CLUSTER, "worker"), ValueError, "Must specify an explicit `task_index`."),
        ((CLUSTER, "ps", 9), errors.InternalError, 'Task 9 was not defined in job "ps"'),
        ((CLUSTER, "ps", -1), errors.InternalError, 'Task -1 was not defined in job "ps"'),
        ((CLUSTER, "x", 0), errors.InternalError, 'Job "x" was not defined in cluster'),
        ((CLUSTER, "x"), ValueError, "No such job in cluster: 'x'"),
        ((5,), TypeError, "Could not convert `server_or_cluster_def` to a `tf.train.ServerDef` or"),
        ((None,), TypeError, "Could not convert `server_or_cluster_def` to a `tf.train.ServerDef` or"),
        (
            (CLUSTER, "ps", 0, "rdma"),
            errors.NotFoundError,
            "No server factory registered for the given",
        ),
        (({"a": ["localhost"]},), errors.InvalidArgumentError, 'Could not parse port .* "localhost".'),
        (({"a": ["host:x"]},), errors.InvalidArgumentError, 'Could not parse port .* "host:x".'),
        (({"a": ["h:0"]}, None, None, None, 5), TypeError, "config must be a SessionConfig, got 5"),
    ],
)
def test_wrong_descriptions(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Server(*arguments)


def test_a_server_def() -> None:
    server = Server(CLUSTER, "ps")
    assert server.server_def == ServerDef(
        cluster=am.ClusterSpec(CLUSTER).as_cluster_def(), job_name="ps", protocol="grpc"
    )
    again = Server(server.server_def, "worker", 1)
    assert (again.server_def.job_name, again.server_def.task_index) == ("worker", 1)
    assert server.server_def.job_name == "ps"
    config = am.SessionConfig(workers=3)
    assert Server(again.server_def, config=config).server_def.default_session_config is config
    given = ServerDef(
        cluster=server.server_def.cluster, job_name="ps", protocol="grpc", default_session_config=config
    )
    assert Server(given, start=False).server_def.default_session_config is config
    assert ServerDef.FromString(given.SerializeToString()).default_session_config == am.SessionConfig()
    with pytest.raises(errors.NotFoundError, match="No server factory"):
        Server(ServerDef(cluster=server.server_def.cluster))


def test_its_names() -> None:
    assert am.Server is am.distributed.Server is Server


def test_the_target_of_a_port_that_is_not_known() -> None:
    assert Server({"a": ["host:2222"]}).target == "grpc://host:2222"
    with pytest.raises(errors.FailedPreconditionError, match="not known before it starts"):
        _ = Server.create_local_server(start=False).target


# --- its life -------------------------------------------------------------------------------------
@pytest.mark.asyncio
async def test_a_server_starts_when_it_is_made_as_in_tf1() -> None:
    server = Server.create_local_server()
    assert server.server_def.job_name == "localhost"
    v = graph.Variable(3.0)
    async with graph.Session(server.target, config=rpc_config()) as sess:
        await sess.run(v.initializer)
        assert await sess.run(v) == 3.0
    await server.stop()
    await server.stop()
    with pytest.raises(RuntimeError, match="was stopped"):
        server._begin()
    await server.join()


@pytest.mark.asyncio
async def test_a_supervisor_of_a_cluster_takes_a_global_step_that_is_a_float(tmp_path: Path) -> None:
    step = graph.Variable(0.0, trainable=False, name="global_step")
    add = step.assign_add(1.0)
    async with Server.create_local_server() as server:
        sv = am.Supervisor(logdir=str(tmp_path), global_step=step, save_model_secs=0)
        async with sv.managed_session(server.target, config=rpc_config()) as sess:
            assert await sess.run(add) == 1.0


@pytest.mark.asyncio
async def test_join_returns_when_it_is_stopped() -> None:
    async with Server.create_local_server() as server:
        joined = asyncio.create_task(server.join())
        await asyncio.sleep(0)
        cancelled = asyncio.create_task(server.join())
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not joined.done()
    await joined


@pytest.mark.asyncio
async def test_start_by_hand() -> None:
    server = Server.create_local_server(start=False)
    with pytest.raises(errors.FailedPreconditionError, match="not started"):
        await server.join()
    await server.start()
    assert server.target in targets.servers_here.get()
    await server.stop()
    assert server.target not in targets.servers_here.get()


def test_a_program_that_never_stops_its_server_ends_orderly() -> None:
    program = """
import asyncio, logging, asyncmon as am

async def main():
    server = am.Server.create_local_server()
    await server.start()
    config = am.SessionConfig()
    config.rpc_options.use_rpc_for_inprocess_master = True
    async with am.Session(server.target, config=config) as sess:
        await sess.run(am.graph.constant(1.0) + 1.0)

logging.basicConfig(format="%(message)s")
asyncio.run(main())
"""
    assert "GRPC_VERBOSITY" not in os.environ
    done = forked.run("-c", program, options=("-W", "error"))
    assert (done.returncode, done.stderr) == (0, ""), "no line of grpc's client about its connection"


def test_a_server_that_is_never_stopped_leaves_its_port_with_its_event_loop() -> None:
    """Before, grpc's core wrote the next requests to memory of tasks that the loop had ended."""
    program = """
import asyncio, grpc, asyncmon as am

async def main():
    server = am.Server.create_local_server()
    await server.start()
    return server.target.partition("://")[2]

async def ask(address):
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/asyncmon.Session/Call")
        calls = [call(bytes(i), timeout=1.0) for i in range(20)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error

for _ in range(5):
    asyncio.run(ask(asyncio.run(main())))
"""
    env = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "165"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.asyncio
async def test_a_port_is_that_of_one_server() -> None:
    async with Server.create_local_server() as server:
        port = server.target.rpartition(":")[2]
        with pytest.raises(errors.UnknownError, match="Could not start gRPC server"):
            Server({"a": [f"localhost:{port}"]})
        v = graph.Variable(1.0)
        async with graph.Session(server.target, config=rpc_config()) as sess:
            await sess.run(v.initializer)
    async with Server({"a": [f"localhost:{port}"]}) as server:  # free again
        assert server.target == f"grpc://localhost:{port}"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("host", "level"), [("localhost", logging.INFO), ("worker1.example", logging.WARNING)]
)
async def test_without_a_token_it_listens_on_this_machine_and_says_so(
    host: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "asyncmon.distributed"):
        async with Server({"a": [f"{host}:0"]}) as server:
            port = int(server.target.rpartition(":")[2])
            own = socket.gethostbyname(socket.gethostname())
            if not own.startswith("127."):
                with pytest.raises(OSError, match="refused"):
                    socket.create_connection((own, port), timeout=2.0).close()
    (record,) = [record for record in caplog.records if "neither a token" in record.getMessage()]
    assert record.levelno == level


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("host", "token", "is_local"),
    [
        ("localhost", None, True),
        ("localhost", "secret", True),
        ("worker1.example", None, True),
        ("worker1.example", "secret", False),
    ],
)
async def test_only_a_server_with_a_token_and_a_name_on_the_network_listens_there(
    host: str, token: str | None, is_local: bool
) -> None:
    async with Server({"a": [f"{host}:0"]}, config=rpc_config(token=token)) as server:
        port = int(server.target.rpartition(":")[2])
        if is_local:
            with pytest.raises(OSError, match=r"refused|timed out"):
                socket.create_connection(("127.0.0.2", port), timeout=2.0).close()
        else:
            socket.create_connection(("127.0.0.2", port), timeout=2.0).close()


# --- what its sessions share ----------------------------------------------------------------------
@pytest.mark.asyncio
async def test_a_session_at_a_worker_of_another_process_trains_with_the_cluster() -> None:
    cluster = {job: [f"127.0.0.1:{free_port()}"] for job in ("ps", "worker")}
    async with Server(cluster, "ps", 0), Server(cluster, "worker", 0) as worker:
        with graph.device(am.replica_device_setter(cluster=cluster)):
            add = am.get_or_create_global_step().assign_add(1)
        async with am.MonitoredTrainingSession(
            worker.target, hooks=[am.StopAtStepHook(last_step=3)], config=rpc_config()
        ) as sess:
            while not sess.should_stop():
                await sess.run(add)
            assert await sess.raw_session().run(am.get_global_step()) == 3


@pytest.mark.asyncio
@pytest.mark.parametrize("is_remote", [True, False])
async def test_sessions_share_variables_and_one_does_not_disturb_the_other(is_remote: bool) -> None:
    config = rpc_config() if is_remote else None
    async with Server.create_local_server() as server:
        graphs = [graph.Graph(), graph.Graph()]
        sessions = [graph.Session(server.target, one, config) for one in graphs]
        for one in graphs:
            with one.as_default():
                v = graph.get_variable("v", initializer=1.0)
                v.assign_add(1.0, name="add")
        first, second = sessions
        await first.run("v/Assign")
        assert await second.run("v:0") == 1.0
        await first.run("add")
        await first.close()
        await second.run("add")
        assert await second.run("v:0") == 3.0
        with pytest.raises(RuntimeError, match="closed Session"):
            await first.run("v:0")
        await second.close()
        async with graph.Session(server.target, graphs[0], config) as third:
            assert await third.run("v:0") == 3.0


@pytest.mark.asyncio
@pytest.mark.parametrize("is_remote", [True, False])
async def test_queues_are_of_a_session_unless_they_have_a_shared_name(is_remote: bool) -> None:
    config = rpc_config() if is_remote else None
    async with Server.create_local_server() as server:
        own = graph.FIFOQueue(10, graph.int32, [()], name="own")
        shared = graph.FIFOQueue(10, graph.int32, [()], shared_name="all")
        puts = [own.enqueue(1), shared.enqueue(2)]
        sizes = [own.size(), shared.size()]
        taken = own.dequeue()
        async with graph.Session(server.target, config=config) as second:
            async with graph.Session(server.target, config=config) as first:
                await first.run(puts)
                assert await first.run(sizes) == [1, 1]
                assert await second.run(sizes) == [0, 1]
                await first.run(taken)
                waiting = asyncio.create_task(first.run(taken))
                await until(server.executor.pending_operations)
                waits = asyncio.create_task(second.run(taken))
                await until(lambda: len(server.executor._runs) > 1)
            with pytest.raises(errors.CancelledError):
                await waiting
            await second.run(puts)
            assert await waits == 1
            assert await second.run(sizes) == [0, 2]


@pytest.mark.asyncio
async def test_a_session_of_the_same_process_works_without_messages() -> None:
    async with Server.create_local_server() as server:
        v = graph.Variable(np.ones(3, np.float32))
        async with graph.Session(server.target) as sess:
            await sess.run(v.initializer)
            assert sess.backend.executor is server.executor
            assert server.service.num_sessions == 0
        elsewhere = await asyncio.to_thread(graph.Session, server.target)
        assert not hasattr(elsewhere.backend, "executor")
        sess = graph.Session(server.target)
    with pytest.raises(errors.AbortedError, match="was stopped"):
        await sess.run(v)


@pytest.mark.asyncio
@pytest.mark.parametrize("is_remote", [True, False])
async def test_a_clients_timeout_of_operations(is_remote: bool) -> None:
    config = rpc_config() if is_remote else am.SessionConfig()
    config.operation_timeout_in_ms = 30
    taken = graph.FIFOQueue(1, graph.int32, [()]).dequeue()
    async with (
        Server.create_local_server() as server,
        graph.Session(server.target, config=config) as sess,
    ):
        with pytest.raises(errors.DeadlineExceededError):
            await sess.run(taken)
        longer = am.RunOptions(timeout_in_ms=20_000)
        assert await sess.run(graph.constant(2.0) + 1.0, options=longer) == 3.0


@pytest.mark.asyncio
async def test_runs_that_repeat_end_with_their_session() -> None:
    v = graph.Variable(0.0)
    add = v.assign_add(1.0)
    async with Server.create_local_server() as server, graph.Session(server.target) as other:
        sess = graph.Session(server.target)
        await sess.run(v.initializer)
        task = asyncio.create_task(sess.repeat(add, lambda: False))
        while await other.run(v) < 100.0:
            pass
        await sess.close()
        with pytest.raises((RuntimeError, errors.CancelledError), match="losed"):
            await task
        assert await other.run(v) >= 100.0


@pytest.mark.asyncio
async def test_a_stop_ends_what_sessions_wait_for() -> None:
    taken = graph.FIFOQueue(1, graph.int32, [()]).dequeue()
    async with Server.create_local_server() as server:
        sess = graph.Session(server.target, config=rpc_config())
        waiting = asyncio.create_task(sess.run(taken))
        await until(server.executor.pending_operations)
    with pytest.raises((errors.UnavailableError, errors.AbortedError)):
        await waiting
    await sess.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("is_remote", [True, False])
async def test_a_device_that_a_server_lacks_needs_soft_placement(is_remote: bool) -> None:
    config = rpc_config() if is_remote else am.SessionConfig()
    with graph.device("/gpu:0"):
        doubled = graph.placeholder_with_default(2.0, []) * 2.0
    async with Server.create_local_server() as server:
        async with graph.Session(server.target, config=config) as sess:
            with pytest.raises(errors.InvalidArgumentError, match=r"assigned to /device:GPU:0 but"):
                await sess.run(doubled)
        config.allow_soft_placement = True
        async with graph.Session(server.target, config=config) as sess:
            assert await sess.run(doubled) == 4.0
