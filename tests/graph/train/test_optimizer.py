"""What all optimizers share: finding variables, checking, naming, slots, the global step."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.core.op import table
from asyncmon.graph.ops.families import update_op

train = tf.train


def _descent(**options: Any) -> Any:
    return train.GradientDescentOptimizer(0.5, **options)


def test_minimize_changes_the_trainable_variables_and_counts_the_step(ops: Any) -> None:
    w = tf.Variable([2.0, 4.0], name="w")
    fixed = tf.Variable([1.0, 1.0], name="fixed", trainable=False)
    step = tf.get_or_create_global_step()
    op = _descent().minimize(tf.reduce_sum(w * fixed), global_step=step)
    assert op.name == "GradientDescent"
    assert tf.get_collection(tf.GraphKeys.TRAIN_OP) == [op]
    with tf.control_dependencies([op]):
        after = [v.read_value() for v in (w, fixed, step)]
    first, second, count = ops.evaluate(after)
    assert first.tolist() == [1.5, 3.5]
    assert second.tolist() == [1, 1]
    assert count == 1


def test_the_loss_may_be_a_function_and_the_variables_a_choice(ops: Any) -> None:
    a, b = tf.Variable(1.0, name="a"), tf.Variable(1.0, name="b")
    op = _descent().minimize(lambda: a * b, var_list=[a], name="half")
    assert op.name == "half"
    with tf.control_dependencies([op]):
        after = [a.read_value(), b.read_value()]
    assert ops.evaluate(after) == [0.5, 1.0]


def test_gradients_can_be_changed_on_the_way(ops: Any) -> None:
    w = tf.Variable([3.0, 4.0], name="w")
    optimizer = _descent()
    pairs = optimizer.compute_gradients(tf.reduce_sum(w * w) / 2, grad_loss=tf.constant(2.0))
    (grad, variable), *_ = pairs
    assert variable is w
    clipped, norm = tf.clip_by_global_norm([grad], 5.0)
    op = optimizer.apply_gradients([(clipped[0], w)])
    with tf.control_dependencies([op]):
        after = w.read_value()
    value, found = ops.evaluate([after, norm])
    assert found == 10
    np.testing.assert_allclose(value, [1.5, 2.0])


def test_gradients_by_tensors_are_computed_too() -> None:
    x = tf.constant([1.0])
    pairs = _descent().compute_gradients(tf.reduce_sum(x * 2), var_list=[x])
    assert pairs[0][1] is x
    with pytest.raises(TypeError, match=r"Variable must be a tf\.Variable"):
        _descent().apply_gradients(pairs)


def test_updates_have_names_of_their_variables() -> None:
    w = tf.Variable([1.0], name="dense/kernel")
    _descent().minimize(tf.reduce_sum(w))
    graph = tf.get_default_graph()
    name = "GradientDescent/update_dense/kernel/ApplyGradientDescent"
    assert graph.get_operation_by_name(name)
    assert graph.get_tensor_by_name("GradientDescent/learning_rate:0").dtype is tf.float32


def test_slots_follow_the_variable_scope() -> None:
    with tf.variable_scope("outer"):
        w = tf.get_variable("w", [2])
        optimizer = train.MomentumOptimizer(0.1, 0.9)
        optimizer.minimize(tf.reduce_sum(w))
    slot = optimizer.get_slot(w, "momentum")
    assert slot is not None
    assert slot.op.name == "outer/outer/w/Momentum"
    assert optimizer.get_slot(w, "other") is None
    assert slot not in tf.trainable_variables()
    assert slot in tf.global_variables()
    assert optimizer.get_name() == "Momentum"


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [(train.MomentumOptimizer(0.1, 0.9), 0.9), (train.AdagradOptimizer(0.1, 1.0), 1 - 0.1 / 2**0.5)],
)
def test_slots_of_an_unknown_shape(ops: Any, optimizer: Any, expected: float) -> None:
    w = tf.Variable([1.0], validate_shape=False, name="w")
    op = optimizer.apply_gradients([(tf.ones([1]), w)])
    with tf.control_dependencies([op]):
        after = w.read_value()
    np.testing.assert_allclose(ops.evaluate(after), [expected], rtol=1e-6)


def test_sparse_gradients_of_unknown_shape(ops: Any) -> None:
    w = tf.Variable(np.ones((3, 2)), name="w")
    values = tf.placeholder_with_default(np.ones((2, 2)), None)
    grad = tf.IndexedSlices(values, tf.constant([0, 0]), tf.constant([3, 2]))
    op = train.MomentumOptimizer(0.5, 0.9).apply_gradients([(grad, w)])
    with tf.control_dependencies([op]):
        after = w.read_value()
    assert ops.evaluate(after).tolist() == [[0, 0], [1, 1], [1, 1]]


def test_slots_are_made_once() -> None:
    w = tf.Variable([1.0], name="w")
    optimizer = train.MomentumOptimizer(0.1, 0.9)
    optimizer.minimize(tf.reduce_sum(w))
    optimizer.minimize(tf.reduce_sum(w * w))
    assert len(tf.global_variables()) == 2


def test_slots_are_not_initialised_by_what_the_step_depends_on(ops: Any) -> None:
    count = tf.Variable(0, trainable=False, name="count")
    w = tf.Variable([1.0], name="w")
    with tf.control_dependencies([count.assign_add(1)]):
        train.AdamOptimizer().minimize(tf.reduce_sum(w))
    assert ops.evaluate(count) == 0


def test_learning_rates_may_change_with_the_step() -> None:
    async def run() -> list[Any]:
        w = tf.Variable(0.0, name="w")
        step = tf.get_or_create_global_step()
        rate = train.piecewise_constant(step, [0, 1], [1.0, 10.0, 100.0])
        op = train.GradientDescentOptimizer(rate).minimize(-w, global_step=step)
        values = []
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            for _ in range(3):
                await sess.run(op)
                values.append(float(await sess.run(w)))
        return values

    with tf.Graph().as_default():
        assert asyncio.run(run()) == [1, 11, 111]


def test_gradients_of_none_leave_their_variables_alone(ops: Any) -> None:
    a, b = tf.Variable(1.0, name="a"), tf.Variable(1.0, name="b")
    op = _descent().apply_gradients([(tf.constant(1.0), a), (None, b)])
    with tf.control_dependencies([op]):
        after = [a.read_value(), b.read_value()]
    assert ops.evaluate(after) == [0.5, 1.0]


def test_a_row_out_of_range_changes_nothing() -> None:
    async def run() -> None:
        table = tf.Variable(np.ones((3, 2)), name="table")
        at = tf.placeholder(tf.int32, [None])
        grad = tf.IndexedSlices(tf.ones([1, 2], tf.float64), at, tf.constant([3, 2]))
        op = _descent().apply_gradients([(grad, table)])
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            with pytest.raises(
                errors.InvalidArgumentError, match=r"indices\[0\] = 3 is not in \[0, 3\)"
            ):
                await sess.run(op, {at: [3]})
            assert (await sess.run(table) == 1).all()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: _descent().minimize(tf.constant(1.0)), ValueError, "No variables to optimize"),
        (
            lambda: _descent().minimize(tf.constant(1.0), var_list=[tf.Variable(1.0)]),
            ValueError,
            "No gradients provided for any variable, check your graph",
        ),
        (lambda: _descent().apply_gradients([]), ValueError, "No variables provided"),
        (
            lambda: _descent().apply_gradients([(None, tf.Variable(1.0))]),
            ValueError,
            "No gradients provided for any variable: ",
        ),
        (
            lambda: _descent().apply_gradients([("a", tf.Variable(1.0))]),
            TypeError,
            "Gradient must be convertible to a Tensor or IndexedSlices, or None: 'a'",
        ),
        (
            lambda: _descent().compute_gradients(tf.constant(1), var_list=[tf.Variable(1.0)]),
            ValueError,
            "Invalid type am.graph.int32",
        ),
        (
            lambda: _descent().compute_gradients(tf.constant(1.0), gate_gradients=7),
            ValueError,
            "gate_gradients must be one of",
        ),
        (
            lambda: _descent().compute_gradients(tf.constant(1.0), var_list=["w"]),
            TypeError,
            "Argument is not a variable or a tensor: 'w'",
        ),
        (lambda: _descent(name=""), ValueError, "Must specify the optimizer name"),
    ],
)
def test_what_is_refused(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_gradient_may_be_an_array() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    step = _descent().apply_gradients([(np.array([1.0, 1.0]), w)])
    assert step.type == "NoOp"


def test_the_global_step_is_found_here_too() -> None:
    assert tf.train.get_or_create_global_step() is tf.train.get_global_step() is tf.get_global_step()


def test_gradients_must_have_the_dtype_and_shape_of_the_variable() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    with pytest.raises(TypeError, match="Expected float32, the variable's dtype, got float64"):
        _descent().apply_gradients([(tf.constant([1.0, 2.0], tf.float64), w)])
    with pytest.raises(ValueError, match="must be equal"):
        _descent().apply_gradients([(tf.constant([1.0, 2.0, 3.0]), w)])


@pytest.fixture
def signs() -> Iterator[type[tf.train.Optimizer]]:
    """Provide an optimizer with steps of one length, and the sum of all signs in the slot ``seen``."""

    def update(var: Any, seen: Any, rate: Any, grad: Any) -> None:
        seen += np.sign(grad)
        var -= rate * np.sign(grad)

    class SignOptimizer(train.Optimizer):
        def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "Sign") -> None:
            super().__init__(use_locking, name, "Sign", {"seen": 10.0}, learning_rate=learning_rate)

    update_op("Sign", update, refs=2)
    yield SignOptimizer
    del table["ApplySign"], table["SparseApplySign"]


@pytest.mark.parametrize("sparse", [False, True])
def test_an_optimizer_is_an_update_and_a_constructor(signs: Any, ops: Any, sparse: bool) -> None:
    w = tf.Variable([1.0, 1.0, 1.0], name="w")
    optimizer = signs(lambda: 0.5)
    grad: Any = tf.constant([-3.0, 0.0, 4.0])
    if sparse:
        grad = tf.IndexedSlices(tf.constant([-4.0, 4.0, 1.0]), tf.constant([0, 2, 0]))
    step = optimizer.apply_gradients([(grad, w)])
    with tf.control_dependencies([step]):
        after = [w.read_value(), optimizer.get_slot(w, "seen").read_value()]
    value, seen = ops.evaluate(after)
    assert value.tolist() == [1.5, 1, 0.5]
    assert seen.tolist() == [9, 10, 11]
    assert step.name == "Sign"


def test_an_optimizer_may_build_its_updates_itself(ops: Any) -> None:
    class Halving(train.Optimizer):
        def __init__(self) -> None:
            super().__init__(False, "Halving")

        def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Tensor:
            return tf.assign_sub(var, grad / 2)

    w = tf.Variable([2.0], name="w")
    with tf.control_dependencies([Halving().minimize(tf.reduce_sum(w * w))]):
        after = w.read_value()
    assert ops.evaluate(after).tolist() == [0]


def test_an_optimizer_written_for_tf1_works_as_it_is(ops: Any) -> None:
    class Heavy(train.Optimizer):
        def __init__(self, rate: Any = 0.5, use_locking: bool = False, name: str = "Heavy") -> None:
            super().__init__(use_locking, name)
            self._rate = rate

        def _create_slots(self, var_list: Any) -> None:
            for v in var_list:
                self._zeros_slot(v, "m", self._name)
                self._get_or_make_slot(v, 2 * tf.ones_like(v), "v", "other")

        def _prepare(self) -> None:
            self._rate_tensor = tf.convert_to_tensor(self._call_if_callable(self._rate))

        def _apply_dense(self, grad: Any, var: Any) -> Any:
            m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
            assert m is not None
            assert v is not None
            moved = m.assign(0.5 * m + grad)
            return tf.group(moved, tf.assign_sub(var, self._rate_tensor * moved / v))

        def _apply_sparse(self, grad: Any, var: Any) -> Any:
            return self._apply_dense(tf.convert_to_tensor(grad), var)

    w, table = tf.Variable([2.0], name="w"), tf.Variable([[1.0], [2.0]], name="table")
    optimizer = Heavy(lambda: 0.5)
    step = optimizer.minimize(tf.reduce_sum(w * w) + tf.reduce_sum(tf.gather(table, [1, 1])))
    assert optimizer.get_slot_names() == ["m", "v"]
    slots = [optimizer.get_slot(w, slot) for slot in ("m", "v")]
    assert [slot.op.name for slot in slots if slot is not None] == ["w/Heavy", "w/other"]
    with tf.control_dependencies([step]):
        after = [w.read_value(), table.read_value()]
    assert [value.tolist() for value in ops.evaluate(after)] == [[1.0], [[1.0], [1.5]]]


def test_every_optimizer_is_held_to_its_formula() -> None:
    """Some test of this folder checks the steps of each, of dense and of sparse gradients."""
    files = Path(__file__).parent.glob("test_*.py")
    tests = [test for file in files for test in file.read_text().split("\ndef test_")]
    checked = " ".join(test for test in tests if "steps.check(" in test)
    for name in train.__all__:
        found = getattr(train, name)
        if inspect.isclass(found) and issubclass(found, train.Optimizer) and name != "Optimizer":
            assert f"{name}(" in checked, f"{name} has no test against a closed form"


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [3, 200_000])
@pytest.mark.parametrize("fed", [(2,), (1,), (3, 1)])
@pytest.mark.parametrize("variables", [1, 2])
async def test_a_gradient_of_another_shape_is_refused_and_changes_nothing(
    size: int, fed: tuple[int, ...], variables: int
) -> None:
    gradients = [tf.placeholder(tf.float32) for _ in range(variables)]
    pairs = [(g, tf.Variable(np.zeros(size, np.float32))) for g in gradients]
    steps = tf.Variable(0, trainable=False)
    op = tf.train.AdamOptimizer(0.1).apply_gradients(pairs, global_step=steps)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        right = {g: np.ones(size, np.float32) for g in gradients}
        with pytest.raises(errors.InvalidArgumentError, match=r"must be equal.*Adam"):
            await sess.run(op, {**right, gradients[-1]: np.ones(fed, np.float32)})
        assert await sess.run(steps) == 0
        await sess.run(op, right)
        for _, variable in pairs:
            np.testing.assert_allclose(await sess.run(variable), np.full(size, -0.1), rtol=1e-5)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1000, 50_000, 400_000])
@pytest.mark.parametrize("fed", [1, 900, 40_000, 60_000])
async def test_an_update_is_checked_against_the_value_of_a_variable_of_unknown_shape(
    size: int, fed: int
) -> None:
    start = tf.placeholder(tf.float32)
    variable = tf.Variable(start, validate_shape=False)
    gradient = tf.placeholder(tf.float32, [fed])
    op = _descent().apply_gradients([(gradient, variable)])
    async with tf.Session() as sess:
        await sess.run(variable.initializer, {start: np.zeros(size)})
        with pytest.raises(errors.InvalidArgumentError, match="must be equal"):
            await sess.run(op, {gradient: np.ones(fed)})
        np.testing.assert_array_equal(await sess.run(variable), np.zeros(size))


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1000, 50_000])
@pytest.mark.parametrize("fed", [(1,), (40_000,), (60_000,), (1, 1)])
async def test_an_update_whose_result_is_used_is_checked_too(size: int, fed: tuple[int, ...]) -> None:
    gradient = tf.placeholder(tf.float32)
    variable = tf.Variable(np.zeros(size, np.float32))
    op = _descent().apply_gradients([(gradient, variable)])
    with tf.control_dependencies([op]):
        after = variable.read_value()
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        with pytest.raises(errors.InvalidArgumentError, match="must be equal"):
            await sess.run(after, {gradient: np.ones(fed)})
        np.testing.assert_array_equal(await sess.run(variable), np.zeros(size))
        np.testing.assert_array_equal(
            await sess.run(after, {gradient: np.ones(size)}), np.full(size, -0.5)
        )


SPARSE = [
    _descent,
    lambda: train.MomentumOptimizer(0.5, 0.9),
    lambda: train.AdagradOptimizer(0.5),
    lambda: train.RMSPropOptimizer(0.5),
    lambda: train.RMSPropOptimizer(0.5, centered=True),
    lambda: train.AdamOptimizer(0.5),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("make", SPARSE)
@pytest.mark.parametrize("fed", [(900, 1), (900, 39), (900, 41), (1, 40)])
async def test_rows_of_another_length_are_refused(make: Any, fed: tuple[int, ...]) -> None:
    rows, indices = tf.placeholder(tf.float32), tf.placeholder(tf.int64, [None])
    table = tf.Variable(np.zeros((1000, 40), np.float32))
    op = make().apply_gradients([(tf.IndexedSlices(rows, indices), table)])
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        with pytest.raises(errors.InvalidArgumentError):
            await sess.run(op, {rows: np.ones(fed), indices: np.arange(900)})
        np.testing.assert_array_equal(await sess.run(table), np.zeros((1000, 40)))
        await sess.run(op, {rows: np.ones((900, 40)), indices: np.arange(900)})
        moved = (await sess.run(table)).any(axis=1)
        np.testing.assert_array_equal(moved, np.arange(1000) < 900)


def test_a_scalar_is_no_gradient_of_a_vector_and_a_vector_no_rate() -> None:
    variable = tf.Variable(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="equal rank, but are 1 and 0"):
        _descent().apply_gradients([(tf.constant(1.0), variable)])
    with pytest.raises(ValueError, match="rank 0 but is rank 1"):
        train.GradientDescentOptimizer(tf.ones([3])).apply_gradients([(tf.ones([3]), variable)])


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1000, 40_000])
async def test_a_rate_of_unknown_shape_is_fed_a_number(size: int) -> None:
    rate = tf.placeholder(tf.float32)
    variable = tf.Variable(np.zeros(size, np.float32))
    op = train.GradientDescentOptimizer(rate).apply_gradients([(tf.ones([size]), variable)])
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        with pytest.raises(errors.InvalidArgumentError, match="rank 0 but is rank 1"):
            await sess.run(op, {rate: np.ones(size)})
        await sess.run(op, {rate: 0.5})
        np.testing.assert_array_equal(await sess.run(variable), np.full(size, -0.5))


def test_an_optimizer_of_two_graphs_keeps_their_variables_apart() -> None:
    optimizer = tf.train.AdamOptimizer(0.1)
    made = []
    for _ in range(2):
        with tf.Graph().as_default():
            assert optimizer.variables() == []
            v = tf.Variable(1.0, name="v")
            optimizer.minimize(v * v)
            made.append(optimizer.variables())
            names = ["beta1_power:0", "beta2_power:0", "v/Adam:0", "v/Adam_1:0"]
            assert [x.name for x in made[-1]] == names
            assert {x.graph for x in made[-1]} == {v.graph}
            assert optimizer.get_slot(v, "m") in made[-1]
    assert set(made[0]).isdisjoint(made[1])
