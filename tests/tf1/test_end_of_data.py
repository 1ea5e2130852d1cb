"""The end of data of TF1's input queues, with their parts on any tasks of a cluster."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.tf1 import train
from asyncmon.tf1.readers import TextLineReader
from tests.distributed.in_process import InProcessCluster

pytestmark = pytest.mark.asyncio

TASKS = ("", "/job:ps/task:0", "/job:worker/task:1")


@pytest.mark.parametrize(("names", "counter", "reader", "batches"), list(product(TASKS[:2], repeat=4)))
@pytest.mark.parametrize("shuffle", [False, True])
async def test_a_pass_over_files_ends_after_its_last_batch(
    names: str, counter: str, reader: str, batches: str, shuffle: bool, tmp_path: Path
) -> None:
    await check_pass(names, counter, reader, batches, shuffle, tmp_path)


@pytest.mark.parametrize("places", [TASKS, TASKS[::-1], (TASKS[1], TASKS[2], TASKS[1])])
async def test_a_pass_over_files_ends_with_three_tasks(places: tuple[str, ...], tmp_path: Path) -> None:
    names, counter, reader = places
    await check_pass(names, counter, reader, places[1], True, tmp_path)


async def check_pass(
    names: str, counter: str, reader: str, batches: str, shuffle: bool, tmp_path: Path
) -> None:
    files = [str(tmp_path / f"{i}.txt") for i in range(2)]
    for i, file in enumerate(files):
        (tmp_path / file).write_text(f"{i}0\n{i}1\n")
    places = {"VariableV2": counter, "TextLineReaderV2": reader}

    def device_of(op: graph.Operation) -> str:
        queue = names if "input_producer" in op.name else batches
        return queue if op.type.endswith("QueueV2") else places.get(op.type, "")

    cluster = InProcessCluster({"ps": ["a:1"], "worker": ["b:1", "c:1"]})
    found: list[bytes] = []
    with graph.Graph().as_default():
        with graph.device(device_of):
            queue = train.string_input_producer(files, num_epochs=2, shuffle=shuffle, capacity=3)
            _key, line = TextLineReader().read(queue)
            batch = train.batch([line], 3, allow_smaller_final_batch=True, capacity=4)
        async with asyncio.timeout(20), cluster.session("worker", 0) as sess:
            await sess.run(graph.local_variables_initializer())
            coord = am.Coordinator()
            tasks = am.start_queue_runners(sess, coord)
            with suppress(am.errors.OutOfRangeError):
                while True:
                    found += (await sess.run(batch)).tolist()
            coord.request_stop()
            await coord.join(tasks)
    await cluster.close()
    assert sorted(found) == sorted([b"00", b"01", b"10", b"11"] * 2)
