"""Metrics that collect the outputs of batches: objects with reset, update and compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as g
from asyncmon.hooks import EvalHook, Metric, evaluate
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.session_creators import ChiefSessionCreator

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

BATCHES = [
    {"predicted": np.array([1, 1, 0]), "labels": np.array([1, 0, 0])},
    {"predicted": np.array([1]), "labels": np.array([0])},
]


class Precision:
    """Its value over all batches, 1 / 3, is not the mean of those of the batches, 1 / 4."""

    def __init__(self) -> None:
        self.resets = 0

    def reset(self) -> None:
        self.right = self.positive = 0
        self.resets += 1

    def update(self, outputs: Any) -> None:
        predicted, labels = outputs["predicted"], outputs["labels"]
        self.right += int(((predicted == 1) & (labels == 1)).sum())
        self.positive += int((predicted == 1).sum())

    def compute(self) -> Any:
        return self.right / self.positive


class Spread(Precision):
    """As torchmetrics: a parameter for each output."""

    def update(self, predicted: Any, labels: Any, _weight: float = 1.0) -> None:  # type: ignore[override]  # as torchmetrics
        super().update({"predicted": predicted, "labels": labels})


class Pair(Precision):
    def update(self, outputs: Any) -> None:
        assert type(outputs) is tuple  # as the fetches
        super().update({**outputs[0], "predicted": outputs[1]})


class Counts(Precision):
    """Several numbers at once."""

    def compute(self) -> Any:
        return {"right": self.right, "positive": np.array([self.positive])}


def program() -> FunctionProgram:
    made = FunctionProgram(state={"w": 0.0})

    @made.step
    def train(state: Any) -> None:
        state["w"] += 1

    @made.step(read_only=True)
    def test(state: Any, predicted: Any, labels: Any) -> dict[str, Any]:
        return {"predicted": predicted, "labels": labels, "size": float(len(labels))}

    return made


@pytest.mark.parametrize(
    ("fetches", "metric", "expected"),
    [
        ("test", Precision(), {"p": 1 / 3}),
        ("test", Spread(), {"p": 1 / 3}),
        (("test", "predicted"), Pair(), {"p": 1 / 3}),
        ("test", Counts(), {"p/right": 1.0, "p/positive": 3.0}),
    ],
)
async def test_a_metric_is_computed_over_all_batches(
    fetches: Any, metric: Any, expected: dict[str, float]
) -> None:
    session = program().create_session()
    found = await evaluate(session, {"size": "size", "p": (fetches, metric)}, BATCHES)
    assert found == pytest.approx({"size": 2.0, **expected})
    assert isinstance(metric, Metric)


async def test_the_only_metric_may_be_one_and_each_evaluation_resets_it() -> None:
    metric = Precision()
    hook = EvalHook({"p": ("test", metric)}, lambda: BATCHES, every_steps=1)
    results: list[float] = []
    hook.add_listener(lambda _, metrics: results.append(metrics["p"]))
    async with MonitoredSession(ChiefSessionCreator(program=program()), [hook]) as sess:
        await sess.run("train")
        await sess.run("train")
    assert results == pytest.approx([1 / 3] * len(results))
    assert metric.resets == len(results) > 0


async def test_the_fetches_may_be_names_in_a_graph() -> None:
    with g.Graph().as_default() as graph:
        predicted = g.placeholder(g.int32, [None], name="predicted")
        labels = g.placeholder(g.int32, [None], name="labels")
        step = g.train.get_or_create_global_step()
        train = step.assign_add(1)
    hook = EvalHook(
        {"p": (["predicted", labels], Spread())},
        lambda: [{predicted: batch["predicted"], labels: batch["labels"]} for batch in BATCHES],
        every_steps=1, concurrent=False,
    )  # fmt: skip
    async with MonitoredSession(ChiefSessionCreator(program=graph), [hook]) as sess:
        await sess.run(train)
    assert hook.metrics["p"] == pytest.approx(1 / 3)


async def test_a_metric_of_torchmetrics_gets_the_tensors_of_the_steps() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    metrics = pytest.importorskip("torchmetrics.classification", reason="torchmetrics is not installed")
    made = FunctionProgram(state={"w": 0.0})

    @made.step(read_only=True)
    def test(state: Any, predicted: Any, labels: Any) -> Any:
        return torch.as_tensor(predicted), torch.as_tensor(labels)

    session = made.create_session()
    found = await evaluate(session, {"p": ("test", metrics.BinaryPrecision())}, BATCHES)
    assert found == pytest.approx({"p": 1 / 3})


@pytest.mark.parametrize("value", [None, "much", [None]])
async def test_a_metric_that_computes_no_number_is_named(value: Any) -> None:
    class Odd(Precision):
        def compute(self) -> Any:
            return value

    with pytest.raises(ValueError, match=r"The metric 'p' is .*; expected one number\."):
        await evaluate(program().create_session(), {"p": ("test", Odd())}, BATCHES)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"p": Precision()}, r"without the fetches to update it by: pass a pair"),
        ({"p": ("test", type("M", (), {"compute": len})())}, "a pair of fetches and an object with"),
    ],
)
async def test_an_object_that_is_no_metric_is_refused(metrics: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        await evaluate(program().create_session(), metrics, BATCHES)
