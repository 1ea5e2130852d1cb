"""Check gradients against differences of values. TF1: ``tf.test.compute_gradient_error``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncmon.graph.core.build import convert_to_tensor
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.indexed_slices import to_dense
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.ops.basic import placeholder
from asyncmon.graph.session.session import Session


async def check_gradients(
    ys: Any,
    xs: Sequence[Any],
    feed_dict: Mapping[Any, Any] | None = None,
    session: Session | None = None,
    *,
    delta: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    order: int = 1,
    max_elements: int | None = None,
    seed: int = 0,
) -> float:
    """Compare the gradients that the graph computes with central differences of its values.

    Either for a function of arrays, in a graph and a session of its own::

        await check_gradients(lambda a, b: matmul(a, b), [np.ones((2, 3)), np.ones((3, 2))])

    or for tensors of a graph, where ``xs`` may be variables, placeholders or intermediate results::

        await check_gradients(loss, [w, b], {x: batch}, session)

    Use float64: differences of float32 values keep only a few digits.

    Args:
        ys: a tensor, or several; or a function of the ``xs`` that returns them.
        xs: the tensors or variables to differentiate by; or the arguments of the function, where
            arguments other than floats are constants.
        feed_dict: values of placeholders and of ``xs``. Default for an x: its value in the session.
        session: where tensors are evaluated. Its state is not changed.
        delta: the size of the step to either side. Default: the cube root of the dtype's precision.
        rtol: the accepted relative error.
        atol: the accepted absolute error.
        order: 2 also checks the gradients of the gradients.
        max_elements: the number of elements to check in each x, chosen at random. Default: all.
        seed: the seed of that choice, and of the random weights of ``ys``.

    Returns:
        The greatest absolute difference.

    Raises:
        AssertionError: a gradient is wrong. The message has the x, the element and both numbers.
        ValueError: tensors are given without a session, or there is no x of floats.
    """
    options = delta, rtol, atol, max_elements, np.random.default_rng(seed)
    if callable(ys):
        with Graph().as_default():
            arrays = [np.asarray(x) for x in xs]
            inputs = [placeholder(a.dtype, a.shape, name=f"x{i}") for i, a in enumerate(arrays)]
            floats = [x for x in inputs if x.dtype.is_floating]
            async with Session() as own:
                check = _Check(own, dict(zip(inputs, arrays, strict=True)), *options)
                return await check.worst(ys(*inputs), floats, order)
    if session is None:
        raise ValueError("check_gradients() of tensors needs the session to evaluate them in.")
    with session.graph.as_default():
        check = _Check(session, dict(feed_dict or {}), *options)
        return await check.worst(ys, list(xs), order)


@dataclass(frozen=True)
class _Check:
    session: Session
    feeds: dict[Any, Any]
    delta: float | None
    rtol: float | None
    atol: float | None
    max_elements: int | None
    rng: np.random.Generator

    async def worst(self, ys: Any, xs: list[Any], order: int) -> float:
        """Check gradients up to an order; return the greatest error."""
        results = [convert_to_tensor(y) for y in (ys if isinstance(ys, list | tuple) else [ys])]
        worst = 0.0
        for left in range(order, 0, -1):
            errors, results = await self.once([y for y in results if y.dtype.is_floating], xs)
            worst = max(worst, *errors)
            if left > 1 and not results:
                break
        return worst

    async def once(self, ys: list[Tensor], xs: list[Any]) -> tuple[list[float], list[Tensor]]:
        """Check the gradients of ``ys``; return the greatest errors, and the gradients as tensors."""
        if not ys or not xs:
            raise ValueError(
                "check_gradients() needs floating point results and at least one x of floats."
            )
        values = await self.evaluate(ys)
        weights = [self.rng.uniform(0.5, 1.5, np.shape(v)).astype(np.asarray(v).dtype) for v in values]
        found = [to_dense(g) for g in gradients(ys, xs, [convert_to_tensor(w) for w in weights])]
        errors = [await self.compare(ys, weights, x, grad) for x, grad in zip(xs, found, strict=True)]
        return errors, [grad for grad in found if grad is not None]

    async def evaluate(self, tensors: Any, changed: Mapping[Any, Any] | None = None) -> Any:
        return await self.session.peek(tensors, {**self.feeds, **(changed or {})})

    async def compare(
        self, ys: list[Tensor], weights: list[NDArray[Any]], x: Any, grad: Tensor | None
    ) -> float:
        start = np.array(self.feeds[x] if x in self.feeds else await self.evaluate(x))
        precision = np.finfo(start.dtype).eps
        delta = self.delta or float(precision) ** (1 / 3)
        rtol = self.rtol if self.rtol is not None else 10 * float(precision) ** (2 / 3) + 1e-7
        atol = self.atol if self.atol is not None else 10 * float(precision) ** (2 / 3) + 1e-7
        analytic = np.zeros_like(start) if grad is None else np.asarray(await self.evaluate(grad))
        if analytic.shape != start.shape or analytic.dtype != start.dtype:
            raise AssertionError(
                f"The gradient of {x!r} has shape {analytic.shape} and dtype {analytic.dtype}, "
                f"expected {start.shape} and {start.dtype}."
            )
        worst = 0.0
        for at in self.elements(start.shape):
            step = delta * max(1.0, abs(float(start[at])))
            sums = [await self.weighted(ys, weights, x, start, at, sign * step) for sign in (1, -1)]
            numeric = (sums[0][0] - sums[1][0]) / (sums[0][1] - sums[1][1])
            error = abs(numeric - float(analytic[at]))
            scale = max(abs(numeric), abs(float(analytic[at])))
            if not error <= atol + rtol * scale:
                raise AssertionError(
                    f"The gradient of {x!r} at {list(at)} is {float(analytic[at])!r}, but differences "
                    f"of values say {numeric!r}: error {error:.3g}, accepted {atol + rtol * scale:.3g}."
                )
            worst = max(worst, error)
        return worst

    def elements(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        every = list(np.ndindex(*shape))
        if self.max_elements is None or len(every) <= self.max_elements:
            return every
        return [every[i] for i in self.rng.choice(len(every), self.max_elements, replace=False)]

    async def weighted(
        self,
        ys: list[Tensor],
        weights: list[NDArray[Any]],
        x: Any,
        start: NDArray[Any],
        at: tuple[int, ...],
        step: float,
    ) -> tuple[float, float]:
        """Return the weighted sum of ``ys`` with one element of x moved, and where it was moved to."""
        moved = start.copy()
        moved[at] += step
        values = await self.evaluate(ys, {x: moved})
        total = sum(
            float(np.sum(np.multiply(w, v, dtype=np.float64)))
            for w, v in zip(weights, values, strict=True)
        )
        return total, float(moved[at])
