"""Variables in parts on several parameter servers: trained, saved, restored with other numbers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.distributed.server import Server
from tests.distributed.in_process import InProcessCluster
from tests.distributed.over_grpc import free_port
from tests.simulation import at, kill, simulate

ROWS, WIDTH = 1000, 8
IDS = np.arange(0, ROWS, 7)


def model(parts: int | None, devices: Any = None) -> dict[str, Any]:
    """Return an embedding that learns to be its row number, and its train op."""
    partitioner = None if parts is None else graph.fixed_size_partitioner(parts)
    with graph.device(devices):
        step = graph.train.create_global_step()
        table = graph.get_variable(
            "embedding", [ROWS, WIDTH], initializer=graph.zeros_initializer(), partitioner=partitioner
        )
        ids = graph.placeholder(graph.int64, [None], name="ids")
        rows = graph.nn.embedding_lookup(table, ids, partition_strategy="div")
        wanted = graph.expand_dims(graph.cast(ids, graph.float32), 1)
        loss = graph.reduce_mean(graph.square(rows - wanted))
        train = graph.train.AdagradOptimizer(1.0).minimize(loss, step)
        whole = graph.identity(table)
    return {"table": table, "ids": ids, "train": train, "loss": loss, "whole": whole}


async def trained(sess: Any, parts: dict[str, Any], steps: int) -> Any:
    for i in range(steps):
        await sess.run(parts["train"], {parts["ids"]: IDS[i::3]})
    return await sess.run([parts["whole"], parts["loss"]], {parts["ids"]: IDS})


@pytest.mark.asyncio
async def test_two_servers_train_save_and_restore_with_another_number(tmp_path: Path) -> None:
    with graph.Graph().as_default():
        local = model(None)
        async with graph.Session() as sess:
            await sess.run(graph.global_variables_initializer())
            expected = [await trained(sess, local, 6) for _ in range(2)]
    found = []
    for servers, parts in ((2, 4), (3, 3)):
        spec = {"ps": [f"localhost:{free_port()}" for _ in range(servers)]}
        cluster = am.ClusterSpec({**spec, "worker": [f"localhost:{free_port()}"]})
        strategy = am.distributed.GreedyLoadBalancingStrategy(servers, am.distributed.byte_size_load_fn)
        devices = am.replica_device_setter(cluster=cluster, ps_strategy=strategy)
        async with AsyncExitStack() as stack:
            for task in range(servers):
                await stack.enter_async_context(Server(cluster, "ps", task))
            worker = await stack.enter_async_context(Server(cluster, "worker", 0))
            with graph.Graph().as_default():
                made = model(parts, devices)
                places = {part.device for part in made["table"]}
                assert len(places) == servers
                async with am.MonitoredTrainingSession(
                    worker.target, checkpoint_dir=str(tmp_path), save_checkpoint_secs=600
                ) as sess:
                    found.append(await trained(sess, made, 6))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
    path = await am.latest_checkpoint(tmp_path)
    assert path is not None
    assert dict(await am.list_variables(path)) == {
        "embedding": [ROWS, WIDTH], "embedding/Adagrad": [ROWS, WIDTH], "global_step": []
    }  # fmt: skip
    with graph.Graph().as_default():
        whole = model(None)
        async with graph.Session() as sess:
            await am.Saver().restore(sess, path)
            np.testing.assert_allclose(await sess.run(whole["whole"]), found[1][0])


@pytest.mark.asyncio
async def test_a_lookup_moves_only_its_rows() -> None:
    spec = {"ps": ["a:1", "b:1"], "worker": ["c:1"]}
    cluster = InProcessCluster(spec)
    try:
        made = model(2, am.replica_device_setter(cluster=spec, worker_device="/job:worker/task:0"))
        async with cluster.session("worker", 0) as sess:
            await sess.run(graph.global_variables_initializer())
            few = {made["ids"]: [3, 4, 998]}
            await sess.run(made["train"], few)
            channels = [cluster.channels[f"/job:ps/task:{task}"][0] for task in range(2)]
            for channel in channels:
                channel.moved = 0
            await sess.run(made["train"], few)
            assert all(channel.moved < 3000 for channel in channels)  # a part has 16,000 bytes
            changed = np.flatnonzero((await sess.run(made["whole"])).any(axis=1))
            assert changed.tolist() == [3, 4, 998]
            snapshot = await sess.snapshot()
            np.testing.assert_array_equal(snapshot["embedding"], await sess.run(made["whole"]))
    finally:
        await cluster.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_parts_are_of_one_step_after_a_server_was_lost(seed: int) -> None:
    cluster = {"ps": ["ps0:2222", "ps1:2222"], "worker": ["worker0:2222"]}
    config = am.SessionConfig()
    config.rpc_options.token = "secret"
    config.rpc_options.timeout_secs = 2

    async def serve(task: int) -> None:
        async with Server(cluster, "ps", task, config=config) as server:
            await server.join()

    async def train() -> list[list[float]]:
        with graph.device(am.replica_device_setter(cluster=cluster)):
            step = graph.train.create_global_step()
            table = graph.get_variable(
                "table", [6], initializer=graph.zeros_initializer(),
                partitioner=graph.fixed_size_partitioner(2),
            )  # fmt: skip
            with graph.control_dependencies(table.assign_add(np.ones(6, np.float32))):
                add = step.assign_add(1)
        found = []
        async with (
            Server(cluster, "worker", 0, config=config) as server,
            am.MonitoredTrainingSession(
                server.target, checkpoint_dir="/run", save_checkpoint_steps=5, config=config,
                hooks=[am.StopAtStepHook(last_step=40)],
            ) as sess,
        ):  # fmt: skip
            while not sess.should_stop():
                await sess.run(add)
                await asyncio.sleep(0.1)
        for path in (await am.get_checkpoint_state("/run")).all_model_checkpoint_paths:
            async with await am.load_checkpoint(path) as reader:
                count = await reader.get_tensor("global_step")
                found.append([float(count), *(await reader.get_tensor("table")).tolist()])
        return found

    services = {f"ps{task}": partial(serve, task) for task in range(2)}
    events = [at(1.5 + seed / 10, kill("ps1", restart_secs=1))]
    report = simulate({"worker": train}, events, seed=seed, services=services)
    assert any("kill ps1" in line for line in report.log)
    saved = report.results["worker"]
    assert saved[-1] == [40.0] * 7
    assert all(len({*values}) == 1 for values in saved)
