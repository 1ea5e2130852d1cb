"""Metrics that are no means of batches: objects that collect outputs, and compute at the end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from asyncmon.system import files


@runtime_checkable
class Metric(Protocol):
    """Collects the outputs of an evaluation's batches. The form of ignite and torchmetrics.

    Each evaluation resets it, so that its state is in no checkpoint. The methods are plain functions
    that may block: they are called in a worker thread. An object belongs to one hook: evaluations of
    two hooks may overlap, and would reset each other's.

    Example::

        class Accuracy:
            def reset(self):
                self.right = self.all = 0

            def update(self, outputs):
                predicted, labels = outputs
                self.right, self.all = self.right + sum(predicted == labels), self.all + len(labels)

            def compute(self):
                return self.right / self.all

        evaluation = EvalHook({"accuracy": (["predicted", "labels"], Accuracy())}, every_epochs=1)
    """

    def reset(self) -> object:
        """Forget everything."""

    def update(self, outputs: Any) -> object:
        """Add the outputs of a batch.

        They have the structure of the fetches. With more required parameters, as in torchmetrics
        (``update(preds, target)``), a list or tuple of outputs is spread over them, and a mapping is
        passed by name.
        """

    def compute(self) -> Any:
        """Return one number, or numbers by name: the metrics ``<name>/<that name>``."""


class BatchMetric:
    """A metric object, and how outputs become its arguments.

    Args:
        name: of the metric.
        metric: the object.

    Raises:
        TypeError: the object has not all three methods.
    """

    def __init__(self, name: str, metric: Any) -> None:
        if not isinstance(metric, Metric):
            raise TypeError(
                f"The metric {name!r} is a pair of fetches and an object with reset(), update(outputs) "
                f"and compute(), got {metric!r}."
            )
        self._name, self._metric = name, metric
        self._arguments = _arguments_of(metric.update)

    async def reset(self) -> None:
        """Forget the batches of an earlier evaluation."""
        await files.in_thread(self._metric.reset)

    async def update(self, outputs: Any) -> None:
        """Add the outputs of a batch."""
        args, kwargs = self._arguments(outputs)
        await files.in_thread(lambda: self._metric.update(*args, **kwargs))

    async def compute(self) -> dict[str, float]:
        """Return the numbers by name."""
        found = await files.in_thread(self._metric.compute)
        if isinstance(found, Mapping):
            return {f"{self._name}/{key}": number(self._name, one) for key, one in found.items()}
        return {self._name: number(self._name, found)}


def is_collected(fetch: Any) -> bool:
    """Return whether a metric is a pair of fetches and an object with ``compute``."""
    return isinstance(fetch, tuple) and len(fetch) == 2 and hasattr(fetch[1], "compute")


def number(name: str, value: Any) -> float:
    """Return a metric as a float. Raises ValueError for anything but one number."""
    if hasattr(value, "detach"):  # a tensor of torch
        value = value.detach().cpu()
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(
            f"The metric {name!r} of a batch has the shape {list(array.shape)}; expected one number. "
            "Reduce it first."
        )
    try:
        return float(array.item())
    except (TypeError, ValueError):
        raise ValueError(f"The metric {name!r} is {value!r:.200}; expected one number.") from None


def _arguments_of(update: Callable[..., Any]) -> Callable[[Any], tuple[Sequence[Any], dict[str, Any]]]:
    """Return how outputs become arguments: those of a function of several parameters are spread."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = inspect.signature(update).parameters.values()
    required = [one.name for one in parameters if one.kind in kinds and one.default is one.empty]
    if len(required) < 2:
        return lambda outputs: ((outputs,), {})

    def spread(outputs: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        if isinstance(outputs, Mapping):
            return (), {name: outputs[name] for name in required}
        return tuple(outputs), {}

    return spread
