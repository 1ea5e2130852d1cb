"""Every op of the wing keeps the promises of its entry, and has its gradient checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.graph.core.op import OpDef, OpRecord, RandomOpDef
from tests.graph.op_checks import (
    check_gradient,
    check_promises,
    differentiable,
    distinct,
    nodes_of,
    ops_of,
    types_of,
)  # fmt: skip

X = np.random.default_rng(31).uniform(0.2, 0.9, (4, 4))
IMAGES, FILTERS = distinct((1, 4, 4, 2), -1.0, 1.0), distinct((2, 2, 2, 3), -1.0, 1.0)
MATRIX, SQUARE = distinct((3, 4), -1.0, 1.0), distinct((3, 3), -1.0, 1.0)


def _sequences(x: Any) -> Any:
    ids = tf.constant([1, 0, 1])
    pairs = tf.stack([x, x * x, 2 * x + 0.1])
    return [tf.reverse_sequence(pairs, ids, 1), tf.sparse_to_dense([1], [3], x[:1, 0])]


def _arrays(x: Any) -> Any:
    """Elements that are written, read and read again in a loop."""
    given = tf.TensorArray(x.dtype, 3).unstack(x)
    first = tf.TensorArray(x.dtype, 0, dynamic_size=True).write(0, x[0])

    def body(i: Any, made: Any) -> Any:
        return i + 1, made.write(i, made.read(i - 1) * given.read(i) + given.read(0))

    return tf.while_loop(lambda i, _: i < 3, body, (1, first))[1].gather([2, 0, 2])


def _segments(x: Any) -> Any:
    stitched = tf.dynamic_stitch([[2, 0], [[1], [3]]], [x[:2], x[1:, None]])
    return [tf.segment_max(x, [0, 0, 2]), stitched, *tf.dynamic_partition(x, [1, 0, 1], 2)]


def _cut(x: Any) -> Any:
    ends = [tf.placeholder_with_default([n], [None]) for n in (0, 1)]
    return tf.strided_slice(x, *ends)


def _trigonometric(x: Any) -> Any:
    bounded = [tf.asin, tf.acos, tf.atan, tf.sinh, tf.cosh, tf.asinh, tf.atanh]
    return [*[function(x) for function in bounded], tf.acosh(x + 2), tf.atan2(x, x + 3)]


def _depthwise(x: Any, w: Any) -> Any:
    return tf.nn.depthwise_conv2d(x, w, 1, "SAME")


def _matrices(x: Any) -> Any:
    quotients = [tf.truncatemod(x + 10, 100.0), tf.truncatediv(x + 10, 100.0)]
    return [tf.matrix_determinant(x), tf.matrix_inverse(x), tf.matrix_inverse(x, True), *quotients]


def _texts() -> Any:
    texts = tf.constant(["a", "b", "a"])
    return [*tf.unique_with_counts(texts), tf.decode_base64(tf.encode_base64(texts))]


# name -> function and arguments
GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sequences": (_sequences, (SQUARE,)),
    "arrays": (_arrays, (MATRIX,)),
    "segments": (_segments, (MATRIX,)),
    "depthwise": (_depthwise, (IMAGES, FILTERS)),
    "trigonometric": (_trigonometric, (MATRIX * 0.9,)),
    "strided slice": (_cut, (MATRIX,)),
    "matrices": (_matrices, (SQUARE + 3 * np.eye(3),)),
}


def _integers(x: Any) -> Any:
    ids, texts = tf.constant([1, 0, 1, 0]), tf.constant(["1", "2"])
    return [
        tf.create_op("CheckLimit", (ids[0],), {"limit": 3}),
        tf.create_op("CheckCoordinates", (ids[:, None],), {"shape": (2,)}),
        tf.nn.in_top_k(tf.cast(x, tf.float32), ids, 2),
        tf.searchsorted(x, x), tf.sequence_mask(ids), tf.string_to_number(texts),
        tf.decode_raw(texts, tf.uint8), *tf.decode_csv(texts, [[0]]),
    ]  # fmt: skip


def _random() -> Any:
    return [*tf.nn.log_uniform_candidate_sampler(np.array([[1], [2]]), 1, 3, True, 5)]


SAMPLES = {
    "sequences": (_sequences, (SQUARE,)),
    "depthwise": (_depthwise, (IMAGES, FILTERS)),
    "trigonometric": (_trigonometric, (X,)),
    "strided slice": (_cut, (X,)),
    "matrices": (_matrices, (X + np.eye(4),)),
    "texts": (_texts, ()),
    "random": (_random, ()),
    "integers": (_integers, (X,)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(ops: Any, name: str) -> None:
    function, arrays = GRADIENTS[name]
    check_gradient(ops, function, *arrays)


@pytest.mark.parametrize("name", SAMPLES)
def test_entries_keep_their_promises(name: str) -> None:
    check_promises(*SAMPLES[name])


def own_ops() -> dict[str, OpRecord]:
    return ops_of("asyncmon.tf1", without="asyncmon.graph")


def test_every_op_with_a_gradient_has_a_case() -> None:
    seen = {"ResizeImages", "ResizeImagesGradient"}  # of float32, see tests/tf1/test_image.py
    for function, arrays in GRADIENTS.values():
        seen |= types_of(function, *arrays)
    assert differentiable(own_ops()) - seen == set()


OTHERS = ("segments", "tensor_array", "image", "resizing", "parsing", "readers")
"""Modules whose ops have a suite of their own."""


def test_every_pure_op_has_a_sample() -> None:
    seen = {op.type for sample in SAMPLES.values() for op, *_ in nodes_of(*sample)}
    pure = {
        name
        for name, op in own_ops().items()
        if isinstance(op, OpDef | RandomOpDef) and op.kernel is not None
        if not op.infer.__module__.endswith(OTHERS)
    }
    assert pure - seen == set()
