"""Cells over time: the loop against the unrolled network, lengths, gradients, shapes, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.graph.core import nest

Evaluate = Callable[..., Any]

cells = tf.nn.rnn_cell
RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 5, 2)).astype("f")
LENGTHS = [4, 1, 3]
pytestmark = pytest.mark.usefixtures("graph")

MADE: dict[str, Callable[[], Any]] = {
    "lstm": lambda: cells.LSTMCell(4, use_peepholes=True, num_proj=3),
    "gru on lstm": lambda: cells.MultiRNNCell([cells.BasicLSTMCell(4), cells.GRUCell(3)]),
    "plain": lambda: cells.BasicRNNCell(3, activation="sigmoid"),
}


def both(cell: Any, x: Any, **options: Any) -> tuple[Any, Any]:
    """Return outputs and states of a loop, and those of the same cell unrolled."""
    looped = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, **options)
    with tf.variable_scope("", reuse=True):
        outputs, state = tf.nn.static_rnn(cell, tf.unstack(x, 5, 1), dtype=tf.float32, **options)
    return looped, (tf.stack(outputs, 1), state)


def check_alike(evaluate: Evaluate, results: Any, x: Any, feeds: Any) -> None:
    """Values and gradients of two structures of tensors agree."""
    weights = tf.trainable_variables()
    found = []
    for result in results:
        ys = nest.flatten(result)
        loss = tf.add_n([tf.reduce_sum(y * y * (i + 1)) for i, y in enumerate(ys)])
        found.append([*ys, *tf.gradients(loss, [*weights, x])])
    first, second = (
        evaluate(None, found, feeds=[{}, feeds]) if False else evaluate(found, feeds=[feeds])
    )
    assert len(first) > len(weights)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("batch", [3, None])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("name", MADE)
def test_a_loop_is_the_unrolled_network(
    evaluate: Evaluate, name: str, lengths: Any, batch: int | None
) -> None:
    x = tf.placeholder(tf.float32, [batch, 5, 2])
    results = both(MADE[name](), x, sequence_length=lengths)
    assert results[0][0].shape.as_list() == [3 if lengths else batch, 5, 3]
    check_alike(evaluate, results, x, {x: X})


def test_beyond_its_length_a_sequence_has_zeros_and_keeps_its_state(evaluate: Evaluate) -> None:
    lengths = tf.placeholder(tf.int64, [None])
    outputs, state = tf.nn.dynamic_rnn(
        cells.BasicLSTMCell(4), tf.constant(X), lengths, dtype=tf.float32
    )
    got, last = evaluate([outputs, state], feeds=[{lengths: LENGTHS}])
    for row, length in enumerate(LENGTHS):
        assert not got[row, length:].any()
        assert got[row, :length].all()
        np.testing.assert_array_equal(last.h[row], got[row, length - 1])
    none, _ = evaluate([outputs, state], feeds=[{lengths: [0, 0, 0]}])
    assert not none.any()


def test_steps_that_no_sequence_has_are_not_run(evaluate: Evaluate) -> None:
    calls = []

    class Counting(cells.BasicRNNCell):
        def call(self, inputs: Any, state: Any) -> Any:
            output, state = super().call(inputs, state)
            noted = tf.py_func(lambda x: (calls.append(1), x)[1], [output], tf.float32)
            noted.set_shape(output.shape)
            return noted, state

    outputs, _ = tf.nn.dynamic_rnn(Counting(2), tf.constant(X), [2, 1, 2], dtype=tf.float32)
    assert evaluate(outputs).shape == (3, 5, 2)
    assert len(calls) == 2


def test_time_major_inputs_of_any_length(evaluate: Evaluate) -> None:
    x = tf.placeholder(tf.float32, [None, None, 2])
    cell = cells.GRUCell(4)
    by_time, last = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, time_major=True)
    assert by_time.shape.as_list() == [None, None, 4]
    with tf.variable_scope("", reuse=True):
        by_batch, same = tf.nn.dynamic_rnn(cell, tf.transpose(x, [1, 0, 2]), dtype=tf.float32)
    got = evaluate([by_time, by_batch, last, same], feeds=[{x: X.transpose(1, 0, 2)}])
    np.testing.assert_allclose(got[0].transpose(1, 0, 2), got[1])
    np.testing.assert_allclose(got[2], got[3])
    assert got[0].shape == (5, 3, 4)


def test_structures_of_inputs_and_given_states(evaluate: Evaluate) -> None:
    class Pair(cells.RNNCell):
        state_size = 2
        output_size = 2

        def call(self, inputs: Any, state: Any) -> Any:
            new = state + inputs["a"] - inputs["b"]
            return (new, new * 2), new

    x = tf.constant(X)
    outputs, state = tf.nn.dynamic_rnn(
        Pair(), {"a": x, "b": x * 0.5}, initial_state=np.ones((3, 2), np.float32)
    )
    (once, twice), last = evaluate([outputs, state])
    np.testing.assert_allclose(once, 1 + (X / 2).cumsum(1), rtol=1e-5)
    np.testing.assert_allclose(twice, 2 * once)
    np.testing.assert_allclose(last, once[:, -1])


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_both_directions(evaluate: Evaluate, lengths: Any) -> None:
    x = tf.placeholder(tf.float32, [None, 5, 2])
    forward, backward = cells.GRUCell(3), cells.BasicLSTMCell(4)
    found, states = tf.nn.bidirectional_dynamic_rnn(forward, backward, x, lengths, dtype=tf.float32)
    names = [v.op.name for v in tf.trainable_variables()]
    assert names[0] == "bidirectional_rnn/fw/gru_cell/gates/kernel"
    assert names[-1] == "bidirectional_rnn/bw/basic_lstm_cell/bias"
    turned = X.copy()
    for row, length in enumerate(lengths or [5] * 3):
        turned[row, :length] = X[row, :length][::-1]
    with tf.variable_scope("bidirectional_rnn", reuse=True):
        options = {"dtype": tf.float32, "scope": "bw"}
        there, last = tf.nn.dynamic_rnn(backward, tf.constant(turned), lengths, **options)
    back, other, ends = evaluate([found[1], there, [states[1].h, last.h]], feeds=[{x: X}])
    np.testing.assert_allclose(*ends, rtol=1e-5)
    for row, length in enumerate(lengths or [5] * 3):
        np.testing.assert_allclose(back[row, :length], other[row, :length][::-1], rtol=1e-5)


def test_names_of_variables() -> None:
    x = tf.constant(X)
    tf.nn.dynamic_rnn(cells.MultiRNNCell([cells.BasicLSTMCell(2)]), x, dtype=tf.float32)
    tf.nn.dynamic_rnn(cells.GRUCell(2), x, dtype=tf.float32, scope="decoder")
    with tf.variable_scope("model"):
        tf.nn.static_rnn(cells.LSTMCell(2), [x[:, 0], x[:, 1]], dtype=tf.float32)
    assert [v.op.name for v in tf.global_variables()] == [
        "rnn/multi_rnn_cell/cell_0/basic_lstm_cell/kernel",
        "rnn/multi_rnn_cell/cell_0/basic_lstm_cell/bias",
        "decoder/gru_cell/gates/kernel",
        "decoder/gru_cell/gates/bias",
        "decoder/gru_cell/candidate/kernel",
        "decoder/gru_cell/candidate/bias",
        "model/rnn/lstm_cell/kernel",
        "model/rnn/lstm_cell/bias",
    ]


def test_a_cell_of_the_old_kind(evaluate: Evaluate) -> None:
    class Old(cells.RNNCell):
        def __init__(self, size: int) -> None:
            self._size = size

        @property
        def state_size(self) -> int:
            return self._size

        output_size = state_size

        def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
            with tf.variable_scope(scope or type(self).__name__):
                w = tf.get_variable("w", [2, self._size])
            state = tf.tanh(tf.matmul(inputs, w) + state)
            return state, state

    x = tf.constant(X)
    check_alike(evaluate, both(Old(3), x), x, {})
    assert [v.op.name for v in tf.global_variables()] == ["rnn/Old/w"]


def test_second_derivatives(evaluate: Evaluate) -> None:
    x = tf.constant(X)
    results = both(cells.GRUCell(2), x, sequence_length=LENGTHS)
    grads = [tf.gradients(tf.reduce_sum(outputs**2), x)[0] for outputs, _ in results]
    check_alike(evaluate, grads, x, {})


def test_training_an_lstm_lowers_the_loss(evaluate: Evaluate) -> None:
    tf.set_random_seed(1)
    cell = cells.DropoutWrapper(cells.BasicLSTMCell(8), output_keep_prob=0.9)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(X), LENGTHS, dtype=tf.float32)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(outputs, 1) - 0.5))
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tf.trainable_variables()), 1.0)
    train = tf.train.AdamOptimizer(0.05).apply_gradients(
        zip(grads, tf.trainable_variables(), strict=True)
    )
    first = evaluate(loss)
    assert evaluate(*[train] * 30, loss) < first / 4


def test_refusals() -> None:
    wrong: Any = 3
    cell, x = cells.GRUCell(2), tf.constant(X)
    vague = tf.placeholder(tf.float32, [2, 3, None])
    refused: list[tuple[Any, Any, str]] = [
        (TypeError, lambda: tf.nn.dynamic_rnn(wrong, x, dtype=tf.float32), "is not an RNNCell"),
        (ValueError, lambda: tf.nn.dynamic_rnn(cell, x), "you must give a dtype"),
        (ValueError, lambda: tf.nn.dynamic_rnn(cell, vague, dtype=tf.float32), "depth of inputs"),
        (ValueError, lambda: tf.nn.dynamic_rnn(cell, x[0, 0], dtype=tf.float32), "rank 2 or more"),
        (ValueError, lambda: tf.nn.dynamic_rnn(cell, x, [[1]], dtype=tf.float32), "must be a vector"),
        (TypeError, lambda: tf.nn.static_rnn(cell, x, dtype=tf.float32), "must be a sequence"),
        (ValueError, lambda: tf.nn.static_rnn(cell, [], dtype=tf.float32), "must not be empty"),
        (AttributeError, lambda: tf.nn.raw_rnn, "dynamic_rnn"),
        (AttributeError, lambda: tf.nn.seq2seq, "dynamic_rnn"),
    ]
    for error, call, text in refused:
        with pytest.raises(error, match=text):
            call()


def test_another_number_of_lengths_than_sequences(evaluate: Evaluate) -> None:
    lengths = tf.placeholder(tf.int32, [None])
    outputs, _ = tf.nn.dynamic_rnn(cells.GRUCell(2), tf.constant(X), lengths, dtype=tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected shape for Tensor"):
        evaluate(outputs, feeds=[{lengths: [1, 2]}])
