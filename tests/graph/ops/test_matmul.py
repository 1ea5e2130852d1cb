"""Matrix products: flags, batches, dtypes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

RNG = np.random.default_rng(5)


def _t(x: Any, flip: bool) -> Any:
    return np.swapaxes(x, -1, -2) if flip else x


@pytest.mark.parametrize(("flip_a", "flip_b"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize(
    ("batch_a", "batch_b"), [((), ()), ((2,), (2,)), ((2, 1), (3,)), ((2,), ()), ((), (2,))]
)
def test_products_of_matrices_and_batches(
    ops: Any, flip_a: bool, flip_b: bool, batch_a: Any, batch_b: Any
) -> None:
    a = RNG.normal(size=(*batch_a, *((3, 2) if flip_a else (2, 3))))
    b = RNG.normal(size=(*batch_b, *((4, 3) if flip_b else (3, 4))))

    def run(x: Any, y: Any) -> Any:
        return tf.matmul(x, y, flip_a, flip_b)

    ops.agree(run, _t(a, flip_a) @ _t(b, flip_b), a, b)
    ops.agree(run, _t(a, flip_a) @ _t(b, flip_b), a.astype("f"), b.astype("f"), rtol=1e-4)
    ops.differentiate(run, a, b, order=2, max_elements=4)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float16, np.float32, np.float64])
def test_dtypes_are_kept(ops: Any, dtype: Any) -> None:
    a = np.array([[1, 2], [3, 4]], dtype)
    found = ops.compute(tf.matmul, a, a)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [[7, 10], [15, 22]])


def test_the_operator(ops: Any) -> None:
    a = np.array([[1.0, 2.0]])
    ops.agree(lambda x: x @ tf.transpose(x), a @ a.T, a)


def test_adjoints_of_complex_matrices_are_conjugated(ops: Any) -> None:
    a = np.array([[1 + 2j, 3j]], np.complex64)
    found = ops.compute(lambda x: tf.matmul(x, x, adjoint_b=True), a)
    np.testing.assert_allclose(found, a @ a.conj().T)
    found = ops.compute(lambda x: tf.matmul(x, x, adjoint_a=True), a)
    np.testing.assert_allclose(found, a.conj().T @ a)
    real = np.array([[1.0, 2.0]])
    ops.agree(lambda x: tf.matmul(x, x, adjoint_b=True), real @ real.T, real)


def test_what_does_not_fit_is_refused() -> None:
    a = tf.constant([[1.0, 2.0, 3.0]])
    text = r"are 3 and 1 for 'MatMul' \(op: 'MatMul'\) with input shapes: \[1,3\], \[1,3\]"
    with pytest.raises(ValueError, match=text):
        tf.matmul(a, a)
    with pytest.raises(ValueError, match="Shape must be at least rank 2 but is rank 1"):
        tf.matmul(a, tf.constant([1.0, 2.0, 3.0]))
    with pytest.raises(TypeError, match="Input 'b' of 'MatMul' Op has type float64"):
        tf.matmul(a, tf.constant([[1.0]], tf.float64))
    with pytest.raises(ValueError, match="Only one of `transpose_a` and `adjoint_a`"):
        tf.matmul(a, a, transpose_a=True, adjoint_a=True)
    with pytest.raises(ValueError, match="Only one of `transpose_b` and `adjoint_b`"):
        tf.matmul(a, a, transpose_b=True, adjoint_b=True)


def test_what_turns_out_not_to_fit_fails_in_the_run(ops: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        ops.compute(tf.matmul, np.ones((2, 3)), np.ones((2, 3)), known="nothing")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((3,), (3, 2)), ((3,), (3,)), ((2, 3), ())])
def test_a_vector_is_no_matrix(ops: Any, shapes: Any, dtype: Any) -> None:
    x, y = (np.ones(shape, dtype) for shape in shapes)
    with pytest.raises(errors.InvalidArgumentError, match="must be at least rank 2"):
        ops.compute(tf.matmul, x, y, known="nothing")


def test_static_shapes_of_batches() -> None:
    a = tf.placeholder(tf.float32, [None, 1, 2, 3])
    b = tf.placeholder(tf.float32, [5, 3, 4])
    assert tf.matmul(a, b).shape.as_list() == [None, 5, 2, 4]


def test_hints_of_the_original_change_nothing(ops: Any) -> None:
    x = np.eye(2)
    ops.agree(lambda a: tf.matmul(a, a, a_is_sparse=True, b_is_sparse=True, name="m"), x, x)
    assert tf.nn.softplus(features=1.0).op.type == "Softplus"
