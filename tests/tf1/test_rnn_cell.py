"""The cells of recurrent networks: values against numpy, names of variables, states, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

Evaluate = Callable[..., Any]

cells = tf.nn.rnn_cell
RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 3)).astype("f")
pytestmark = pytest.mark.usefixtures("graph")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def step(evaluate: Evaluate, cell: Any, state: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Run a cell on X; return its output, its new state, and its variables by name."""
    output, after = cell(tf.constant(X), state)
    assert output.shape.as_list() == [2, cell.output_size]
    names = [v.op.name for v in tf.global_variables()]
    got = evaluate([output, after, [v.value() for v in tf.global_variables()]])
    return got[0], got[1], dict(zip(names, got[2], strict=True))


@pytest.mark.parametrize("kind", ["BasicRNNCell", "BasicLSTMCell", "GRUCell", "LSTMCell"])
def test_a_cell_may_be_built_by_hand(kind: str) -> None:
    cell = getattr(cells, kind)(4)
    cell.build(tf.TensorShape([None, 3]))
    built = [v.op.name for v in tf.global_variables()]
    cell(tf.constant(X), cell.zero_state(2, tf.float32))
    assert [v.op.name for v in tf.global_variables()] == built == [v.op.name for v in cell.variables]
    assert all(name.startswith(cell.scope_name + "/") for name in built)


def state_of(*sizes: int) -> list[Any]:
    return [RNG.standard_normal((2, size)).astype("f") for size in sizes]


def lstm(x: Any, c: Any, h: Any, kernel: Any, bias: Any, forget: float = 1.0) -> tuple[Any, Any]:
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, 1)
    c = sigmoid(f + forget) * c + sigmoid(i) * np.tanh(j)
    return c, sigmoid(o) * np.tanh(c)


def test_basic_rnn_cell(evaluate: Evaluate) -> None:
    (h,) = state_of(4)
    output, after, v = step(evaluate, cells.BasicRNNCell(4), tf.constant(h))
    assert list(v) == ["basic_rnn_cell/kernel", "basic_rnn_cell/bias"]
    expected = np.tanh(np.concatenate([X, h], 1) @ v["basic_rnn_cell/kernel"])
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(output, after)


def test_gru_cell(evaluate: Evaluate) -> None:
    (h,) = state_of(4)
    output, after, v = step(evaluate, cells.GRUCell(4, name="g"), tf.constant(h))
    assert list(v) == ["g/gates/kernel", "g/gates/bias", "g/candidate/kernel", "g/candidate/bias"]
    assert v["g/gates/bias"].tolist() == [1] * 8
    r, u = np.split(sigmoid(np.concatenate([X, h], 1) @ v["g/gates/kernel"] + 1), 2, 1)
    c = np.tanh(np.concatenate([X, r * h], 1) @ v["g/candidate/kernel"])
    np.testing.assert_allclose(output, u * h + (1 - u) * c, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(output, after)


@pytest.mark.parametrize("forget", [1.0, 0.0])
def test_basic_lstm_cell(evaluate: Evaluate, forget: float) -> None:
    c, h = state_of(4, 4)
    cell = cells.BasicLSTMCell(4, forget_bias=forget)
    assert cell.state_size == cells.LSTMStateTuple(4, 4)
    state = cells.LSTMStateTuple(tf.constant(c), tf.constant(h))
    output, after, v = step(evaluate, cell, state)
    assert list(v) == ["basic_lstm_cell/kernel", "basic_lstm_cell/bias"]
    expected = lstm(X, c, h, *v.values(), forget)
    np.testing.assert_allclose(after.c, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(output, expected[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(output, after.h)
    assert cell.trainable_variables == tf.trainable_variables()
    assert state.dtype == tf.float32


def test_a_state_that_is_no_tuple(evaluate: Evaluate) -> None:
    c, h = state_of(4, 4)
    cell = cells.BasicLSTMCell(4, state_is_tuple=False)
    assert cell.state_size == 8
    output, after, v = step(evaluate, cell, tf.constant(np.concatenate([c, h], 1)))
    expected = lstm(X, c, h, *v.values())
    np.testing.assert_allclose(after, np.concatenate(expected, 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(output, expected[1], rtol=1e-5, atol=1e-6)


def test_lstm_cell_with_peepholes_clipping_and_projection(evaluate: Evaluate) -> None:
    c, h = state_of(4, 2)
    start = tf.random_uniform_initializer(-1, 1, seed=1)
    cell = cells.LSTMCell(
        4, use_peepholes=True, cell_clip=0.6, initializer=start, num_proj=2, proj_clip=0.4
    )
    assert (cell.state_size, cell.output_size) == (cells.LSTMStateTuple(4, 2), 2)
    output, after, v = step(evaluate, cell, (tf.constant(c), tf.constant(h)))
    names = ["kernel", "bias", "w_f_diag", "w_i_diag", "w_o_diag", "projection/kernel"]
    assert list(v) == [f"lstm_cell/{name}" for name in names]
    kernel, bias, of_f, of_i, of_o, projection = v.values()
    i, j, f, o = np.split(np.concatenate([X, h], 1) @ kernel + bias, 4, 1)
    c = sigmoid(f + 1 + of_f * c) * c + sigmoid(i + of_i * c) * np.tanh(j)
    c = np.clip(c, -0.6, 0.6)
    expected = np.clip((sigmoid(o + of_o * c) * np.tanh(c)) @ projection, -0.4, 0.4)
    np.testing.assert_allclose(after.c, c, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


def test_multi_rnn_cell_puts_cells_on_top_of_each_other(evaluate: Evaluate) -> None:
    cell = cells.MultiRNNCell([cells.BasicLSTMCell(4), cells.BasicRNNCell(2)])
    assert (cell.state_size, cell.output_size) == ((cells.LSTMStateTuple(4, 4), 2), 2)
    (c, h, below) = state_of(4, 4, 2)
    state = (cells.LSTMStateTuple(tf.constant(c), tf.constant(h)), tf.constant(below))
    output, after, v = step(evaluate, cell, state)
    prefix = "multi_rnn_cell/cell_"
    names = ["0/basic_lstm_cell/kernel", "0/basic_lstm_cell/bias"]
    names += ["1/basic_rnn_cell/kernel", "1/basic_rnn_cell/bias"]
    assert list(v) == [prefix + name for name in names]
    values = list(v.values())
    expected = lstm(X, c, h, *values[:2])
    np.testing.assert_allclose(after[0].c, expected[0], rtol=1e-5, atol=1e-6)
    top = np.tanh(np.concatenate([expected[1], below], 1) @ values[2])
    np.testing.assert_allclose(output, top, rtol=1e-5, atol=1e-6)
    assert cell.variables == tf.global_variables()


def test_multi_rnn_cell_with_states_side_by_side(evaluate: Evaluate) -> None:
    cell = cells.MultiRNNCell([cells.GRUCell(4), cells.GRUCell(2)], state_is_tuple=False)
    assert cell.state_size == 6
    state = np.concatenate(state_of(4, 2), 1)
    output, after, _ = step(evaluate, cell, tf.constant(state))
    assert after.shape == (2, 6)
    np.testing.assert_array_equal(output, after[:, 4:])


class Echo(cells.RNNCell):
    """Returns its input."""

    @property
    def state_size(self) -> Any:
        return cells.LSTMStateTuple(50, 50)

    @property
    def output_size(self) -> int:
        return 50

    def call(self, inputs: Any, state: Any) -> Any:
        return inputs + 0.0, cells.LSTMStateTuple(state.c + 0.0, state.h + 0.0)


def test_dropout_scales_what_it_keeps_but_not_the_memory(evaluate: Evaluate) -> None:
    ones = tf.ones([4, 50])
    cell = cells.DropoutWrapper(Echo(), output_keep_prob=0.5, state_keep_prob=tf.constant(0.25), seed=7)
    output, after = evaluate(cell(ones, cells.LSTMStateTuple(ones, ones)))
    assert set(output.ravel().tolist()) == {0.0, 2.0}
    assert set(after.h.ravel().tolist()) == {0.0, 4.0}
    assert after.c.tolist() == np.ones((4, 50)).tolist()
    every = cells.DropoutWrapper(
        Echo(), 0.5, state_keep_prob=0.5, dropout_state_filter_visitor=lambda _: True, seed=7
    )
    output, after = evaluate(every(ones, cells.LSTMStateTuple(ones, ones)))
    assert {x for part in (output, *after) for x in part.ravel().tolist()} == {0.0, 2.0}
    assert not np.array_equal(after.c, after.h)


def test_variational_dropout_drops_the_same_at_each_step(evaluate: Evaluate) -> None:
    cell = cells.DropoutWrapper(
        Echo(), 0.5, 0.5, 0.5, variational_recurrent=True, input_size=50, dtype=tf.float32
    )
    ones = tf.ones([4, 50])
    first, second = evaluate([cell(ones, cells.LSTMStateTuple(ones, ones)) for _ in range(2)])
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1].h, second[1].h)
    assert set(first[0].ravel().tolist()) == {0.0, 4.0}
    assert (first[0] == first[0][:1]).all()  # the same in each row


class Decay(cells.RNNCell):
    """A cell that makes its variables as it goes."""

    @property
    def state_size(self) -> Any:
        return (3, tf.TensorShape([2, 2]))

    @property
    def output_size(self) -> int:
        return 5

    def call(self, inputs: Any, state: Any) -> Any:
        rate = tf.get_variable("rate", [3], initializer=tf.ones_initializer())
        new = state[0] * rate + inputs
        return tf.layers.dense(new, 5, name="out"), (new, state[1] + 1.0)


def test_a_cell_of_ones_own_shares_its_variables(evaluate: Evaluate) -> None:
    cell = Decay(name="mine")
    state = cell.zero_state(tf.constant(2), tf.float32)
    assert state[1].shape.as_list() == [2, 2, 2]
    x = tf.constant(X)
    _, state = cell(x, state)
    _, state = cell(x, state)
    assert [v.op.name for v in tf.global_variables()] == [
        "mine/rate",
        "mine/out/kernel",
        "mine/out/bias",
    ]
    assert cell.trainable_variables == tf.global_variables()
    sums, counts = evaluate(state)
    np.testing.assert_allclose(sums, 2 * X)
    assert counts.tolist() == np.full((2, 2, 2), 2).tolist()


def test_scopes_of_cells() -> None:
    x = tf.constant(X)
    for _ in range(2):
        cell = cells.BasicRNNCell(2)
        cell(x, cell.zero_state(2, tf.float32))
        cell(x, cell.zero_state(2, tf.float32))
    with tf.variable_scope("outer"):
        cells.GRUCell(2)(x, tf.zeros([2, 2]), scope="given")
    again = cells.BasicRNNCell(2, reuse=True, name="basic_rnn_cell")
    again(x, tf.zeros([2, 2]))
    names = ["basic_rnn_cell", "basic_rnn_cell_1", "outer/given/gates", "outer/given/candidate"]
    assert [v.op.name for v in tf.global_variables()] == [
        f"{name}/{part}" for name in names for part in ("kernel", "bias")
    ]


def test_zero_states() -> None:
    cell = cells.MultiRNNCell([cells.LSTMCell(4, num_proj=2), cells.GRUCell(3)])
    state = cell.zero_state(5, tf.float64)
    assert [x.shape.as_list() for x in (*state[0], state[1])] == [[5, 4], [5, 2], [5, 3]]
    assert {x.dtype.name for x in (*state[0], state[1])} == {"float64"}


def test_refusals() -> None:
    wrong: Any = 3
    gru, lstm_cell, vague = cells.GRUCell(3), cells.LSTMCell(3), tf.placeholder(tf.float32, [2, None])
    refused: list[tuple[Any, Any, str]] = [
        (ValueError, lambda: cells.MultiRNNCell([]), "at least one cell"),
        (TypeError, lambda: cells.MultiRNNCell(wrong), "must be a list or tuple"),
        (
            ValueError,
            lambda: cells.MultiRNNCell([lstm_cell], False),
            "state_is_tuple is not set",
        ),
        (TypeError, lambda: cells.DropoutWrapper(wrong), "not a RNNCell"),
        (ValueError, lambda: cells.DropoutWrapper(gru, 1.5), "must be between 0 and 1"),
        (ValueError, lambda: cells.DropoutWrapper(gru, variational_recurrent=True), "dtype must be"),
        (
            ValueError,
            lambda: cells.DropoutWrapper(gru, 0.5, variational_recurrent=True, dtype=tf.float32),
            "input_size must be",
        ),
        (ValueError, lambda: cells.GRUCell(3, activation="nothing"), "Unknown activation"),
        (
            ValueError,
            lambda: gru(vague, tf.zeros([2, 3])),
            "to be known",
        ),
        (NotImplementedError, lambda: cells.RNNCell().state_size, "has no state_size"),
    ]
    for error, call, text in refused:
        with pytest.raises(error, match=text):
            call()


@pytest.mark.asyncio
async def test_kernels_in_parts() -> None:
    x = tf.ones([2, 3, 6])
    cell = cells.LSTMCell(5, use_peepholes=True, num_unit_shards=3, num_proj=4, num_proj_shards=2)
    with tf.variable_scope("shards"):
        first, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    with tf.variable_scope("scope", partitioner=tf.fixed_size_partitioner(2)):
        second, _ = tf.nn.dynamic_rnn(cells.GRUCell(4), x, dtype=tf.float32)
    names = [v.op.name.removesuffix("/part_0") for v in tf.trainable_variables()]
    lstm, gru = "shards/rnn/lstm_cell", "scope/rnn/gru_cell"
    assert [name for name in names if "part" not in name] == [
        f"{lstm}/kernel", f"{lstm}/bias", f"{lstm}/w_f_diag", f"{lstm}/w_i_diag", f"{lstm}/w_o_diag",
        f"{lstm}/projection/kernel", f"{gru}/gates/kernel", f"{gru}/gates/bias",
        f"{gru}/candidate/kernel", f"{gru}/candidate/bias",
    ]  # fmt: skip
    step = tf.train.AdamOptimizer().minimize(tf.reduce_sum(first) + tf.reduce_sum(second))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        before = await sess.run(first)
        await sess.run(step)
        assert (await sess.run(first) != before).all()


def test_a_block_cell_is_an_lstm_cell_with_the_names_of_the_fused_one(evaluate: Evaluate) -> None:
    block = tf.contrib.rnn.LSTMBlockCell(4, forget_bias=0.5, cell_clip=-1, use_peephole=True)
    plain = cells.LSTMCell(4, True, forget_bias=0.5, name="plain")
    state = tf.nn.rnn_cell.LSTMStateTuple(*state_of(4, 4))
    with tf.variable_scope("rnn", initializer=tf.constant_initializer(0.1)):
        found, same = block(tf.constant(X), state), plain(tf.constant(X), state)
    assert tf.trainable_variables()[0].op.name == "rnn/lstm_cell/kernel"
    np.testing.assert_array_equal(*evaluate([found[0], same[0]]))


def test_a_residual_wrapper_combines_inputs_and_outputs(evaluate: Evaluate) -> None:
    inner = cells.BasicRNNCell(3)
    wrapper = cells.ResidualWrapper(inner, residual_fn=lambda x, y: y - x)
    assert (wrapper.state_size, wrapper.output_size, wrapper.wrapped_cell) == (3, 3, inner)
    output, state = wrapper(tf.constant(X), wrapper.zero_state(2, tf.float32))
    found, plain, default = evaluate(
        [output, state, cells.ResidualWrapper(inner)(tf.constant(X), tf.zeros([2, 3]))[0]]
    )
    np.testing.assert_allclose(found, plain - X, rtol=1e-6)
    np.testing.assert_allclose(default, plain + X, rtol=1e-6)
    with pytest.raises(TypeError, match="is not a RNNCell: 3"):
        cells.ResidualWrapper(3)
