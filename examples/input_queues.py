"""Digits through TF1's input queues: file names, readers, a shuffled queue of examples, batches."""

import argparse
import asyncio
from pathlib import Path

import numpy as np

import asyncmon as am
from asyncmon import graph as g

DIGITS = Path(__file__).parent / "data" / "digits.npz"


def write_shards(directory: Path, count: int) -> list[str]:
    """Cut the digits into files, as a larger set of data would come."""
    directory.mkdir(parents=True, exist_ok=True)
    with np.load(DIGITS) as digits:
        images = digits["images"].reshape(-1, 64).astype(np.float32) / 16
        labels = digits["labels"].astype(np.int64)
    for number in range(count):
        np.savez(
            directory / f"{number:02}.npz", images=images[number::count], labels=labels[number::count]
        )
    return sorted(str(path) for path in directory.glob("*.npz"))


def read_shard(path: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as shard:
        return shard["images"], shard["labels"]


def input_pipeline(paths: list[str], epochs: int, batch_size: int) -> tuple[g.Tensor, g.Tensor]:
    """Return batches of images and labels. Queue runners fill the queues while the session trains."""
    order = (
        path for epoch in range(epochs) for path in np.random.default_rng(epoch).permutation(paths)
    )

    def next_path() -> str:
        for path in order:
            return str(path)
        raise am.errors.OutOfRangeError("all epochs are through")

    names = g.FIFOQueue(8, [g.string], shapes=[[]], name="names")
    am.add_queue_runner(am.QueueRunner(names, [names.enqueue(g.py_func(next_path, [], g.string))]))

    async def read(path: str) -> tuple[np.ndarray, np.ndarray]:
        return await asyncio.to_thread(read_shard, path)  # four files at a time, beside the steps

    examples = g.RandomShuffleQueue(1000, 300, [g.float32, g.int64], shapes=[[64], []], seed=1)
    shard = g.py_func(read, [names.dequeue()], [g.float32, g.int64])
    am.add_queue_runner(am.QueueRunner(examples, [examples.enqueue_many(shard)] * 4))
    images, labels = examples.dequeue_many(batch_size)
    return images, labels


async def train(epochs: int, directory: Path) -> None:
    paths = await asyncio.to_thread(write_shards, directory / "shards", 10)
    g.set_random_seed(1)
    images, labels = input_pipeline(paths, epochs, batch_size=32)
    logits = g.layers.dense(g.layers.dense(images, 64, activation=g.nn.relu), 10)
    loss = g.reduce_mean(g.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    right = g.reduce_mean(g.cast(g.equal(g.argmax(logits, 1), labels), g.float32))
    train_op = g.train.AdamOptimizer(2e-3).minimize(loss, am.get_or_create_global_step())

    hooks = [am.LoggingTensorHook({"loss": loss, "right": right}, every_n_iter=100)]
    accuracy = 0.0
    async with am.MonitoredTrainingSession(
        checkpoint_dir=str(directory / "model"), hooks=hooks
    ) as sess:
        while not sess.should_stop():  # the end of the data ends the block
            _, latest = await sess.run([train_op, right])
            accuracy += 0.05 * (float(latest) - accuracy)
    checkpoint = await am.latest_checkpoint(str(directory / "model"))
    print(f"{100 * accuracy:.1f} % right, checkpoint {checkpoint}; {sess.stop_reason}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=Path("runs/queues"))
    asyncio.run(train(**vars(parser.parse_args())))
