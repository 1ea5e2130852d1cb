"""Variables in parts on several parameter servers: trained, saved, restored with other numbers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.distributed.server import Server
from tests.distributed.in_process import InProcessCluster
from tests.distributed.over_grpc import free_port

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio

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
