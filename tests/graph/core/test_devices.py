"""Devices of operations under scopes, with the results of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from asyncmon import graph as tf


def device_in(*scopes: Any) -> str:
    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(tf.device(scope))
        return tf.constant(1).device


def fn(device: Any) -> Callable[[tf.Operation], Any]:
    return lambda op: device


@pytest.mark.parametrize(
    ("scopes", "device"),
    [
        (["/job:ps", "/task:1"], "/job:ps/task:1"),
        (["/job:ps/task:0", "/job:worker"], "/job:worker/task:0"),
        (["/job:ps/cpu:0", "/gpu:1"], "/job:ps/device:GPU:1"),
        (["/device:GPU:1", "/device:CPU:*"], "/device:CPU:1"),
        (
            ["/job:a/task:2/gpu:3", "/job:b/replica:4/task:5/cpu:6"],
            "/job:b/replica:4/task:5/device:CPU:6",
        ),
        (["cpu:0"], "/device:CPU:0"),
        (["/job:ps", None], ""),
        (["/job:ps", None, "/cpu:0"], "/device:CPU:0"),
        (["/job:ps", ""], "/job:ps"),
        (["/job:ps", "/"], "/job:ps"),
        ([tf.DeviceSpec("ps", task=1), "/cpu:*"], "/job:ps/task:1/device:CPU:*"),
        ([tf.DeviceSpec("ps", device_index=1), "/cpu:*"], "/job:ps/device:CPU:1"),
        ([fn("/cpu:0")], "/cpu:0"),
        (["/job:ps", fn("/cpu:0")], "/job:ps/device:CPU:0"),
        ([fn("/cpu:0"), "/job:ps"], "/cpu:0"),
        ([fn("/cpu:0"), None], ""),
        ([fn(""), "/job:ps"], ""),
        (["/job:ps", fn("")], "/job:ps"),
        (["/cpu:1", fn("/job:b"), fn("/job:c")], "/job:b/device:CPU:1"),
        (["/cpu:0", fn(tf.DeviceSpec("ps", task=1))], "/job:ps/task:1/device:CPU:0"),
        ([fn(b"/cpu:0")], "/cpu:0"),
    ],
)
def test_scopes(scopes: list[Any], device: str) -> None:
    assert device_in(*scopes) == device


@pytest.mark.parametrize(
    ("scopes", "error", "text"),
    [
        (["/nonsense"], ValueError, "Unknown attribute 'nonsense' is encountered while parsing"),
        (["/cpu:0/gpu:0"], ValueError, "Multiple device types are not allowed"),
        ([5], TypeError, "A device is text"),
        (["/job:a", fn("/nope:0")], ValueError, "Unknown attribute 'nope' is encountered"),
        ([fn(None)], TypeError, "Expected binary or unicode string, got None"),
        ([fn(5)], TypeError, "Expected binary or unicode string, got 5"),
    ],
)
def test_what_is_no_device(scopes: list[Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        device_in(*scopes)
    assert tf.get_default_graph().get_operations() == []


def test_a_function_gets_the_op_with_the_device_of_the_scopes_inside() -> None:
    seen = []

    def see(op: tf.Operation) -> str:
        seen.append((op.type, op.name, op.device, op.node_def.op))
        return "/job:b"

    assert device_in("/job:a", see, "/cpu:0", "/task:1") == "/job:b"
    assert seen == [("Const", "Const", "/task:1/device:CPU:0", "Const")]


def test_a_spec_is_taken_as_it_is_when_the_scope_begins() -> None:
    spec = tf.DeviceSpec("ps")
    with tf.device(spec):
        spec.job = "worker"
        assert tf.constant(1).device == "/job:ps"


def test_scopes_are_those_of_the_graph_that_is_built() -> None:
    with tf.device("/job:ps"):
        with tf.Graph().as_default():
            assert tf.constant(1).device == ""
        assert tf.constant(1).device == "/job:ps"
    assert tf.constant(1).device == ""


def test_branches_are_built_under_the_scopes_around_them() -> None:
    inside: list[Any] = []

    def branch() -> Any:
        with tf.device("/cpu:0"):
            inside.append(tf.constant(1.0))
        inside.append(v.assign(2.0))
        return inside[-1]

    setter = iter(["/job:ps/task:0"])  # asked for one variable only: the stand-ins in branches are none
    with tf.device(lambda op: next(setter) if op.type == "VariableV2" else f"/job:worker{op.device}"):
        v = tf.get_variable("v", initializer=1.0)
        result = tf.cond(v > 0, branch, lambda: v.read_value() + 1)
    assert result.device == "/job:worker"
    assert [x.device for x in inside] == ["/job:worker/device:CPU:0", "/job:ps/task:0"]


# --- colocation -------------------------------------------------------------------------------------


@pytest.fixture
def placed() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    with tf.device("/job:ps/task:0"):
        ps = tf.constant(1)
    with tf.device("/job:w"):
        worker = tf.constant(1)
    return ps, worker, tf.constant(1)


def test_colocation_wins_over_all_scopes(placed: Any) -> None:
    ps, worker, _ = placed
    with tf.device("/cpu:0"), tf.colocate_with(ps), tf.device("/cpu:1"):
        assert tf.constant(1).device == "/job:ps/task:0"
        with tf.device(None):
            assert tf.constant(1).device == "/job:ps/task:0"
        with tf.colocate_with(worker.op):
            assert tf.constant(1).device == "/job:w"
    assert tf.constant(1).device == ""


def test_colocation_with_an_op_that_has_no_device(placed: Any) -> None:
    ps, _, free = placed
    with tf.device("/cpu:0"), tf.colocate_with(free):
        assert tf.constant(1).device == ""
        with tf.device("/cpu:3"):
            assert tf.constant(1).device == "/device:CPU:3"
    with tf.colocate_with(ps), tf.colocate_with(free):
        assert tf.constant(1).device == "/job:ps/task:0"


def test_colocation_that_ignores_the_one_outside(placed: Any) -> None:
    ps, _, free = placed
    with tf.colocate_with(ps):
        with tf.colocate_with(free, ignore_existing=True):
            assert tf.constant(1).device == ""
            with tf.device("/gpu:1"):
                assert tf.constant(1).device == "/device:GPU:1"
        with tf.colocate_with(None, ignore_existing=True):
            assert tf.constant(1).device == ""
    with tf.device("/cpu:3"), tf.colocate_with(None, ignore_existing=True):
        assert tf.constant(1).device == ""


def test_functions_are_called_under_colocation_too(placed: Any) -> None:
    seen: list[str] = []
    with tf.colocate_with(placed[0]), tf.device(lambda op: seen.append(op.device) or "/cpu:0"):
        assert tf.constant(1).device == "/job:ps/task:0"
    assert seen == [""]


def test_colocation_with_nothing() -> None:
    with pytest.raises(ValueError, match="Trying to reset colocation"), tf.colocate_with(None):
        pass
    with pytest.raises(TypeError, match="takes an operation, a tensor or a variable, got 'v:0'"):
        tf.colocate_with("v:0").__enter__()


# --- variables --------------------------------------------------------------------------------------


def test_what_touches_a_variable_is_where_it_is() -> None:
    with tf.device("/job:ps/task:1"):
        v = tf.get_variable("v", [3])
    with tf.device("/job:worker"):
        ops = [
            v.value(), v.read_value(), v.initialized_value(), tf.is_variable_initialized(v),
            tf.assign(v, [1, 2, 3]), v.assign_add([1, 2, 3]), tf.assign_sub(v, [1, 2, 3]),
            tf.scatter_add(v, [0], [1]), tf.scatter_update(v, [0], [1]),
        ]  # fmt: skip
        assert {op.device for op in ops} == {"/job:ps/task:1"}
        with tf.control_dependencies([v.initializer]):
            assert v.value().device == "/job:ps/task:1"
        assert (v + 1).device == "/job:worker"
    assert v.device == v.op.device == v.initializer.device == "/job:ps/task:1"


def test_variables_keep_their_device_from_a_branch() -> None:
    made: list[tf.Variable] = []

    def branch() -> Any:
        made.append(tf.Variable(1.0))
        return tf.constant(1.0)

    with tf.device("/job:ps"):
        tf.cond(tf.constant(True), branch, lambda: tf.constant(2.0))
    assert [v.device for v in made] == ["/job:ps"]
