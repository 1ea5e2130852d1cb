"""Cross entropies: values, gradients, checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

RNG = np.random.default_rng(8)
LOGITS = RNG.normal(size=(4, 3))
LABELS = RNG.dirichlet(np.ones(3), 4)
CLASSES = np.array([0, 2, 1, 2])
nn = tf.nn


def _log_softmax(x: Any) -> Any:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_softmax_cross_entropy(ops: Any) -> None:

    def run(x: Any, y: Any) -> Any:
        return nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=x)

    ops.agree(run, -(LABELS * _log_softmax(LOGITS)).sum(1), LOGITS, LABELS)
    ops.differentiate(run, LOGITS, LABELS, order=1)

    def fixed(x: Any) -> Any:
        return nn.softmax_cross_entropy_with_logits_v2(tf.cast(LABELS, x.dtype), x)

    ops.differentiate(fixed, LOGITS, order=2)


def test_the_classes_may_lie_along_another_axis(ops: Any) -> None:

    def run(x: Any, y: Any) -> Any:
        return nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=x, axis=0)

    expected = -(LABELS * _log_softmax(LOGITS)).sum(1)
    ops.agree(run, expected, LOGITS.T, LABELS.T, known=("all", "rank"))


def test_sparse_softmax_cross_entropy(ops: Any) -> None:

    def run(x: Any, y: Any) -> Any:
        return nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x)

    expected = -_log_softmax(LOGITS)[np.arange(4), CLASSES]
    for dtype in (np.int32, np.int64):
        ops.agree(run, expected, LOGITS, CLASSES.astype(dtype))
        ops.differentiate(run, LOGITS, CLASSES.astype(dtype), order=2)
    ops.agree(run, expected.reshape(2, 2), LOGITS.reshape(2, 2, 3), CLASSES.reshape(2, 2))
    ops.differentiate(run, LOGITS[0], np.array(1))


def test_losses_weighted_by_what_comes_after(ops: Any) -> None:
    weights = np.array([1.0, 0.0, 2.0, 0.5])

    def run(x: Any, w: Any) -> Any:
        return w * nn.sparse_softmax_cross_entropy_with_logits(labels=CLASSES, logits=x)

    ops.differentiate(run, LOGITS, weights, order=2)


@pytest.mark.parametrize("wrong", [3, -1])
def test_a_class_that_is_not_there_fails_in_the_run(ops: Any, wrong: int) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=rf"label value of {wrong} which is outside"):
        ops.compute(
            lambda x: nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 1, wrong, 2], logits=x),
            LOGITS,
        )


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ((2, 3), (2, 1)),
        ((2, 3), (1, 2)),
        ((2, 3), ()),
        ((2, 2, 3), (4,)),
        ((4, 3), (2, 2)),
        ((3,), (1,)),
        ((1, 3), ()),
        ((), ()),
    ],
)
def test_classes_of_another_shape_than_rows_fail_in_the_run(ops: Any, logits: Any, labels: Any) -> None:
    def run(x: Any, y: Any) -> Any:
        return nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x)

    with pytest.raises(errors.InvalidArgumentError, match=r"must be equal|must be at least rank 1"):
        ops.compute(run, np.ones(logits), np.ones(labels, np.int32), known="nothing")


@pytest.mark.parametrize(
    ("logits", "labels"),
    [((1, 3), (2, 3)), ((3,), (2, 3)), ((2, 3), ()), ((1,), (0, 3))],
)
def test_a_loss_is_of_a_row_of_logits(ops: Any, logits: Any, labels: Any) -> None:
    def run(x: Any, y: Any) -> Any:
        return nn.softmax_cross_entropy_with_logits_v2(y, x)

    arrays = np.ones(logits), np.ones(labels)
    with pytest.raises(errors.InvalidArgumentError, match=r"must be equal|out of bounds|rank 1"):
        ops.compute(run, *arrays, known="nothing")
    with pytest.raises(ValueError, match=r"must be equal|out of bounds|rank 1"):
        ops.compute(run, *arrays)


@pytest.mark.parametrize("labels", [(1, 3), (3,), (2, 1)])
def test_labels_may_be_broadcast(ops: Any, labels: Any) -> None:
    def run(x: Any, y: Any) -> Any:
        return nn.softmax_cross_entropy_with_logits_v2(y, x)

    x, y = RNG.normal(size=(2, 3)), np.full(labels, 1 / 3)
    ops.agree(run, -(y * _log_softmax(x)).sum(-1), x, y)
    ops.differentiate(run, x, y, order=1)


@pytest.mark.parametrize("classes", [1, 3, 50])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_number_of_classes(ops: Any, classes: int, dtype: Any) -> None:
    x = RNG.normal(size=(6, classes))
    y = np.arange(6) % classes
    expected = -_log_softmax(x)[np.arange(6), y]
    found = ops.compute(
        lambda a: nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=a), x.astype(dtype)
    )
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=1e-2 if dtype is np.float16 else 1e-5)


def test_large_logits_do_not_overflow(ops: Any) -> None:
    x = np.array([[1e4, 0.0], [0.0, 1e4]], np.float32)
    found = ops.compute(
        lambda a: nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 0], logits=a), x
    )
    np.testing.assert_allclose(found, [0, 1e4])


def test_sigmoid_cross_entropy(ops: Any) -> None:

    def run(x: Any, y: Any) -> Any:
        return nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x)

    p = 1 / (1 + np.exp(-LOGITS))
    ops.agree(run, -LABELS * np.log(p) - (1 - LABELS) * np.log(1 - p), LOGITS, LABELS)
    ops.differentiate(run, LOGITS, LABELS, order=2)


def test_weighted_cross_entropy(ops: Any) -> None:
    def run(x: Any, y: Any) -> Any:
        return nn.weighted_cross_entropy_with_logits(labels=y, logits=x, pos_weight=2.0)

    p = 1 / (1 + np.exp(-LOGITS))
    ops.agree(run, -2 * LABELS * np.log(p) - (1 - LABELS) * np.log(1 - p), LOGITS, LABELS)
    ops.differentiate(run, LOGITS, LABELS, order=1)


@pytest.mark.parametrize("function", ["sigmoid_cross_entropy_with_logits", "weighted"])
@pytest.mark.parametrize(
    ("logits", "labels", "known"),
    [
        ((1, 3), (2, 3), "rank"),
        ((2, 3), (1, 3), "rank"),
        ((1, 3), (2, 3), "nothing"),
        ((2, 3), (3,), "nothing"),
        ((), (2, 3), "nothing"),
    ],
)
def test_gradients_have_the_shape_of_what_was_broadcast_in_the_run(
    ops: Any, function: str, logits: Any, labels: Any, known: str
) -> None:
    def run(x: Any, y: Any) -> Any:
        if function == "weighted":
            return nn.weighted_cross_entropy_with_logits(labels=y, logits=x, pos_weight=1.0)
        return nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x)

    x, y = RNG.normal(size=logits), RNG.uniform(size=labels)
    whole = np.broadcast_shapes(logits, labels)
    by_whole = 1 / (1 + np.exp(-x)) - np.broadcast_to(y, whole), np.broadcast_to(-x, whole)
    for found, value, each in zip(ops.gradients(run, x, y, known=known), (x, y), by_whole, strict=True):
        assert found.shape == value.shape
        extra = tuple(range(2 - value.ndim))
        repeated = tuple(i for i in range(value.ndim) if value.shape[i] == 1)
        expected = each.sum(axis=extra).sum(axis=repeated, keepdims=True)
        np.testing.assert_allclose(found, expected)


def test_a_batch_of_one_that_is_known_says_nothing_of_the_other(ops: Any) -> None:
    labels = tf.placeholder(tf.float32, [None, 3])
    loss = nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=tf.zeros([1, 3]))
    assert loss.shape.as_list() == [None, 3]
    assert ops.evaluate(loss, {labels: np.ones((2, 3))}).shape == (2, 3)


def test_l2_loss(ops: Any) -> None:
    ops.agree(nn.l2_loss, (LOGITS**2).sum() / 2, LOGITS)
    ops.differentiate(nn.l2_loss, LOGITS)
    with pytest.raises(TypeError, match="'t'"):
        nn.l2_loss(tf.constant([1]))


def test_the_l2_loss_of_halves_overflows_only_where_it_or_a_square_does(ops: Any) -> None:
    for x, expected in (
        (np.full(30, 62.22), 58080),  # the sum of squares does not fit
        (np.full(100, 1e-3), 4.77e-05),  # halves of squares are subnormal
        ([300.0], np.inf),
        (5.0, 12.5),
        ([], 0),
    ):
        found = ops.compute(nn.l2_loss, np.array(x, np.float16))
        assert found.dtype == np.float16
        assert found == np.float16(expected)


@pytest.mark.parametrize(
    "function",
    [
        nn.sparse_softmax_cross_entropy_with_logits,
        nn.sigmoid_cross_entropy_with_logits,
    ],
)
def test_arguments_must_be_named_and_given(function: Any) -> None:
    x = tf.constant(LOGITS)
    with pytest.raises(ValueError, match="with named arguments"):
        function(x, x)
    with pytest.raises(ValueError, match="Both labels and logits must be provided"):
        function(logits=x)


def test_what_does_not_fit_is_refused() -> None:
    x = tf.constant(LOGITS)
    sparse = nn.sparse_softmax_cross_entropy_with_logits
    with pytest.raises(ValueError, match="Rank mismatch: Rank of labels"):
        sparse(labels=[[0]], logits=x)
    with pytest.raises(ValueError, match="must be equal, but are 4 and 2"):
        sparse(labels=[0, 1], logits=x)
    with pytest.raises(ValueError, match="Logits cannot be scalars"):
        sparse(labels=0, logits=tf.constant(1.0))
    with pytest.raises(TypeError, match="'labels'"):
        sparse(labels=[0.0] * 4, logits=x)
    with pytest.raises(ValueError, match="must have the same shape"):
        nn.sigmoid_cross_entropy_with_logits(labels=x[:2], logits=x)
    assert nn.softmax_cross_entropy_with_logits_v2(tf.cast(LABELS, tf.float32), x).dtype is tf.float64
    with pytest.raises(ValueError, match="must be equal"):
        nn.softmax_cross_entropy_with_logits_v2(labels=LABELS[:, :2], logits=x)


def test_logits_and_labels_may_be_views(ops: Any) -> None:
    def run(x: Any, y: Any) -> Any:
        return nn.sparse_softmax_cross_entropy_with_logits(labels=y[::2], logits=tf.transpose(x))

    classes = np.repeat(CLASSES, 2)
    ops.agree(run, -_log_softmax(LOGITS)[np.arange(4), CLASSES], LOGITS.T, classes, known=("all",))
    ops.differentiate(run, LOGITS.T, classes, known=False)


def test_the_cross_entropy_of_no_classes_is_zero(ops: Any) -> None:
    x = np.zeros((2, 0), "f")

    def run(logits: Any, labels: Any) -> Any:
        return nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)

    ops.agree(run, np.zeros(2), x, x)
    for grad in ops.gradients(run, x, x):
        assert grad.shape == (2, 0)


@pytest.mark.parametrize(
    ("labels", "logits", "static"),
    [
        ((1, 4, 3), (4, 3), [4]),
        ((4, 3), (2, 2, 3), [2, 2]),
        ((3,), (3,), []),
        ((1, 3), (2, 2, 3), [2, 2]),
    ],
)
@pytest.mark.asyncio
async def test_outer_dimensions_of_softmax_cross_entropy_are_flattened(
    labels: tuple[int, ...], logits: tuple[int, ...], static: list[int]
) -> None:
    rng = np.random.default_rng(2)
    a, z = rng.dirichlet([1, 1, 1], labels[:-1]), rng.normal(size=logits)
    x = tf.placeholder(tf.float64, logits)
    loss = tf.nn.softmax_cross_entropy_with_logits_v2(labels=a, logits=x)
    assert loss.shape.as_list() == static
    (slope,) = tf.gradients(loss, x)
    rows = z.reshape(-1, 3) - np.log(np.exp(z.reshape(-1, 3)).sum(1, keepdims=True))
    async with tf.Session() as sess:
        got, by_logits = await sess.run([loss, slope], {x: z})
    np.testing.assert_allclose(got, -(a.reshape(-1, 3) * rows).sum(1).reshape(static))
    np.testing.assert_allclose(by_logits, (np.exp(rows) - a.reshape(-1, 3)).reshape(logits))


def test_outer_dimensions_of_which_one_is_known_at_run_time() -> None:
    logits, labels = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 3])
    loss = tf.nn.softmax_cross_entropy_with_logits_v2(logits=logits, labels=[labels])
    assert loss.shape.as_list() == [None]
