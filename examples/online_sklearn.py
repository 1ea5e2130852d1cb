"""Learn the digits batch by batch with scikit-learn. Kill it, run it again: it resumes."""

import argparse
import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

import asyncmon as am
from asyncmon.programs import FunctionProgram

BATCH = 32


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    with np.load(Path(__file__).parent / "data" / "digits.npz") as digits:
        order = np.random.default_rng(0).permutation(len(digits["labels"]))
        images = digits["images"].reshape(-1, 64)[order] / 16.0
        labels = digits["labels"][order].astype(np.int64)
    fifth = len(labels) // 5
    return images[fifth:], labels[fifth:], images[:fifth], labels[:fifth]


def make_program(model: SGDClassifier, held: tuple[np.ndarray, np.ndarray]) -> FunctionProgram:
    """What scikit-learn keeps in the model is the state: its weights, and the count of the rate."""

    def get_state() -> dict[str, Any]:
        return {"weights": model.coef_, "bias": model.intercept_, "seen": float(model.t_)}

    def set_state(state: dict[str, Any]) -> None:
        model.coef_, model.intercept_ = state["weights"].copy(), state["bias"].copy()
        model.t_ = state["seen"]

    program = FunctionProgram(get_state=get_state, set_state=set_state)

    @program.step
    def learn(images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        mistakes = float(np.mean(model.predict(images) != labels))  # before it has seen them
        model.partial_fit(images, labels)
        return {"mistakes": mistakes}

    @program.step(read_only=True)
    def evaluate() -> dict[str, Any]:
        return {"accuracy": float(model.score(*held))}

    return program


async def train(steps: int, logdir: Path) -> None:
    images, labels, *held = load()
    model = SGDClassifier(loss="log_loss", average=False, random_state=0)
    model.partial_fit(images[:BATCH], labels[:BATCH], classes=np.arange(10))  # makes the arrays
    program = make_program(model, (held[0], held[1]))
    batches = am.data.from_arrays((images, labels)).shuffle(2000, seed=1).repeat().batch(BATCH)
    hooks = [
        am.StopAtStepHook(last_step=steps),
        am.LoggingTensorHook({"mistakes": "mistakes"}, every_n_iter=100),
        am.SummarySaverHook(20, output_dir=logdir, summary_op={"mistakes": "mistakes"}),
    ]
    async with am.MonitoredTrainingSession(
        checkpoint_dir=logdir, hooks=hooks, program=program, save_checkpoint_steps=100
    ) as sess:
        logging.info(
            f"resumed from step {sess.global_step}" if sess.global_step else "starting at step 0"
        )
        async for some, digits in sess.iterate(batches):
            await sess.run("learn", {"images": some, "labels": digits})
        accuracy = (await sess.peek("evaluate"))["accuracy"]
        weights = float(np.abs(await sess.peek("weights")).sum())
        step = sess.global_step
    print(f"step {step}: accuracy {100 * accuracy:.2f} %, weights {weights!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--dir", type=Path, default=Path("runs/sklearn"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(train(options.steps, options.dir))
