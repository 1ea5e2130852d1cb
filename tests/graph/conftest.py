"""Each test builds into a graph of its own; ``ops`` checks op functions from all sides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph import Graph
from asyncmon.testing.gradients import check_gradients


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


class OpBench:
    """Runs op functions on arrays and compares the results with expected values."""

    def evaluate(self, fetches: Any, feeds: Any = None) -> Any:
        """Run fetches of the default graph in a fresh session, its variables initialised."""

        found = None

        async def run() -> None:  # no result: asyncio.run formats that of its task, twice
            nonlocal found
            async with tf.Session() as sess:
                await sess.run(tf.global_variables_initializer())
                found = await sess.run(fetches, feeds)

        asyncio.run(run())
        return found

    def compute(self, function: Callable[..., Any], *arrays: Any, known: str = "all") -> Any:
        """Call a function on placeholders with these values; static shapes and dtypes must be true.

        ``known``: what placeholders say of shapes: "all", "rank" or "nothing".
        """
        with Graph().as_default():
            values = [np.asarray(a) for a in arrays]
            shapes: dict[str, Callable[[Any], Any]] = {
                "all": lambda v: v.shape,
                "rank": lambda v: (None,) * v.ndim,
                "nothing": lambda v: None,
            }
            inputs = [tf.placeholder(v.dtype, shapes[known](v)) for v in values]
            results = function(*inputs)
            listed = list(results) if isinstance(results, list | tuple) else [results]
            found = self.evaluate(listed, dict(zip(inputs, values, strict=True)))
        for tensor, value in zip(listed, found, strict=True):
            assert tensor.shape.is_compatible_with(np.shape(value)), (tensor, np.shape(value))
            assert tensor.dtype == np.asarray(value).dtype, (tensor, np.asarray(value).dtype)
        return found if isinstance(results, list | tuple) else found[0]

    def agree(
        self,
        function: Callable[..., Any],
        expected: Any,
        *arrays: Any,
        known: tuple[str, ...] = ("all", "rank", "nothing"),
        rtol: float = 1e-6,
    ) -> None:
        """The function gives the expected values for any knowledge of the shapes."""
        for how in (*known, "turned"):
            if how == "turned":  # memory in another order
                found = self.compute(
                    function, *(np.array(a, order="F") for a in arrays), known=known[0]
                )
            else:
                found = self.compute(function, *arrays, known=how)
            if isinstance(expected, list | tuple):
                assert len(found) == len(expected)
                pairs = list(zip(found, expected, strict=True))
            else:
                pairs = [(found, expected)]
            for got, want in pairs:
                assert np.shape(got) == np.shape(want), how
                np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
        self.repeat(function, *arrays)

    def repeat(self, function: Callable[..., Any], *arrays: Any) -> None:
        """Runs that compute into memory of earlier ones give the same bits as the first."""
        with Graph().as_default() as graph:
            values = [np.asarray(a) for a in arrays]
            inputs = [tf.placeholder(v.dtype, v.shape) for v in values]
            results = function(*inputs)
            listed = list(results) if isinstance(results, list | tuple) else [results]
            inner = [tf.stack([tensor]) for tensor in listed]  # the fetches are stored elsewhere
            feeds = dict(zip(inputs, values, strict=True))
            runs: list[Any] = []

            async def run() -> None:
                async with tf.Session() as sess:
                    await sess.run(tf.global_variables_initializer())
                    for _ in range(3):
                        runs.append(await sess.run(inner, feeds))  # noqa: PERF401 -- see evaluate

            if not graph.random_ops:
                asyncio.run(run())
                first, *later = runs
                for found in later:
                    for got, want in zip(found, first, strict=True):
                        np.testing.assert_array_equal(got, want)

    def differentiate(
        self,
        function: Callable[..., Any],
        *arrays: Any,
        order: int = 2,
        known: bool = True,
        **options: Any,
    ) -> None:
        """Gradients agree with differences in double precision, and with that in single precision."""
        wide = [_as(a, np.float64) for a in arrays]
        asyncio.run(check_gradients(function, wide, **options))
        if order > 1:  # squared, so that the gradient of a linear op varies too
            asyncio.run(check_gradients(_squared(function), wide, order=order, **options))
        exact = self.gradients(function, *wide)
        turned = self.gradients(function, *(np.array(a, order="F") for a in wide))
        for got, want in zip(turned, exact, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
        for dtype, tolerance in ((np.float32, 1e-4), (np.float16, 3e-2)):
            rounded = self.gradients(function, *(_as(a, dtype) for a in arrays))
            for got, want in zip(rounded, exact, strict=True):
                assert got.dtype == dtype
                scale = max(1.0, float(np.abs(want).max(initial=0.0)))
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)
        if known:
            for how in ("rank", "nothing"):
                for got, want in zip(self.gradients(function, *wide, known=how), exact, strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)

    def gradients(self, function: Callable[..., Any], *arrays: Any, known: str = "all") -> list[Any]:
        """Return the gradients of the sum of results by the arrays that are of floats."""

        def grads(*inputs: Any) -> list[Any]:
            results = function(*inputs)
            results = list(results) if isinstance(results, list | tuple) else [results]
            floats = [x for x in inputs if x.dtype.is_floating]
            results = [y for y in results if y.dtype.is_floating]
            found = tf.gradients(results, floats, unconnected_gradients="zero")
            return [tf.convert_to_tensor(g) for g in found]

        return list(self.compute(grads, *arrays, known=known))


def _squared(function: Callable[..., Any]) -> Callable[..., Any]:
    def squared(*inputs: Any) -> Any:
        results = function(*inputs)
        listed = list(results) if isinstance(results, list | tuple) else [results]
        return [y * y for y in listed if y.dtype.is_floating]

    return squared


def _as(array: Any, dtype: Any) -> Any:
    array = np.asarray(array)
    return array.astype(dtype) if array.dtype.kind == "f" else array


@pytest.fixture(scope="session")
def ops() -> OpBench:
    return OpBench()
