"""A traced step becomes step statistics that protobuf reads."""

from __future__ import annotations

from tensorboard.compat.proto.config_pb2 import RunMetadata as RunMetadataProto

from asyncmon.protobuf.run_options import NodeStats, RunMetadata
from asyncmon.summary.graph_events import encode_run_metadata


def test_each_node_has_its_times_thread_and_bytes() -> None:
    run = RunMetadata(
        [
            NodeStats("layer/matmul", "MatMul", 0.001, 0.0005, "main", 400),
            NodeStats("loss", "Mean", 0.002, 1e-9, "worker", 4),
            NodeStats("add", "Add", 0.003, 0.001, "main", 0),
        ]
    )
    (device,) = RunMetadataProto.FromString(encode_run_metadata(run.nodes)).step_stats.dev_stats
    assert device.device.endswith("device:CPU:0")
    assert dict(device.thread_names) == {0: "main", 1: "worker"}
    first, second, third = device.node_stats
    assert (first.node_name, first.all_start_micros, first.all_end_rel_micros) == (
        "layer/matmul",
        1000,
        500,
    )
    assert first.op_end_rel_micros == 500
    assert first.memory[0].total_bytes == 400
    assert first.timeline_label == "layer/matmul = MatMul"
    assert second.all_end_rel_micros == 1  # 0 would be: unknown
    assert [node.thread_id for node in (first, second, third)] == [0, 1, 0]


def test_run_metadata_has_them_by_the_names_of_the_original() -> None:
    run = RunMetadata([NodeStats("layer/matmul", "MatMul", 0.001, 0.0005, "main", 400)])
    (device,) = run.step_stats.dev_stats
    assert device.thread_names == {0: "main"}
    (node,) = device.node_stats
    assert (node.node_name, node.all_start_micros) == ("layer/matmul", 1000)
    assert (node.op_start_rel_micros, node.op_end_rel_micros, node.all_end_rel_micros) == (0, 500, 500)
    assert node.memory[0].total_bytes == 400
    again = RunMetadataProto.FromString(run.SerializeToString())
    assert again.step_stats.dev_stats[0].node_stats[0].node_name == "layer/matmul"
    assert list(RunMetadata().step_stats.dev_stats) == []
