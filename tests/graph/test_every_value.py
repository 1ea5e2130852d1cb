"""Every op is held to numpy: each sample of the contract suite has what numpy makes of it here.

That suite fails for an op without a sample; this one for a sample without a reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.graph.test_kernel_contract import ACTIVATIONS, AT, BINARY, SAMPLES, UNARY

OTHERWISE = {"random", "orthogonal", "dropout"}
"""Samples that draw: their source is tested in test_random_ops and test_nn_normalization."""
NOT_VALUES = {"unique rows", "sums over stacks"}
"""Of the optimizers' own, which the tests of sparse updates hold to dense ones, and of loops, held to
by their tests."""

RENAMED = {
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "is_finite": np.isfinite,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "reduce_sum": np.sum,
    "reduce_mean": np.mean,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_logsumexp": lambda x: np.log(np.exp(x).sum()),
    "argmax": lambda x: np.argmax(x, 0),
    "argmin": lambda x: np.argmin(x, 0),
    "cumsum": lambda x: np.cumsum(x, 0),
    "cumprod": lambda x: np.cumprod(x, 0),
    "pow": np.power,
    "squared_difference": lambda x, y: (x - y) ** 2,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "div_no_nan": np.divide,
}


def _softmax(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def _normal(x: Any) -> Any:
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def _elu(x: Any) -> Any:
    return np.where(x > 0, x, np.expm1(x))


ACTIVATED: dict[str, Callable[..., Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
    "elu": _elu,
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * _normal(x),
    "softmax": _softmax,
    "log_softmax": lambda x: np.log(_softmax(x)),
    "l2_loss": lambda x: (x * x).sum() / 2,
}


def _casts(x: Any) -> Any:
    return [x.astype("f"), x.astype("i"), (x > 0).astype("d")]


def _clipped(x: Any) -> Any:
    return x * 0.1 / max(np.linalg.norm(x), 0.1)


def _gathered(x: Any) -> Any:
    return [x[AT], x[:, AT], x[AT[:, 0], AT[:, 1]]]


def _scattered(x: Any) -> Any:
    rows = np.zeros((5, 6))
    np.add.at(rows, AT[:, 0], x[:2])
    return [rows, np.stack([x[0] + x[2], x[1], x[3]])]


def _mirrored(x: Any) -> Any:
    return [np.pad(x, [[1, 1], [0, 2]]), np.pad(x, [[1, 1], [0, 2]], "reflect")]


def _top(x: Any) -> Any:
    order = np.argsort(-x, -1)[:, :2]
    return [np.take_along_axis(x, order, -1), order]


def _convolved(x: Any, w: Any, step: int) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))[:, ::step, ::step]
    return np.einsum("nijchw,hwco->nijo", windows, w)


def _around(x: Any, before: int, after: int, value: float = 0.0) -> Any:
    sides = (before, after)
    return np.pad(x, [(0, 0), sides, sides, (0, 0)], constant_values=value)


def _pools(x: Any) -> Any:
    cut = x.reshape(2, 3, 2, 3, 2, 2).max((2, 4))
    windows = np.lib.stride_tricks.sliding_window_view(_around(x, 0, 1, np.nan), (3, 3), (1, 2))[
        :, ::2, ::2
    ]
    return [cut, np.nanmean(windows, (-1, -2)), x]


MORE: dict[str, Callable[..., Any]] = {
    "axes": lambda x: [x.sum(1), np.cumsum(x, 1), x[:, None], np.array([2, 0, 1])],
    "shape": lambda x: [np.shape(x), np.size(x), np.ndim(x)],
    "check_numerics": lambda x: x,
    "gelu tanh": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "logical": lambda x: ((x > 0.5) & (x < 0.8)) | (~(x > 0.7) ^ (x > 0.1)),
    "any all": lambda x: [(x > 0.5).any(0), (x > 0.5).all(1)],
    "casts": _casts,
    "where": lambda x, y: [np.maximum(x, y), np.argwhere(x > y)],
    "clip": lambda x: np.clip(x, 0.4, 0.6),
    "clips": lambda x: [_clipped(x), _clipped(x)],
    "reductions kept": lambda x: [x.sum(0, keepdims=True), x.mean(1), x.max(1)],
    "add_n": lambda x, y: [x + y + x, x],
    "matmul": lambda x, y: [x @ y.T, x.T @ y],
    "matmul batch": np.matmul,
    "einsum": lambda x, y: [x @ y.T, x.T],
    "einsum grad": lambda x: np.einsum("iij->j", x),
    "tensordot": lambda x, y: x @ y.T,
    "tensordot of any rank": lambda x, y: x @ y.T,
    "reshape": lambda x: [x.reshape(6, 4), x[:, None], np.stack([x, x])],
    "joining": lambda x, y: [np.concatenate([x, y]), np.stack([x, y], 1), x],
    "cutting": lambda x: [*np.split(x, 2), x[:, :1], x[:, 1:], *x, x],
    "slices": lambda x: [x[1:, ::2], x[0], x[1:3, 1:4], x[::-1]],
    "padding": _mirrored,
    "tile": lambda x: np.tile(x, (2, 1)),
    "gather": _gathered,
    "embedding_lookup": lambda x: [x[AT // 2], x[AT]],
    "gather batch": lambda x: x[:, [0, 2]],
    "scatter": _scattered,
    "mask": lambda x: x[[0, 2, 3]],
    "creation": lambda x: [
        np.full((2, 2), x[0, 0]),
        np.arange(x[0, 0], 3.0),
        np.linspace(x[0, 0], 1.0, 3),
    ],
    "one_hot": lambda i: np.eye(4, dtype="f")[i],
    "top_k": _top,
    "bias_add": np.add,
    "bias_add second": lambda x, b: x + b[:, None, None],
    "piecewise": lambda i: 1,
    "xent": lambda x, y: -(y * np.log(_softmax(x))).sum(-1),
    "sparse xent": lambda x: -np.log(_softmax(x))[range(4), range(4)],
    "sigmoid xent": lambda x, y: np.log1p(np.exp(x)) - x * y,
    "conv": lambda x, w: [_convolved(_around(x, 1, 1), w, 1), _convolved(x, w, 2)],
    "pools": _pools,
    "batch_norm": lambda x: (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3),
}


def _by_name(name: str) -> Callable[..., Any]:
    found: Any = RENAMED.get(name)
    return getattr(np, name) if found is None else found  # type: ignore[no-any-return]  # a function of numpy


REFERENCES = {
    **{name: _by_name(name) for name in (*UNARY, *BINARY)},
    **{f"{name} broadcast": _by_name(name) for name in BINARY},
    **ACTIVATED,
    **MORE,
}


@pytest.mark.parametrize("name", REFERENCES)
def test_values(ops: Any, name: str) -> None:
    function, arrays = SAMPLES[name]
    expected = REFERENCES[name](*arrays)
    ops.agree(function, expected, *arrays, known=("all",))


def test_every_sample_has_a_reference() -> None:
    assert set(ACTIVATIONS) == set(ACTIVATED)
    assert set(SAMPLES) == {*REFERENCES, *OTHERWISE, *NOT_VALUES}
