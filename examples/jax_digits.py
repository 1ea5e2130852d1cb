"""Train a perceptron on the digits with JAX and optax. Stop it, kill it, run it again: it resumes."""

import argparse
import asyncio
import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import asyncmon as am
from asyncmon.programs.jax import JaxProgram


def load() -> tuple[np.ndarray, np.ndarray, int]:
    with np.load(Path(__file__).parent / "data" / "digits.npz") as digits:
        order = np.random.default_rng(0).permutation(len(digits["labels"]))
        images = digits["images"].reshape(-1, 64)[order].astype(np.float32) / 16
        labels = digits["labels"][order].astype(np.int32)
    return images, labels, len(labels) // 5


def predict(params: Any, images: Any, key: Any = None) -> Any:
    hidden = jax.nn.relu(images @ params["w1"] + params["b1"])
    if key is not None:  # dropout
        hidden = jnp.where(jax.random.bernoulli(key, 0.8, hidden.shape), hidden / 0.8, 0)
    return hidden @ params["w2"] + params["b2"]


def make_program() -> JaxProgram:
    optimizer = optax.adamw(2e-3)
    first, second, dropout = jax.random.split(jax.random.key(0), 3)
    params = {
        "w1": jax.random.normal(first, (64, 64)) / 8, "b1": jnp.zeros(64),
        "w2": jax.random.normal(second, (64, 10)) / 8, "b2": jnp.zeros(10),
    }  # fmt: skip
    program = JaxProgram({"params": params, "opt": optimizer.init(params), "key": dropout})

    def loss_of(params: Any, images: Any, labels: Any, key: Any) -> Any:
        logits = predict(params, images, key)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @program.step
    def train(state: Any, images: Any, labels: Any) -> Any:
        key, mine = jax.random.split(state["key"])
        loss, gradient = jax.value_and_grad(loss_of)(state["params"], images, labels, mine)
        updates, opt = optimizer.update(gradient, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": opt, "key": key}, {"loss": loss}

    @program.step(read_only=True)
    def evaluate(state: Any, images: Any, labels: Any) -> Any:
        return {"accuracy": (predict(state["params"], images).argmax(1) == labels).mean()}

    return program


async def train(steps: int, logdir: Path) -> None:
    images, labels, fifth = load()
    program = make_program()
    source = am.data.from_arrays((images[fifth:], labels[fifth:]))
    batches = source.shuffle(2000, seed=1).repeat().batch(64)
    hooks = [
        am.StopAtStepHook(last_step=steps),
        am.NanTensorHook("loss"),
        am.LoggingTensorHook({"loss": "loss"}, every_n_iter=200),
        am.SummarySaverHook(20, output_dir=logdir, summary_op={"loss": "loss"}),
    ]
    async with am.MonitoredTrainingSession(
        is_chief=program.is_chief, checkpoint_dir=logdir, hooks=hooks, program=program,
        save_checkpoint_steps=200,
    ) as sess:  # fmt: skip
        logging.info(
            f"resumed from step {sess.global_step}" if sess.global_step else "starting at step 0"
        )
        async for some, digits in sess.iterate(batches):
            await sess.run("train", {"images": some, "labels": digits})
        held = {"images": images[:fifth], "labels": labels[:fifth]}
        accuracy, weights, _ = await sess.peek(["accuracy", "params/w1", "evaluate"], held)
        step = sess.global_step
    print(f"step {step}: accuracy {100 * accuracy:.2f} %, weights {float(np.abs(weights).sum())!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--dir", type=Path, default=Path("runs/jax"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(train(options.steps, options.dir))
