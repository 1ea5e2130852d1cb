"""Examples through ``shuffle_batch``: ``python tests/benchmarks/shuffle_batch.py``.

One file of TFRecords, read by a TFRecordReader, parsed one by one, decoded and batched by 32 out of a
shuffling queue. With ASYNCMON_PEER_PYTHON, TensorFlow runs the same program in turns; always, there is
a hand-written task with a list, which is what remains without graph, queue and transactions.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from harness import QUICK, Row, command, peer

import asyncmon.tf1 as tf
from asyncmon.protobuf.tfrecord import read_records

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES, BATCH, BATCHES, ROUNDS = 6000, 32, 150, 3

TF1 = """
import json, time
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
queue = tf.train.string_input_producer([PATH])
_, serialized = tf.TFRecordReader().read(queue)
features = tf.parse_single_example(serialized, {
    "image": tf.FixedLenFeature([], tf.string), "label": tf.FixedLenFeature([], tf.int64)})
image = tf.decode_raw(features["image"], tf.uint8)
image.set_shape([784])
batch = tf.train.shuffle_batch([image, features["label"]], 32, 2000, 1000)
with tf.Session() as sess:
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coord)
    for n in (50, BATCHES):
        start = time.perf_counter()
        for _ in range(n):
            sess.run(batch)
        seconds = (time.perf_counter() - start) / n / 32
    coord.request_stop()
    coord.join(threads)
print(json.dumps({"seconds": seconds}))
"""


def write(path: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (EXAMPLES, 784)).astype(np.uint8)
    with tf.python_io.TFRecordWriter(path) as writer:
        for i, image in enumerate(images):
            example = tf.train.Example()
            example.features.feature["image"].bytes_list.value.append(image.tobytes())
            example.features.feature["label"].int64_list.value.append(i % 10)
            writer.write(example.SerializeToString())


async def by_asyncmon(path: str, num_threads: int = 1) -> float:
    """Return seconds for an example."""
    with tf.Graph().as_default() as graph:
        queue = tf.train.string_input_producer([path])
        _, serialized = tf.TFRecordReader().read(queue)
        features = tf.parse_single_example(
            serialized,
            {"image": tf.FixedLenFeature([], tf.string), "label": tf.FixedLenFeature([], tf.int64)},
        )
        image = tf.decode_raw(features["image"], tf.uint8)
        image.set_shape([784])
        tensors = [image, features["label"]]
        batch = tf.train.shuffle_batch(tensors, BATCH, 2000, 1000, num_threads=num_threads)
    async with tf.Session(graph=graph) as sess:
        coord = tf.train.Coordinator()
        tasks = tf.train.start_queue_runners(sess, coord)
        for count in (50, BATCHES):
            start = time.perf_counter()
            for _ in range(count):
                await sess.run(batch)
            seconds = (time.perf_counter() - start) / count / BATCH
        coord.request_stop()
        await coord.join(tasks)
    return seconds


async def by_hand(path: str) -> float:
    """The same with a list of pairs, filled before each batch."""
    held: list[tuple[np.ndarray, int]] = []
    seconds = 0.0

    def examples() -> None:
        for records in read_records(path):
            for _offset, record in records:
                features = tf.train.Example.FromString(record).features.feature
                image = np.frombuffer(features["image"].bytes_list.value[0], np.uint8)
                held.append((image, features["label"].int64_list.value[0]))

    start = time.perf_counter()
    await asyncio.to_thread(examples)
    count = 0
    while len(held) >= BATCH:
        taken = []
        for _ in range(BATCH):
            i = random.randrange(len(held))
            held[i], held[-1] = held[-1], held[i]
            taken.append(held.pop())
        np.stack([image for image, _ in taken]), np.array([label for _, label in taken])
        count += BATCH
    seconds = (time.perf_counter() - start) / count
    return seconds


def typical(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS)) * 1e6


def measured() -> list[Row]:
    path = str(Path(tempfile.mkdtemp()) / "examples.tfrecord")
    write(path)
    program = TF1.replace("PATH", repr(path)).replace("BATCHES", str(BATCHES))
    ours, theirs = [], []
    for _ in range(1 if QUICK else ROUNDS):  # in turns
        ours.append(asyncio.run(by_asyncmon(path)) * 1e6)
        theirs.append((peer(program) or {}).get("seconds", 0) * 1e6)
    mine, tf1 = statistics.median(ours), statistics.median(theirs)
    by_list = typical(lambda: asyncio.run(by_hand(path)))
    four = typical(lambda: asyncio.run(by_asyncmon(path, 4)))
    ratios = {"TF1": mine / tf1} if tf1 else {}
    said = f"{mine:.1f} µs, by hand {by_list:.1f} µs" + (f", TF1 {tf1:.1f} µs" if tf1 else "")
    met = (mine <= tf1 / 2 and mine <= by_list) if tf1 else None
    ratios["by hand"] = mine / by_list
    return [
        Row("shuffle_batch, an example", said, "0.5x TF1, 1x by hand", met, ratios),
        Row("shuffle_batch, num_threads=4", f"{four:.1f} µs", "to compare"),
    ]


if __name__ == "__main__":
    sys.exit(command("examples through shuffle_batch", {"shuffle_batch": measured}))
