"""The graph: names, scopes, looking up, collections, finalizing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any, TypeVar

import numpy as np
import pytest

from asyncmon import graph as tf

T = TypeVar("T")


def test_names_are_made_unique() -> None:
    names = [tf.constant(1, name="c").name for _ in range(3)]
    assert names == ["c:0", "c_1:0", "c_2:0"]


def test_names_differ_by_more_than_case() -> None:
    assert [tf.constant(1, name=name).op.name for name in ("Abc", "abc")] == ["Abc", "abc_1"]


def test_a_taken_suffix_is_skipped() -> None:
    assert [tf.constant(1, name=n).op.name for n in ("a_1", "a", "a")] == ["a_1", "a", "a_2"]


def test_name_scopes_nest_and_are_unique() -> None:
    with tf.name_scope("outer") as scope:
        assert scope == "outer/"
        with tf.name_scope("inner"):
            assert tf.constant(1, name="c").op.name == "outer/inner/c"
    with tf.name_scope("outer"):
        assert tf.constant(1, name="c").op.name == "outer_1/c"
    with tf.name_scope("outer/"):
        assert tf.constant(1, name="d").op.name == "outer/d"


def test_name_scope_none_is_the_top(graph: tf.Graph) -> None:
    with tf.name_scope("a"), graph.name_scope(None):
        assert tf.constant(1, name="c").op.name == "c"


def test_name_scope_takes_the_default_name() -> None:
    with tf.name_scope(None, "fallback") as scope:
        assert scope == "fallback/"


@pytest.mark.parametrize("name", ["", "-a", "a b", "a:0"])
def test_a_wrong_name_is_refused(name: str) -> None:
    if name:
        with pytest.raises(ValueError, match="is not a valid node name"):
            tf.constant(1, name=name)


def test_a_wrong_scope_is_refused() -> None:
    with pytest.raises(ValueError, match="'a b' is not a valid scope name"), tf.name_scope("a b"):
        pass


def test_a_finalized_graph_refuses_nodes_with_the_original_text(graph: tf.Graph) -> None:
    graph.finalize()
    graph.finalize()
    assert graph.finalized
    with pytest.raises(RuntimeError, match=r"^Graph is finalized and cannot be modified\.") as caught:
        tf.constant(1)
    assert str(caught.value) == "Graph is finalized and cannot be modified."
    assert "Build all operations before it is opened" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match=r"^Graph is finalized and cannot be modified\."):
        graph.add_to_collection("a", 1)


def test_elements_are_found_by_name(graph: tf.Graph) -> None:
    c = tf.constant(1, name="c")
    assert graph.get_tensor_by_name("c:0") is c
    assert graph.get_operation_by_name("c") is c.op
    assert graph.as_graph_element("c") is c.op
    assert graph.as_graph_element(c) is c
    assert graph.get_operations() == [c.op]


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (
            "x:0",
            KeyError,
            "The name 'x:0' refers to a Tensor which does not exist. The operation, 'x', ",
        ),
        ("c:1", KeyError, "The operation, 'c', exists but only has 1 outputs"),
        ("c:a", ValueError, "The name 'c:a' looks a like a Tensor name, but is not a valid one"),
        ("c", ValueError, "The name 'c' refers to an Operation, not a Tensor"),
        ("x", ValueError, "The name 'x' looks like an .invalid. Operation name, not a Tensor"),
        (3, TypeError, "Tensor names are strings"),
    ],
)
def test_a_wrong_tensor_name_says_what_is_wrong(
    graph: tf.Graph, name: str, error: type[Exception], text: str
) -> None:
    tf.constant(1, name="c")
    with pytest.raises(error, match=text):
        graph.get_tensor_by_name(name)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("x", KeyError, "The name 'x' refers to an Operation not in the graph"),
        ("c:0", ValueError, "Name 'c:0' appears to refer to a Tensor, not a Operation"),
        (None, TypeError, "Operation names are strings"),
    ],
)
def test_a_wrong_operation_name_says_what_is_wrong(
    graph: tf.Graph, name: str, error: type[Exception], text: str
) -> None:
    tf.constant(1, name="c")
    with pytest.raises(error, match=text):
        graph.get_operation_by_name(name)


def test_elements_of_another_graph_are_refused(graph: tf.Graph) -> None:
    with tf.Graph().as_default():
        foreign = tf.constant(1)
    with pytest.raises(ValueError, match="is not an element of this graph"):
        graph.as_graph_element(foreign)
    with pytest.raises(ValueError, match="must be from the same graph"):
        tf.group(tf.add(tf.constant(1), foreign))
    with pytest.raises(TypeError, match="Can not convert a int into a Tensor or Operation"):
        graph.as_graph_element(3)


def test_operators_build_into_the_graph_of_their_tensor(graph: tf.Graph) -> None:
    c = tf.constant(1.0)
    with tf.Graph().as_default():
        assert (c + 1).graph is graph


def test_control_dependencies_apply_inside() -> None:
    a, b = tf.no_op(), tf.constant(1)
    with tf.control_dependencies([a]):
        with tf.control_dependencies([b, a]):
            assert tf.no_op().control_inputs == [a, b.op]
        with tf.control_dependencies(None):
            assert tf.no_op().control_inputs == []
    assert tf.no_op().control_inputs == []


def test_collections(graph: tf.Graph) -> None:
    a, b = tf.constant(1, name="a"), tf.constant(1, name="b")
    graph.add_to_collections(["one", "two", "one"], a)
    tf.add_to_collection("one", b)
    assert tf.get_collection("one") == [a, b]
    assert tf.get_collection("one", scope="b") == [b]
    assert tf.get_collection("none") == []
    tf.get_collection_ref("one").clear()
    assert tf.get_collection("one") == []
    assert set(graph.get_all_collection_keys()) == {"one", "two"}
    graph.clear_collection("two")
    assert tf.get_collection("two") == []


def test_the_default_graph_belongs_to_the_context(graph: tf.Graph) -> None:
    assert tf.get_default_graph() is graph
    with tf.Graph().as_default() as other:
        assert tf.get_default_graph() is other
    tf.reset_default_graph()
    assert tf.get_default_graph() is not graph


@pytest.mark.asyncio
async def test_tasks_do_not_see_each_others_default_graph() -> None:
    async def build() -> tf.Graph:
        with tf.Graph().as_default() as own:
            await asyncio.sleep(0)
            assert tf.constant(1).graph is own
        return own

    first, second = await asyncio.gather(build(), build())
    assert first is not second


def test_lines_outside_of_tasks_share_the_default_graph_of_their_thread() -> None:
    def line(fn: Callable[[], T]) -> T:
        return Context().run(fn)  # as at the prompt of `python -m asyncio`

    line(tf.reset_default_graph)
    made = line(lambda: tf.constant(1).graph)
    assert line(tf.get_default_graph) is made
    with ThreadPoolExecutor() as threads:
        assert threads.submit(tf.get_default_graph).result() is not made
    line(tf.reset_default_graph)
    assert line(tf.get_default_graph) is not made


@pytest.mark.asyncio
async def test_a_task_has_that_graph_and_does_not_share_its_own() -> None:
    async def build() -> tf.Graph:
        return tf.constant(1).graph

    async def reset() -> None:
        tf.reset_default_graph()

    def task(of: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return asyncio.create_task(of, context=Context())

    made: asyncio.Future[tf.Graph] = asyncio.Future()
    asyncio.get_running_loop().call_soon(
        lambda: made.set_result(tf.get_default_graph()), context=Context()
    )
    assert await task(build()) is await made
    await task(reset())
    assert await task(build()) is await made


def test_a_shape_error_names_the_op_and_the_shapes() -> None:
    with pytest.raises(ValueError, match=r"'MatMul'.*input shapes: \[2,3\], \[2,3\]"):
        tf.matmul(np.zeros((2, 3)), np.zeros((2, 3)))


def test_an_op_that_is_not_registered() -> None:
    with pytest.raises(ValueError, match="Op type 'Nonsense' is not registered"):
        tf.create_op("Nonsense")


def test_reprs() -> None:
    v = tf.Variable(0, name="v")
    assert repr(v.op.outputs[0]) == 'Tensor("v:0", shape=(), dtype=int32)'
    assert repr(v.op) == "<Operation 'v' type=VariableV2>"
    assert repr(tf.placeholder(tf.float32, name="p")) == 'Tensor("p:0", dtype=float32)'
    assert repr(tf.get_default_graph()).startswith("<Graph with")


def test_a_graph_returns_its_name_scope(graph: tf.Graph) -> None:
    assert graph.get_name_scope() == ""
    with tf.name_scope("a"), tf.name_scope("b"):
        assert graph.get_name_scope() == "a/b"


def test_a_node_has_the_line_that_created_it(graph: tf.Graph) -> None:
    line = sys._getframe().f_lineno + 1
    nodes = [tf.constant(1.0) + 2.0, tf.layers.dense(tf.zeros([1, 2]), 3)]
    assert {tensor.op.created_at for tensor in nodes} == {f"{__file__}:{line}"}
    direct = graph.add_op("Const", (), nodes[0].op.inputs[1].op.attrs)
    assert direct.created_at is not None
