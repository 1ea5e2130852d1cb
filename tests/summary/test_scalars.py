"""Runs below a directory, and their scalars as TensorBoard shows them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon.protobuf.tensors import TensorProto
from asyncmon.protobuf.tfrecord import read_records
from asyncmon.summary import (
    FileWriter,
    SessionLog,
    Summary,
    SummaryMetadata,
    find_event_files,
    read_scalars,
)
from asyncmon.summary.events import Event
from asyncmon.summary.scalars import Scalar, ScalarRecords, scalars_of


@pytest.mark.asyncio
async def test_a_run_is_a_folder_with_event_files(tmp_path: Path) -> None:
    for name in ("a", "b/inner", "."):
        async with FileWriter(tmp_path / name) as writer:
            writer.add_scalar("loss", 0.5, 1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / ".trash" / "a")
    assert list(find_event_files(tmp_path)) == [".", "a", "b/inner"]
    assert find_event_files(tmp_path / "nowhere") == {}


@pytest.mark.asyncio
async def test_points_of_lost_steps_are_left_out(tmp_path: Path) -> None:
    for first, value in ((1, 1.0), (3, 2.0)):
        async with FileWriter(tmp_path) as writer:
            writer.add_session_log(SessionLog(status=SessionLog.START), first)
            for step in range(first, first + 4):
                writer.add_scalar("loss", value, step)
            writer.add_scalar(f"only/{first}", 0.0, first + 3)
    points = read_scalars(find_event_files(tmp_path)["."])
    assert [(point.step, point.value) for point in points["loss"]] == [
        (1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2),
    ]  # fmt: skip
    assert "only/1" not in points
    assert [point.step for point in points["only/3"]] == [6]


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (TensorProto(dtype=1, float_val=[0.25]), 0.25),
        (TensorProto(dtype=2, double_val=[0.1]), 0.1),
        (TensorProto(dtype=1, tensor_content=struct.pack("<f", 1.5)), 1.5),
        (TensorProto(dtype=1, float_val=[1.0, 2.0]), None),
        (TensorProto(dtype=7, string_val=[b"text"]), None),
    ],
)
def test_scalars_of_tensorflow_2_are_tensors(tensor: TensorProto, value: float | None) -> None:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    entry = Summary.Value(tag="loss", tensor=tensor, metadata=metadata)
    event = Event(wall_time=3.0, step=7, summary=Summary(value=[entry]))
    found = [(point.wall_time, point.step, point.tag, point.value) for point in scalars_of(event)]
    assert found == ([] if value is None else [(3.0, 7, "loss", value)])
    entry.metadata.plugin_data.plugin_name = "text"
    assert not list(scalars_of(event))


VALUES = st.builds(
    Summary.Value,
    tag=st.sampled_from(["loss", "a", "ü" * 70]),
    simple_value=st.floats(width=32, allow_nan=False),
)
EVENTS = st.builds(
    Event,
    wall_time=st.floats(1, 2e9),
    step=st.integers(-(1 << 63), (1 << 63) - 1),
    summary=st.lists(VALUES, max_size=2).map(lambda values: Summary(value=values)),
)


@given(EVENTS)
def test_records_of_one_number_are_decoded_as_the_event_is(event: Event) -> None:
    records = ScalarRecords()
    assert records.decode(event.SerializeToString()) is None
    for value in event.summary.value:
        records.learn(value.tag)
    found = records.decode(event.SerializeToString())
    expected = list(scalars_of(event))
    assert found == (expected[0] if len(expected) == 1 else None)


@given(st.binary(max_size=60))
def test_other_records_are_left_to_others(data: bytes) -> None:
    records = ScalarRecords()
    records.learn("loss")
    whole = Event(wall_time=1.0, step=300, summary=Summary(value=[Summary.Value(tag="loss")]))
    record = b"\x09" + data
    assert records.decode(record) is None
    for end in range(len(whole.SerializeToString())):
        assert records.decode(whole.SerializeToString()[:end]) is None


@pytest.mark.asyncio
async def test_the_writer_writes_what_is_decoded_fast(tmp_path: Path) -> None:
    async with FileWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", 0.5, step)
    records = ScalarRecords()
    records.learn("loss")
    ((path,),) = find_event_files(tmp_path).values()
    found = [records.decode(record) for chunk in read_records(path) for _, record in chunk]
    assert [one and one[1:] for one in found] == [None, *((step, "loss", 0.5) for step in range(3))]
    assert isinstance(found[-1], Scalar)
