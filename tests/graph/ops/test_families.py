"""What a family writes for each of its ops: the public function, and the sparse twin of an update."""

from __future__ import annotations

import inspect
import pickle
import pydoc
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.ops import families

FUNCTIONS = {
    f"{prefix}{name}": getattr(module, name)
    for prefix, module in (("", tf), ("nn.", tf.nn))
    for name in module.__all__
    if getattr(getattr(module, name), "__code__", None)
    and getattr(module, name).__code__.co_filename == families.__file__
}
ALIASES = {"mod": "floormod", "nn.sigmoid": "sigmoid", "nn.tanh": "tanh"}
BINARY = {
    *("add", "subtract", "multiply", "pow", "squared_difference", "realdiv", "truediv", "divide"),
    *("floordiv", "floormod", "mod", "div_no_nan", "maximum", "minimum", "less", "less_equal"),
    *("greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or"),
}
REDUCED = "(input_tensor, axis=None, keepdims=None, name=None, reduction_indices=None, keep_dims=None)"


def _expected_signature(name: str) -> str:
    """Return the signature in TF1."""
    if name == "logical_xor":
        return "(x, y, name='LogicalXor')"
    if name in BINARY:
        return "(x, y, name=None)"
    if name.startswith("reduce_"):
        return REDUCED
    features = name.startswith("nn.") and name not in ALIASES
    return "(features, name=None)" if features else "(x, name=None)"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))


def test_most_elementwise_ops_are_of_a_family() -> None:
    assert BINARY | {"exp", "sigmoid", "is_nan", "reduce_sum", "nn.softplus"} <= FUNCTIONS.keys()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_of_a_family_looks_as_if_written_by_hand(name: str) -> None:
    function = FUNCTIONS[name]
    own_name = ALIASES.get(name, name).removeprefix("nn.")
    assert function.__name__ == function.__qualname__ == own_name
    assert function.__module__ != families.__name__
    assert pickle.loads(pickle.dumps(function)) is function
    assert _signature(function) == _expected_signature(name)
    assert inspect.signature(function).return_annotation == "Tensor"
    first, _, rest = inspect.getdoc(function).partition("\n")
    assert f"TF1: ``tf.{ALIASES.get(name, name)}``." in first
    for parameter in inspect.signature(function).parameters:
        assert f"\n    {parameter}: " in rest
    assert own_name in pydoc.render_doc(function, renderer=pydoc.plaintext)


def _follow(var: Any, slot: Any, rate: Any, grad: Any) -> None:
    slot += grad
    var -= rate * slot


families.update_op("FamilyTest", _follow, refs=2)


def test_the_sparse_twin_updates_the_rows_that_the_gradient_has(ops: Any) -> None:
    var, slot = tf.Variable(np.ones((4, 2), "f")), tf.Variable(np.zeros((4, 2), "f"))
    grad = np.array([[1, 2], [3, 4]], "f")
    new = tf.create_op("SparseApplyFamilyTest", (var, slot, 0.5, grad, np.array([3, 1])))
    expected = np.ones((4, 2))
    expected[[3, 1]] -= 0.5 * grad
    np.testing.assert_array_equal(ops.evaluate(new), expected)


@pytest.mark.parametrize(
    ("op_type", "rate", "grad", "error", "message"),
    [
        ("ApplyFamilyTest", 0.5, np.ones((4, 3), "f"), ValueError, "must be equal"),
        ("ApplyFamilyTest", np.ones(2, "f"), np.ones((4, 2), "f"), ValueError, "rank 0"),
        ("ApplyFamilyTest", 0.5, np.ones((4, 2)), TypeError, "the variable's dtype"),
    ],
)
def test_an_update_that_does_not_fit_is_refused(
    op_type: str, rate: Any, grad: Any, error: Any, message: str
) -> None:
    var, slot = tf.Variable(np.ones((4, 2), "f")), tf.Variable(np.zeros((4, 2), "f"))
    with pytest.raises(error, match=message):
        tf.create_op(op_type, (var, slot, rate, grad))


def test_rows_that_do_not_fit_are_refused() -> None:
    var, slot = tf.Variable(np.ones((4, 2), "f")), tf.Variable(np.zeros((4, 2), "f"))
    with pytest.raises(ValueError, match="must be equal"):
        tf.create_op("SparseApplyFamilyTest", (var, slot, 0.5, np.ones((3, 2), "f"), np.array([3, 1])))
