"""A TF1 script around a Supervisor, with `await` added: services save and summarise by time."""

import argparse
import asyncio
from pathlib import Path

import numpy as np

import asyncmon as am
from asyncmon import graph as g

DIGITS = Path(__file__).parent / "data" / "digits.npz"


async def train(steps: int, logdir: Path) -> None:
    with np.load(DIGITS) as digits:
        images = digits["images"].reshape(-1, 64).astype(np.float32) / 16
        labels = digits["labels"].astype(np.int64)

    g.set_random_seed(1)
    x, y = g.placeholder(g.float32, [None, 64]), g.placeholder(g.int64, [None])
    logits = g.layers.dense(g.layers.dense(x, 64, activation=g.nn.relu), 10)
    loss = g.reduce_mean(g.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    accuracy = g.reduce_mean(g.cast(g.equal(g.argmax(logits, 1), y), g.float32))
    train_op = g.train.AdamOptimizer(2e-3).minimize(loss, am.get_or_create_global_step())
    my_summary_op = am.summary.scalar("accuracy", accuracy)

    async def print_accuracy(sess: g.Session) -> None:
        print(
            f"step {sess.global_step}: {100 * await sess.peek(accuracy, {x: images, y: labels}):.1f} %"
        )

    batches = am.data.from_arrays((images, labels)).shuffle(2000, seed=1).repeat().batch(64)

    # No summary service: the summary needs feeds, so it is computed below, every 100 steps.
    sv = am.Supervisor(logdir=logdir, summary_op=None, save_model_secs=30, save_at_end=True)
    async with sv.managed_session() as sess:
        # Call print_accuracy() every second, with the argument (sess,), beside the steps.
        sv.loop(1, print_accuracy, (sess,))
        last = sess.global_step + steps
        async for pixels, digits in batches:
            if sv.should_stop() or sess.global_step >= last:
                break
            if sess.global_step % 100 == 0:
                _, summary = await sess.run([train_op, my_summary_op], {x: pixels, y: digits})
                await sv.summary_computed(sess, summary)
            else:
                await sess.run(train_op, {x: pixels, y: digits})
        right = 100 * await sess.run(accuracy, {x: images, y: labels})
    await batches.aclose()
    print(f"{right:.1f} % right, checkpoint {await am.latest_checkpoint(str(logdir))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--logdir", type=Path, default=Path("runs/supervisor"))
    asyncio.run(train(**vars(parser.parse_args())))
