"""Torch's kernels give what numpy's do, to rounding."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon import graph as g
from asyncmon.graph.execution import run_kernels
from asyncmon.graph.nn import conv, pool
from asyncmon.graph.numerics import kernels as wrappers
from asyncmon.graph.numerics.parallel import split_products
from asyncmon.graph.numerics.torch_kernels import KERNELS, torch_kernels
from asyncmon.graph.ops import products
from asyncmon.session_config import SessionConfig

RNG = np.random.default_rng(0)


def both(kernel: Any, *inputs: Any, **attrs: Any) -> None:
    """Compare a kernel with torch's, which must not decline and uses memory that it is given."""
    expected = kernel(*inputs, **attrs)
    for out in (None, np.full_like(expected, 7)):
        with torch_kernels(2):
            direct = KERNELS[kernel.__name__](*inputs, out, **attrs)
            found = kernel(*inputs, out, **attrs)
        assert direct is not NotImplemented
        assert direct is out or out is None or kernel is products.product
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.flags.c_contiguous
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def array(*shape: int, dtype: Any = np.float32, ties: bool = False) -> Any:
    values = RNG.standard_normal(shape)
    return np.round(values).astype(dtype) if ties else values.astype(dtype)


PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
SHAPES = st.tuples(st.integers(1, 3), st.integers(3, 9), st.integers(3, 9), st.integers(1, 3))
DTYPES = st.sampled_from([np.float32, np.float64])


@settings(max_examples=60)
@given(
    shape=SHAPES, size=PAIRS, channels=st.integers(1, 4), strides=PAIRS,
    padding=st.sampled_from(["SAME", "VALID", ((1, 2), (0, 1))]),
    dilations=st.sampled_from([(1, 1), (1, 2)]), dtype=DTYPES,
)  # fmt: skip
def test_convolution_and_its_gradients(
    shape: Any, size: Any, channels: int, strides: Any, padding: Any, dilations: Any, dtype: Any
) -> None:
    how = {"strides": strides, "padding": padding, "dilations": dilations}
    images, filters = array(*shape, dtype=dtype), array(*size, shape[3], channels, dtype=dtype)
    try:
        out = conv.convolve(images, filters, **how)
    except ValueError:  # the window is larger than the image
        return
    images.flags.writeable = False
    both(conv.convolve, images, filters, **how)
    grad = array(*out.shape, dtype=dtype)
    both(conv.filter_gradient, images, np.array(filters.shape), grad, **how)
    both(conv.input_gradient, np.array(images.shape), filters, grad, **how)


def test_one_channel_and_a_result_of_one_column() -> None:
    how: Any = {"strides": (1, 3), "padding": "VALID", "dilations": (1, 1)}
    both(conv.convolve, array(3, 6, 3, 1), array(1, 2, 1, 4), **how)


@settings(max_examples=60)
@given(shape=SHAPES, ksize=PAIRS, strides=PAIRS, valid=st.booleans(), dtype=DTYPES)
def test_pooling_and_its_gradients_with_ties(
    shape: Any, ksize: Any, strides: Any, valid: bool, dtype: Any
) -> None:
    how = {"ksize": ksize, "strides": strides, "padding": "VALID" if valid else "SAME"}
    x = array(*shape, dtype=dtype, ties=True)
    with torch_kernels(2):
        even = KERNELS["window_max"](x, **how) is not NotImplemented
    compare = both if even else same
    y = pool.window_max(x, **how)
    grad = array(*y.shape, dtype=dtype)
    compare(pool.window_max, x, **how)
    compare(pool.window_max_grad, x, y, grad, **how)
    compare(pool.window_mean, x, **how)
    compare(pool.window_mean_grad, np.array(x.shape), grad, **how)


def same(kernel: Any, *inputs: Any, **attrs: Any) -> None:
    with torch_kernels(2):
        found = kernel(*inputs, **attrs)
    np.testing.assert_array_equal(found, kernel(*inputs, **attrs))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (array(256, 128), array(128, 64)),
        (array(128, 256).T, array(64, 128).T),
        (array(3, 128, 128, dtype=np.float64), array(128, 64, dtype=np.float64)),
    ],
)
def test_large_products(a: Any, b: Any) -> None:
    both(products.product, a, b)


def test_small_products_and_other_types_stay_numpys() -> None:
    for a in (array(4, 4), np.ones((200, 200), np.int64), array(200, 200, dtype=np.float16)):
        same(products.product, a, a)
        with torch_kernels(1):
            assert KERNELS["product"](a, a) is NotImplemented


def test_the_number_of_threads_is_that_of_the_session() -> None:
    before, seen = torch.get_num_threads(), []
    with torch_kernels(3):
        seen.append(torch.get_num_threads())
    assert (seen, torch.get_num_threads()) == ([3], before)


@pytest.mark.asyncio
async def test_a_session_computes_with_them() -> None:
    with g.Graph().as_default() as graph:
        filters = g.Variable(array(3, 3, 3, 8))
        hidden = g.nn.conv2d(g.constant(array(8, 12, 12, 3)), filters, [1, 1, 1, 1], "SAME")
        hidden = g.nn.max_pool(hidden, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        loss = g.reduce_mean(g.square(hidden))
        step = g.train.GradientDescentOptimizer(0.1).minimize(loss)
        threads = g.py_func(torch.get_num_threads, [], g.int64)
        init = g.global_variables_initializer()
    found = []
    for kernels in ("numpy", "torch"):
        config = SessionConfig(kernels=kernels, intra_op_parallelism_threads=1)
        async with g.Session(graph=graph, config=config) as session:
            await session.run(init)
            losses = [(await session.run([loss, step]))[0] for _ in range(5)]
            found.append([*losses, *(await session.run(filters)).ravel()])
            assert await session.run(threads) == (1 if kernels == "torch" else torch.get_num_threads())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="kernels must be 'numpy', 'torch' or 'auto', got 'jax'"):
        SessionConfig(kernels="jax")


def test_auto_takes_torch_for_large_runs_if_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run_kernels._log_once.cache_clear()
    for _ in range(2):
        light, heavy = run_kernels.around_runs(SessionConfig(kernels="auto"))
        assert light is None
        with heavy():
            assert wrappers._local.kernels is KERNELS
    assert len([one for one in caplog.messages if one.startswith("kernels='auto'")]) == 1
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run_kernels.around_runs(SessionConfig(kernels="auto")) == (None, split_products)


@pytest.mark.asyncio
async def test_auto_computes_a_large_convolution_as_torch_does() -> None:
    images, filters = array(16, 32, 32, 16), array(5, 5, 16, 16)
    found = {}
    for kernels in ("numpy", "auto"):
        with g.Graph().as_default():
            result = g.nn.conv2d(images, filters, strides=1, padding="SAME")
            async with g.Session(config=SessionConfig(kernels=kernels)) as sess:
                found[kernels] = await sess.run(result)
    np.testing.assert_allclose(found["numpy"], found["auto"], rtol=1e-3, atol=1e-3)
