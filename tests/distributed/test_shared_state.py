"""The state of a server: checked types, sessions with their own, containers, resets, devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed.server import Server
from tests.distributed.over_grpc import free_port, rpc_config, until

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=[True, False], ids=["grpc", "direct"])
def config(request: pytest.FixtureRequest) -> am.SessionConfig:
    """The config of a session that uses messages, and of one that does not."""
    return rpc_config() if request.param else am.SessionConfig()


def in_new_graph(build: Callable[[], Any]) -> Any:
    with graph.Graph().as_default():
        return build()


def variable(value: Any, dtype: Any = np.float32, name: str = "v") -> graph.Variable:
    return in_new_graph(lambda: graph.Variable(np.array(value, dtype), name=name))


def session(
    server: Server, element: Any, config: am.SessionConfig, *, isolated: bool = False
) -> graph.Session:
    chosen = am.SessionConfig(rpc_options=config.rpc_options, isolate_session_state=isolated)
    return graph.Session(server.target, element.graph, chosen)


# --- types ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("other", "found"),
    [
        (([1, 2], np.int32), "'v' is int32 of shape (2,) in this graph, and float32 of shape (2,) in"),
        (([1, 2, 3],), "'v' is float32 of shape (3,) in this graph, and float32 of shape (2,) in the"),
        ((5,), "'v' is float32 of shape () in this graph"),
    ],
)
async def test_a_name_has_one_dtype_and_shape(config: am.SessionConfig, other: Any, found: str) -> None:
    mine, theirs = variable([1, 2]), variable(*other)
    async with Server.create_local_server() as server, session(server, mine, config) as first:
        await first.run(mine.initializer)
        async with session(server, theirs, config) as second:
            for fetch in (theirs, theirs.initializer):
                with pytest.raises(errors.InvalidArgumentError, match=r"'v' is ") as info:
                    await second.run(fetch)
                assert found in str(info.value)
            with pytest.raises(errors.InvalidArgumentError, match=r"'v' is "):
                await second.load({"v": np.array(*other if len(other) > 1 else [*other, np.float32])})
        assert (await first.run(mine)).tolist() == [1, 2]


async def test_what_does_not_use_it_continues(config: am.SessionConfig) -> None:
    with graph.Graph().as_default():
        mine = graph.train.create_global_step()
    with graph.Graph().as_default():
        theirs = graph.Variable(5, trainable=False, dtype=graph.int32, name="global_step")
        other = graph.Variable(1.0, name="other")
    async with Server.create_local_server() as server, session(server, mine, config) as first:
        await first.run(mine.initializer)
        async with session(server, theirs, config) as second:
            await second.run(other.initializer)
            assert await second.run(other) == 1.0
            assert second.global_step is None
            with pytest.raises(errors.InvalidArgumentError, match="'global_step' is int32"):
                await second.snapshot()
        assert not server.executor.store.has_pins


async def test_another_model_needs_a_reset(config: am.SessionConfig) -> None:
    mine, theirs = variable([1, 2]), variable([1, 2, 3])
    async with Server.create_local_server() as server:
        async with session(server, mine, config) as first:
            await first.run(mine.initializer)
        await graph.Session.reset(server.target, config=config)
        async with session(server, theirs, config) as second:
            await second.run(theirs.initializer)
            assert (await second.run(theirs)).tolist() == [1, 2, 3]


# --- sessions with a state of their own ---------------------------------------------------------------
async def test_an_isolated_session_shares_nothing(config: am.SessionConfig) -> None:
    v = variable([1.0])
    with v.graph.as_default():
        more = v.assign_add([1.0])
        queue = graph.FIFOQueue(5, graph.int32, [()], shared_name="q")
        put, size = queue.enqueue(1), queue.size()
    async with Server.create_local_server() as server, session(server, v, config) as shared:
        await shared.run([v.initializer, put])
        async with session(server, v, config, isolated=True) as own:
            assert (own.shares_state, shared.shares_state) == (False, True)
            with pytest.raises(errors.FailedPreconditionError, match="value v"):
                await own.run(v)
            await own.run(v.initializer)
            assert await own.run(more) == [2.0]
            assert await own.run(size) == 0
            await own.load({"v": np.array([9.0], np.float32)})
            assert (await own.snapshot())["v"] == [9.0]
        assert await shared.run(v) == [1.0]
        assert await shared.run(size) == 1


async def test_an_isolated_session_has_its_own_state_on_all_tasks() -> None:
    spec = am.ClusterSpec({"ps": [f"localhost:{free_port()}"], "worker": [f"localhost:{free_port()}"]})
    with graph.device("/job:ps/task:0"):
        v = graph.Variable(1.0, name="v")
        step = graph.train.create_global_step()
    more = graph.group(v.assign_add(1.0), step.assign_add(1))
    init = graph.global_variables_initializer()
    isolated = am.SessionConfig(isolate_session_state=True)
    async with Server(spec, "ps") as ps, Server(spec, "worker") as worker:
        async with graph.Session(worker.target) as shared:
            await shared.run(init)
            async with graph.Session(worker.target, config=isolated) as own:
                await own.run(init)
                await own.run([more, more])
                assert (await own.run(v), own.global_step) == (2.0, 1)
                await own.load({"v": np.float32(7.0), "global_step": np.int64(5)})
            assert (await shared.run(v), await shared.run(step)) == (1.0, 0)
        assert ps.service.num_sessions == 0


async def test_an_isolated_session_ends_with_its_server(config: am.SessionConfig) -> None:
    v = variable([1.0])
    async with Server.create_local_server() as server:
        own = session(server, v, config, isolated=True)
        await own.run(v.initializer)
    with pytest.raises((errors.AbortedError, errors.UnavailableError)):
        await own.run(v)
    await own.close()


# --- containers and resets ----------------------------------------------------------------------------
def in_container(name: str, value: float) -> tuple[graph.Variable, Any, Any]:
    with graph.container(name):
        v = graph.Variable(value, name="v")
        queue = graph.FIFOQueue(5, graph.float32, [()], shared_name="q")
    return v, queue.enqueue(v), queue.size()


async def test_a_name_in_two_containers_is_two_variables_and_two_queues(
    config: am.SessionConfig,
) -> None:
    made = [in_new_graph(lambda name=name: in_container(name, 1.0)) for name in ("", "a", "b")]
    async with Server.create_local_server() as server:
        for number, (v, put, size) in enumerate(made):
            async with session(server, v, config) as sess:
                with pytest.raises(errors.FailedPreconditionError):
                    await sess.run(v)
                await sess.run(v.initializer)
                for _ in range(number):
                    await sess.run(put)
                assert await sess.run(size) == number
        await graph.Session.reset(server.target, ["a"], config=config)
        for number, (v, _, size) in enumerate(made):
            async with session(server, v, config) as sess:
                if number == 1:
                    with pytest.raises(errors.FailedPreconditionError):
                        await sess.run(v)
                else:
                    assert await sess.run(v) == 1.0
                assert await sess.run(size) == (0 if number == 1 else number)
        await graph.Session.reset(server.target, ["localhost"], config=config)
        for number, (v, _, _) in enumerate(made):
            async with session(server, v, config) as sess:
                assert await sess.run(is_initialized(v)) == (number == 2)


def is_initialized(v: graph.Variable) -> Any:
    with v.graph.as_default():
        return graph.is_variable_initialized(v)


async def test_a_reset_ends_all_sessions(config: am.SessionConfig) -> None:
    v = variable([1.0])
    with v.graph.as_default():
        taken = graph.FIFOQueue(5, graph.int32, [()]).dequeue()
    async with Server.create_local_server() as server:
        sessions = [
            session(server, v, chosen, isolated=isolated)
            for chosen in (config, am.SessionConfig())
            for isolated in (False, True)
        ]
        for sess in sessions:
            await sess.run(v.initializer)
        waiting = asyncio.create_task(sessions[0].run(taken))
        await until(server.executor.pending_operations)
        await graph.Session.reset(server.target, config=config)
        with pytest.raises(errors.AbortedError):
            await waiting
        for sess in sessions:
            with pytest.raises(errors.AbortedError):
                await sess.run(v)
            await sess.close()
        async with session(server, v, config) as after:
            with pytest.raises(errors.FailedPreconditionError):
                await after.run(v)


async def test_a_run_that_resets_its_own_server_fails_and_the_server_continues() -> None:
    async def reset() -> np.float32:
        await graph.Session.reset(server.target)
        return np.float32(1.0)

    with graph.Graph().as_default():
        v = graph.Variable(1.0)
        called = graph.py_func(reset, [], graph.float32)
        async with Server.create_local_server() as server:
            async with graph.Session(server.target) as sess:
                with pytest.raises((errors.OpError, RuntimeError)):
                    await sess.run(called)
            async with graph.Session(server.target) as sess:
                await sess.run(v.initializer)
                assert await sess.run(v) == 1.0


async def test_a_monitored_session_recovers_from_a_reset() -> None:
    with graph.Graph().as_default():
        step = graph.train.create_global_step()
        more = step.assign_add(1)
        async with (
            Server.create_local_server() as server,
            am.MonitoredTrainingSession(server.target, save_checkpoint_secs=None) as sess,
        ):
            assert [await sess.run(more) for _ in range(3)] == [1, 2, 3]
            await graph.Session.reset(server.target)
            assert await sess.run(more) == 1


async def test_a_reset_clears_all_tasks_of_a_cluster(config: am.SessionConfig) -> None:
    spec = am.ClusterSpec({"ps": [f"localhost:{free_port()}"], "worker": [f"localhost:{free_port()}"]})
    with graph.device("/job:ps/task:0"):
        v = graph.Variable(1.0, name="v")
    async with Server(spec, "worker") as worker:
        async with Server(spec, "ps"):
            async with graph.Session(worker.target) as sess:
                await sess.run(v.initializer)
                await graph.Session.reset(worker.target, config=config)
                with pytest.raises(errors.AbortedError):
                    await sess.run(v)
            async with graph.Session(worker.target) as sess:
                with pytest.raises(errors.FailedPreconditionError):
                    await sess.run(v)
        with pytest.raises(errors.UnavailableError, match="was not cleared"):
            await graph.Session.reset(worker.target, config=config)


@pytest.mark.parametrize(
    ("target", "containers", "error", "text"),
    [
        ("", None, errors.InvalidArgumentError, "a state of its own"),
        ("local", None, errors.InvalidArgumentError, "'local' has a state of its own"),
        ("foo", None, errors.NotFoundError, "No session factory registered for target 'foo'"),
        ("grpc://x:1", "abc", TypeError, "a list of names, not the string 'abc'"),
    ],
)
async def test_what_cannot_be_reset(
    target: str, containers: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await graph.Session.reset(target, containers)


async def test_the_names_of_containers_are_checked_by_the_server() -> None:
    async with Server.create_local_server() as server:
        with pytest.raises(
            errors.InvalidArgumentError, match=r"Expected `str`, got `int` - at `\$\.containers"
        ):
            await graph.Session.reset(server.target, [5], rpc_config())  # type: ignore[list-item]  # refused


# --- devices ------------------------------------------------------------------------------------------
async def test_the_only_task_rejects_devices_of_other_tasks(config: am.SessionConfig) -> None:
    with graph.device("/job:ps/task:3"):
        v = graph.Variable(1.0)
        c = graph.constant(1.0)
    with graph.device("/job:localhost/task:0/cpu:0"):
        fine = graph.constant(1.0) + 1.0
    async with (
        Server.create_local_server() as server,
        graph.Session(server.target, config=config) as sess,
    ):
        for fetch in (v.initializer, v, c):
            with pytest.raises(errors.InvalidArgumentError, match="Cannot assign a device"):
                await sess.run(fetch)
        assert await sess.run(fine) == 2.0
