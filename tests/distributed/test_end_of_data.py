"""The end of data of TF1's input queues, with their parts on any tasks of a cluster."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.tf1 import train
from asyncmon.tf1.readers import TextLineReader
from tests.distributed.in_process import InProcessCluster

if TYPE_CHECKING:
    from pathlib import Path

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


async def test_the_error_of_a_producer_reaches_consumers_of_another_process() -> None:
    """It is no end of the data."""
    with graph.Graph().as_default():
        queue = graph.FIFOQueue(3, [graph.float32], shapes=[[]])
        bad = graph.check_numerics(graph.constant(float("nan")), "not a number")
        am.add_queue_runner(am.QueueRunner(queue, [queue.enqueue(bad)]))
        async with am.Session("local") as sess:
            tasks = am.start_queue_runners(sess)
            with pytest.raises(am.errors.InvalidArgumentError, match="not a number"):
                await sess.run(queue.dequeue())
            await asyncio.wait(tasks)


async def test_a_handle_without_a_seed_shares_a_shuffled_queue_with_one() -> None:
    """TF1: the seeds are compared only if the handle has one."""
    cluster = InProcessCluster({"ps": ["a:1"], "worker": ["b:1", "c:1"]})
    for task, seed in enumerate((1, None)):
        with graph.Graph().as_default(), graph.device("/job:ps/task:0"):
            shared = graph.RandomShuffleQueue(
                5, 0, [graph.int32], shapes=[[]], seed=seed, shared_name="rows"
            )
            other = graph.RandomShuffleQueue(
                5, 0, [graph.int32], shapes=[[]], seed=2, shared_name="rows"
            )
            async with cluster.session("worker", task) as sess:
                await sess.run(shared.enqueue(7))
                assert await sess.run(shared.size()) == task + 1
                with pytest.raises(am.errors.InvalidArgumentError, match=r"has seed 1, but .* has 2"):
                    await sess.run(other.size())
    await cluster.close()
