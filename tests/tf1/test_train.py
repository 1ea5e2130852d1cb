"""``tf.train``: files of graphs, checkpoint readers, errors, moving averages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tensorboard.compat.proto.graph_pb2 import GraphDef

import asyncmon.tf1 as tf


@pytest.mark.asyncio
async def test_a_graph_is_written_as_text_or_bytes(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        tf.add(tf.placeholder(tf.float32, [], name="x"), 1.0, name="y")
    path = await tf.train.write_graph(graph, tmp_path / "new", "graph.pbtxt")
    assert path == str(tmp_path / "new" / "graph.pbtxt")
    read = text_format.Parse((tmp_path / "new" / "graph.pbtxt").read_text(), GraphDef())
    assert [node.name for node in read.node] == ["x", "y/y", "y"]
    path = await tf.train.write_graph(graph.as_graph_def(), str(tmp_path), "graph.pb", as_text=False)
    data = (tmp_path / "graph.pb").read_bytes()
    assert GraphDef.FromString(data) == read
    again = tf.GraphDef()
    again.ParseFromString(data)
    assert again == graph.as_graph_def()
    with pytest.raises(TypeError, match=r"Expected a Graph or a GraphDef, got 'graph'"):
        await tf.train.write_graph("graph", tmp_path, "x")


@pytest.mark.asyncio
async def test_a_checkpoint_reader_is_opened_by_its_old_name(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        tf.get_variable("v", initializer=[1.0, 2.0])
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            saver = tf.train.Saver(write_version=tf.train.SaverDef.V2)
            path = await saver.save(sess, tmp_path / "m")
    assert path is not None
    reader = await tf.train.NewCheckpointReader(path)
    assert reader.get_variable_to_shape_map() == {"v": [2]}
    assert reader.has_tensor("v")
    assert (await reader.get_tensor("v")).tolist() == [1.0, 2.0]
    await reader.close()
    with pytest.raises(tf.errors.NotFoundError):
        await tf.train.NewCheckpointReader(str(tmp_path / "none"))


@pytest.mark.asyncio
async def test_the_error_of_a_run_has_the_node() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [], name="x")
        async with tf.Session() as sess:
            with pytest.raises(tf.OpError) as caught:
                await sess.run(x + 1.0)
    assert caught.value.op is x.op
    assert caught.value.node_def == tf.NodeDef(name="x", op="Placeholder", attr=x.op.node_def.attr)


@pytest.mark.parametrize(("arguments", "wanted"), [({}, 4.0), ({"zero_debias": False}, 1.75)])
def test_an_average_that_began_at_zero(
    evaluate: Callable[..., Any], arguments: Any, wanted: float
) -> None:
    v = tf.Variable(0.0, trainable=False, name="v")
    moved = tf.train.assign_moving_average(v, 4.0, 0.75, **arguments)
    assert evaluate(moved, moved) == pytest.approx(wanted)
    names = [other.op.name for other in tf.global_variables()]
    assert names == (["v"] if arguments else ["v", "v/biased", "v/local_step"])
