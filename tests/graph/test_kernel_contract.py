"""What every entry of the op table promises the plan: inputs, ``out=``, aliases, shapes and dtypes.

Each sample builds ops and their gradients; then each node is computed on its own, with inputs that
cannot be written, and held to what its entry says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.core.op import OpDef, RandomOpDef
from asyncmon.graph.ops.gather import unique_rows
from tests.graph.op_checks import check_promises, nodes_of, ops_of

RNG = np.random.default_rng(31)
X = RNG.uniform(0.2, 0.9, (4, 6))
Y = RNG.uniform(0.2, 0.9, (4, 6))
V = RNG.uniform(0.2, 0.9, 6)
IMAGES = RNG.normal(size=(2, 6, 6, 2))
FILTERS = RNG.normal(size=(3, 3, 2, 4))
AT = np.array([[0, 2], [1, 3]])
nn = tf.nn

UNARY = [
    "negative",
    "abs",
    "sign",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "square",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sigmoid",
    "floor",
    "ceil",
    "round",
    "rint",
    "erf",
    "erfc",
    "conj",
    "is_nan",
    "is_inf",
    "is_finite",
    "zeros_like",
    "ones_like",
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_logsumexp",
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "transpose",
    "squeeze",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "pow",
    "maximum",
    "minimum",
    "squared_difference",
    "floordiv",
    "floormod",
    "div_no_nan",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "equal",
    "not_equal",
]
ACTIVATIONS = [
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "softplus",
    "softsign",
    "swish",
    "gelu",
    "softmax",
    "log_softmax",
    "l2_loss",
]


def _by_tensors(x: Any) -> Any:
    axis, axes = tf.placeholder_with_default(1, []), tf.placeholder_with_default([1], [None])
    return [
        tf.reduce_sum(x, axes),
        tf.cumsum(x, axis),
        tf.expand_dims(x, axis),
        tf.create_op("InvertPermutation", (tf.constant([1, 2, 0]),)),
    ]


def _unique(x: Any) -> Any:
    rows = tf.stop_gradient(x)
    return [x * 2, *unique_rows(rows, tf.constant([2, 0, 2, 1])), *unique_rows(rows, tf.range(4))]


def _named(module: Any, names: list[str], *arrays: Any) -> dict[str, tuple[Callable[..., Any], Any]]:
    return {name: (getattr(module, name), arrays) for name in names}


SAMPLES: dict[str, tuple[Callable[..., Any], Any]] = {
    **_named(tf, UNARY, X),
    **_named(tf, BINARY, X, Y),
    **{f"{name} broadcast": (getattr(tf, name), (X, V)) for name in BINARY},
    **_named(nn, ACTIVATIONS, X - 0.5),
    "axes": (_by_tensors, (X,)),
    "shape": (lambda x: [tf.create_op(op, (x,)) for op in ("Shape", "Size", "Rank")], (X,)),
    "check_numerics": (lambda x: tf.check_numerics(x, "x"), (X,)),
    "gelu tanh": (lambda x: nn.gelu(x, approximate=True), (X,)),
    "logical": (lambda x: (x > 0.5) & (x < 0.8) | ~(x > 0.7) ^ (x > 0.1), (X,)),
    "any all": (lambda x: [tf.reduce_any(x > 0.5, 0), tf.reduce_all(x > 0.5, 1)], (X,)),
    "casts": (
        lambda x: [tf.cast(x, tf.float32), tf.cast(x, tf.int32), tf.cast(x > 0, tf.float64)],
        (X,),
    ),
    "where": (lambda x, y: [tf.where(x > y, x, y), tf.where(x > y)], (X, Y)),
    "clip": (lambda x: tf.clip_by_value(x, 0.4, 0.6), (X,)),
    "clips": (lambda x: [tf.clip_by_norm(x, 0.1), *tf.clip_by_global_norm([x], 0.1)[0]], (X,)),
    "reductions kept": (
        lambda x: [tf.reduce_sum(x, 0, True), tf.reduce_mean(x, 1), tf.reduce_max(x, 1)],
        (X,),
    ),
    "add_n": (lambda x, y: [tf.add_n([x, y, x]), tf.add_n([x])], (X, Y)),
    "matmul": (lambda x, y: [tf.matmul(x, y, transpose_b=True), tf.matmul(x, y, True)], (X, Y)),
    "sums over stacks": (
        lambda x, y: (
            [
                tf.create_op(
                    "StackedProduct",
                    (x, y),
                    {
                        "transpose_a": flip,
                        "transpose_b": not flip,
                        "shape": [x.shape[2 if flip else 1]] * 2,
                    },
                )
                for flip in (True, False)
            ]
            + [tf.create_op("StackedConcat", (x,)), tf.create_op("StackedSum", (y, [y.shape[2].value]))]
        ),
        (np.stack([X, Y]), np.stack([Y, X])),
    ),
    "matmul batch": (tf.matmul, (IMAGES, IMAGES.swapaxes(-1, -2))),
    "einsum": (lambda x, y: [tf.einsum("ij,kj->ik", x, y), tf.einsum("ij->ji", x)], (X, Y)),
    "einsum grad": (lambda x: tf.einsum("iij->j", x), (IMAGES[0],)),
    "tensordot": (lambda x, y: tf.tensordot(x, y, [[1], [1]]), (X, Y)),
    "tensordot of any rank": (
        lambda x, y: tf.tensordot(tf.placeholder_with_default(x, None), y, [[1], [1]]),
        (X, Y),
    ),
    "reshape": (
        lambda x: [tf.reshape(x, [6, 4]), tf.expand_dims(x, 1), tf.broadcast_to(x, [2, 4, 6])],
        (X,),
    ),
    "joining": (lambda x, y: [tf.concat([x, y], 0), tf.stack([x, y], 1), tf.concat([x], 0)], (X, Y)),
    "cutting": (
        lambda x: [*tf.split(x, 2), *tf.split(x, [1, 5], 1), *tf.unstack(x), *tf.split(x, 1)],
        (X,),
    ),
    "slices": (lambda x: [x[1:, ::2], x[0], tf.slice(x, [1, 1], [2, 3]), tf.reverse(x, [0])], (X,)),
    "padding": (lambda x: [tf.pad(x, [[1, 1], [0, 2]]), tf.pad(x, [[1, 1], [0, 2]], "REFLECT")], (X,)),
    "piecewise": (lambda i: tf.train.piecewise_constant(i[0, 0], [0, 2], [1, 2, 3]), (AT,)),
    "tile": (lambda x: tf.tile(x, [2, 1]), (X,)),
    "gather": (lambda x: [tf.gather(x, AT), tf.gather(x, AT, axis=1), tf.gather_nd(x, AT)], (X,)),
    "embedding_lookup": (
        lambda x: [nn.embedding_lookup([x, x[:3]], AT, s) for s in ("mod", "div")],
        (X,),
    ),
    "gather batch": (lambda x: tf.gather(x, AT[:1].repeat(4, 0), batch_dims=1), (X,)),
    "scatter": (
        lambda x: [
            tf.scatter_nd(AT[:, :1], x[:2], [5, 6]),
            tf.unsorted_segment_sum(x, [0, 1, 0, 2], 3),
        ],
        (X,),
    ),
    "mask": (lambda x: tf.boolean_mask(x, [True, False, True, True]), (X,)),
    "creation": (
        lambda x: [tf.fill([2, 2], x[0, 0]), tf.range(x[0, 0], 3.0), tf.linspace(x[0, 0], 1.0, 3)],
        (X,),
    ),
    "one_hot": (lambda i: tf.one_hot(i, 4), (AT,)),
    "top_k": (lambda x: [*nn.top_k(x, 2)], (X,)),
    "bias_add": (nn.bias_add, (X, V)),
    "bias_add second": (lambda x, b: nn.bias_add(x, b, "NCHW"), (IMAGES, V)),
    "xent": (lambda x, y: nn.softmax_cross_entropy_with_logits_v2(y, x), (X, Y)),
    "sparse xent": (
        lambda x: nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 1, 2, 3], logits=x),
        (X,),
    ),
    "sigmoid xent": (lambda x, y: nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x), (X, Y)),
    "conv": (lambda x, w: [nn.conv2d(x, w, 1, "SAME"), nn.conv2d(x, w, 2, "VALID")], (IMAGES, FILTERS)),
    "pools": (
        lambda x: [
            nn.max_pool(x, 2, 2, "VALID"),
            nn.avg_pool(x, 3, 2, "SAME"),
            nn.max_pool(x, 1, 1, "SAME"),
        ],
        (IMAGES,),
    ),
    "dropout": (lambda x: nn.dropout(x, rate=0.5), (X,)),
    "batch_norm": (
        lambda x: tf.layers.batch_normalization(x, training=True, center=False, scale=False),
        (X,),
    ),
    "unique rows": (lambda x: _unique(x), (X,)),
    "random": (
        lambda: [
            tf.random_uniform([3]),
            tf.random_normal([3], dtype=tf.float16),
            tf.truncated_normal([30]),
            tf.random_uniform([3], 0, 5, tf.int32),
            tf.random_shuffle(tf.range(5)),
            tf.multinomial(tf.zeros([2, 3]), 4),
        ],
        (),
    ),
    "orthogonal": (lambda: tf.initializers.orthogonal_initializer()([4, 3]), ()),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_entries_keep_their_promises(name: str) -> None:
    check_promises(*SAMPLES[name])


OTHERS = [
    "basic",
    "convert",
    "variable_ops",
    "queues",
    "ops",
    "py_func",
    "checks",
]
"""Modules whose ops the plan runs itself, or that have a suite of their own."""


def test_the_samples_cover_the_table() -> None:
    seen = {op.type for name in SAMPLES for op, *_ in nodes_of(*SAMPLES[name])}
    table_of_ops = {
        name
        for name, entry in ops_of("asyncmon.graph").items()
        if entry.infer.__module__.startswith("asyncmon.graph.")
        and entry.infer.__module__.rpartition(".")[2] not in OTHERS
        and entry.kernel is not None
        and isinstance(entry, OpDef | RandomOpDef)
        and getattr(entry.kernel, "__module__", "").startswith(("asyncmon.graph.", "numpy"))
    }
    assert table_of_ops <= seen
