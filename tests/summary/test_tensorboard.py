"""TensorBoard's own reader gets each kind of record back, and understands recoveries."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginEventAccumulator,
)
from tensorboard.plugins.hparams import plugin_data_pb2

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import name_scope
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.basic import placeholder
from asyncmon.graph.ops.elementwise import multiply
from asyncmon.protobuf.run_options import NodeStats, RunMetadata
from asyncmon.summary import FileWriter, HistogramProto, SessionLog, Summary
from asyncmon.summary.histogram import encode_histogram

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

EVERYTHING = {"scalars": 0, "histograms": 0, "images": 0, "tensors": 0}


def accumulated(directory: Path) -> Any:
    return EventAccumulator(str(directory), size_guidance=EVERYTHING).Reload()


async def test_scalars_are_read_back(tmp_path: Path) -> None:
    values = [0.1, -1e30, 1e-30, 0.0, math.inf, 3]
    async with FileWriter(tmp_path) as writer:
        for step, value in enumerate(values):
            writer.add_scalar("loss", value, step)
        writer.add_summary(Summary([Summary.Value("acc", 0.5), Summary.Value("é", 2.0)]), 2**40)
    read = accumulated(tmp_path)
    assert sorted(read.Tags()["scalars"]) == ["acc", "loss", "é"]
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [
        (step, float(np.float32(value))) for step, value in enumerate(values)
    ]
    assert [(event.step, event.value) for event in read.Scalars("é")] == [(2**40, 2.0)]
    assert read.Scalars("acc")[0].wall_time == 1_700_000_000


async def test_histograms_are_read_back(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=20_000)
    async with FileWriter(tmp_path) as writer:
        writer.add_histogram("weights", values, 3)
        writer.add_histogram("weights", [], 4)
        writer.add_histogram("diverged", [1.0, math.nan], 4)
    read = accumulated(tmp_path)
    full, empty = (event.histogram_value for event in read.Histograms("weights"))
    expected = HistogramProto.FromString(encode_histogram(values))
    for name in ("min", "max", "num", "sum", "sum_squares"):
        assert getattr(full, name) == getattr(expected, name)
    assert HistogramProto(bucket_limit=full.bucket_limit, bucket=full.bucket) == HistogramProto(
        bucket_limit=expected.bucket_limit, bucket=expected.bucket
    )
    assert empty.num == 0
    assert "diverged" not in read.Tags()["histograms"]


async def test_what_is_added_is_what_the_array_held_then(tmp_path: Path) -> None:
    values = np.ones(10)
    async with FileWriter(tmp_path) as writer:
        writer.add_histogram("weights", values, 1)
        values *= 0
    assert accumulated(tmp_path).Histograms("weights")[0].histogram_value.sum == 10.0


async def test_images_are_read_back(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    async with FileWriter(tmp_path) as writer:
        writer.add_image("photo", pixels, 1)
        writer.add_image("digit", pixels[..., 0] / 255, 1)
        writer.add_image("batch", np.stack([pixels] * 5), 1)
    read = accumulated(tmp_path)
    assert sorted(read.Tags()["images"]) == [*(f"batch/image/{i}" for i in range(3)), "digit", "photo"]
    (photo,) = read.Images("photo")
    assert (photo.step, photo.height, photo.width) == (1, 5, 7)
    image = matplotlib.image.imread(io.BytesIO(photo.encoded_image_string), format="png")
    assert (np.round(image * 255) == pixels).all()


async def test_text_is_read_back(tmp_path: Path) -> None:
    async with FileWriter(tmp_path) as writer:
        writer.add_text("note", "# Title", 3)
        writer.add_text("table", [["a", "b"]], 3)
    read = PluginEventAccumulator(str(tmp_path)).Reload()
    assert set(read.PluginTagToContent("text")) == {"note", "table"}
    (note,) = read.Tensors("note")
    assert (note.step, list(note.tensor_proto.string_val)) == (3, [b"# Title"])
    assert [dim.size for dim in read.Tensors("table")[0].tensor_proto.tensor_shape.dim] == [1, 2]


async def test_hyperparameters_are_read_back(tmp_path: Path) -> None:
    hparams = {"lr": 0.1, "layers": 3, "bias": False, "name": "small", "decay": np.float32(0.5)}
    async with FileWriter(tmp_path) as writer:
        writer.add_hparams(hparams, {"accuracy": 0.9})
    read = PluginEventAccumulator(str(tmp_path)).Reload()
    content = read.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    found = {
        name: getattr(value, str(value.WhichOneof("kind"))) for name, value in start.hparams.items()
    }
    assert found == {"lr": 0.1, "layers": 3.0, "bias": False, "name": "small", "decay": 0.5}
    assert start.start_time_secs == 1_700_000_000
    assert len(start.group_name) == 64
    assert accumulated(tmp_path).Scalars("accuracy")[0].value == pytest.approx(0.9)


async def test_the_graph_is_read_back(tmp_path: Path) -> None:
    with Graph().as_default() as graph:
        x = placeholder(dtypes.float32, [None, 3], name="x")
        with name_scope("layer"):
            y = multiply(x, 2.0, name="y")
    async with FileWriter(tmp_path, graph) as writer:
        stats = NodeStats("layer/y", "Mul", 0.0, 0.001, "main", 12)
        writer.add_run_metadata(RunMetadata([stats]), "step_1", 1)
    read = accumulated(tmp_path)
    nodes = {node.name: node for node in read.Graph().node}
    assert {(node.name, node.op) for node in nodes.values()} == {
        (op.name, op.type) for op in graph.get_operations()
    }
    assert list(nodes["layer/y"].input) == [tensor.op.name for tensor in y.op.inputs]
    (device,) = read.RunMetadata("step_1").step_stats.dev_stats
    assert device.node_stats[0].node_name == "layer/y"


async def test_after_a_recovery_what_the_lost_steps_wrote_is_forgotten_fw_9(tmp_path: Path) -> None:
    """FW-9: points up to the restored step are kept."""
    async with FileWriter(tmp_path) as writer:
        writer.start(0)
        for step in (1, 2, 3, 4):
            writer.add_scalar("loss", float(step), step)
        writer.start(2)
        writer.add_scalar("loss", 30.0, 3)
    assert [event.value for event in accumulated(tmp_path).Scalars("loss")] == [1.0, 2.0, 30.0]


async def test_files_that_follow_each_other_are_one_run(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    for step in range(1, 4):
        writer.start(step - 1)
        writer.add_scalar("loss", float(step), step)
        writer.add_session_log(SessionLog(SessionLog.CHECKPOINT, f"model.ckpt-{step}"), step)
        await writer.close()
        await writer.reopen()
    await writer.close()
    assert [event.step for event in accumulated(tmp_path).Scalars("loss")] == [1, 2, 3]
