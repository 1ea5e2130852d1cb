"""Messages convert to protobuf's bytes and back, and report set fields as protobuf does."""

from __future__ import annotations

import contextlib
import math
import pickle
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2

from asyncmon.protobuf import WireError, integer, string
from asyncmon.protobuf.run_options import DeviceStepStats
from asyncmon.protobuf.tensors import TensorProto, TensorShapeDim, TensorShapeProto
from asyncmon.summary import Event, HistogramProto, SessionLog, Summary, SummaryMetadata
from asyncmon.summary.events import PluginData, TaggedRunMetadata

text = st.text(max_size=8)
double = st.floats(allow_nan=False).filter(lambda x: x != 0 or math.copysign(1, x) > 0)
single = st.floats(width=32, allow_nan=False)
int64 = st.integers(-(2**63), 2**63 - 1)
doubles = st.lists(double, max_size=4)
images = st.builds(
    Summary.Image, int32 := st.integers(-(2**31), 2**31 - 1), int32, int32, st.binary(max_size=8)
)
audio = st.builds(Summary.Audio, single.filter(bool), int64, int64, st.binary(max_size=8), text)
histograms = st.builds(HistogramProto, double, double, double, double, double, doubles, doubles)
shapes = st.builds(TensorShapeProto, st.lists(st.builds(TensorShapeDim, int64, text), max_size=3))
tensors = st.builds(
    TensorProto,
    dtype=st.sampled_from([0, 1, 2, 3, 7, 9, 10]),
    tensor_shape=shapes,
    version_number=int32,
    tensor_content=st.binary(max_size=8),
    float_val=st.lists(single, max_size=3),
    double_val=doubles,
    int_val=st.lists(int32, max_size=3),
    string_val=st.lists(st.binary(max_size=4), max_size=3),
    int64_val=st.lists(int64, max_size=3),
    bool_val=st.lists(st.booleans(), max_size=3),
)
metadata = st.builds(
    SummaryMetadata,
    st.builds(PluginData, text, st.binary(max_size=8)),
    text,
    text,
    st.sampled_from([0, 1, 2, 3]),
)
contents = st.one_of(
    st.builds(lambda x: {"simple_value": x}, single),
    st.builds(lambda x: {"image": x}, images),
    st.builds(lambda x: {"histo": x}, histograms),
    st.builds(lambda x: {"audio": x}, audio),
    st.builds(lambda x: {"tensor": x}, tensors),
    st.builds(lambda x: {"obsolete_old_style_histogram": x}, st.binary(min_size=1, max_size=8)),
)
values = st.builds(
    lambda tag, node, meta, content: Summary.Value(tag=tag, node_name=node, metadata=meta, **content),
    text,
    text,
    metadata,
    contents,
)
whats: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda x: {"file_version": x}, text),
    st.builds(lambda x: {"graph_def": x}, st.binary(max_size=8)),
    st.builds(lambda x: {"meta_graph_def": x}, st.binary(max_size=8)),
    st.builds(lambda x: {"summary": x}, st.builds(Summary, st.lists(values, max_size=3))),
    st.builds(lambda x: {"session_log": x}, st.builds(SessionLog, st.integers(0, 3), text, text)),
    st.builds(
        lambda x: {"tagged_run_metadata": x}, st.builds(TaggedRunMetadata, text, st.binary(max_size=8))
    ),
)
events = st.builds(lambda time, step, what: Event(time, step, **what), double, int64, whats)


@given(events)
def test_an_event_survives_its_bytes(event: Event) -> None:
    assert Event.FromString(event.SerializeToString()) == event


@given(events)
def test_protobuf_reads_the_same_event(event: Event) -> None:
    proto = event_pb2.Event.FromString(event.SerializeToString())
    assert Event.FromString(proto.SerializeToString()) == event
    assert (proto.wall_time, proto.step) == (event.wall_time, event.step)
    assert proto.WhichOneof("what") == event.WhichOneof("what")
    for theirs, ours in zip(proto.summary.value, event.summary.value, strict=True):
        assert theirs.tag == ours.tag
        assert theirs.WhichOneof("value") == ours.WhichOneof("value")
        assert theirs.simple_value == ours.simple_value
        assert list(theirs.histo.bucket) == list(ours.histo.bucket)
        assert theirs.tensor.SerializeToString(deterministic=True) == ours.tensor.SerializeToString()


@given(st.binary(max_size=48))
def test_any_bytes_are_an_event_or_refused(data: bytes) -> None:
    with contextlib.suppress(WireError):
        Event.FromString(data)


def test_a_summary_is_built_as_in_tf1() -> None:
    summary = Summary(value=[Summary.Value(tag="loss", simple_value=0.5)])
    assert summary.value[0].tag == "loss"
    assert summary.value == (Summary.Value("loss", 0.5),)


def test_a_scalar_of_zero_is_written() -> None:
    value = Summary.Value(tag="x", simple_value=0.0)
    proto = event_pb2.Event(summary={"value": [{"tag": "x", "simple_value": 0.0}]})
    assert Summary(value=[value]).SerializeToString() == proto.summary.SerializeToString()
    assert value.HasField("simple_value")


def test_what_is_not_set_reads_as_protobufs_default() -> None:
    event = Event(step=3)
    assert event.WhichOneof("what") is None
    assert list(event.summary.value) == []
    assert event.session_log.status == SessionLog.STATUS_UNSPECIFIED
    assert event.HasField("step")
    assert not event.HasField("summary")


def test_the_last_of_a_group_on_the_wire_wins() -> None:
    data = Event(file_version="1").SerializeToString() + Event(graph_def=b"g").SerializeToString()
    event = Event.FromString(data)
    assert (event.WhichOneof("what"), event.file_version) == ("graph_def", "")


def test_unknown_fields_are_skipped() -> None:
    assert Event.FromString(integer(99, 1) + string(98, "new") + integer(2, 7)) == Event(step=7)


def test_unpacked_numbers_of_a_list_are_read_too() -> None:
    unpacked = b"".join([b"\x31" + bytes(8), b"\x31" + bytes(6) + b"\xf0\x3f"])
    assert HistogramProto.FromString(unpacked).bucket_limit == (0.0, 1.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (string(2, "x"), "'step' has wire type 2"),
        (string(3, "x").replace(b"x", b"\xff"), "no UTF-8"),
        (b"\x2a\x0b\x0a\x09\x2a\x07\x3a\x05abcde", "no whole number of elements"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        Event.FromString(data)


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match="Event has no field 'stepp'"):
        Event().HasField("stepp")


def test_the_repr_shows_what_is_set() -> None:
    event = Event(step=3, session_log=SessionLog(status=SessionLog.START))
    assert repr(event) == "Event(step=3, session_log=SessionLog(status=1))"


def test_a_message_is_a_value() -> None:
    log = SessionLog(SessionLog.CHECKPOINT, "model.ckpt-1")
    assert log == pickle.loads(pickle.dumps(log))
    with pytest.raises(TypeError, match="unhashable type: 'SessionLog'"):
        hash(log)
    event = Event(step=1, summary=Summary(value=[Summary.Value("loss", 0.5)]))
    assert pickle.loads(pickle.dumps(event)) == event


def test_a_summary_is_put_together_piece_by_piece_as_in_tf1() -> None:
    summary = Summary()
    assert summary.ParseFromString(Summary([Summary.Value("loss", 0.5)]).SerializeToString()) == 13
    value = summary.value.add(tag="rate", simple_value=0.1)
    value.simple_value = 0.25
    summary.value.add(tag="n").simple_value = 3.0
    assert Summary.FromString(summary.SerializeToString()) == summary
    assert [(value.tag, value.simple_value) for value in summary.value] == [
        ("loss", 0.5),
        ("rate", 0.25),
        ("n", 3.0),
    ]
    assert summary.value[0] == Summary.Value("loss", 0.5)
    assert not Event().summary.value, "what was added is of this summary only"
    assert not Summary().HasField("value")
    Summary().value.add(tag="x")
    assert Summary().value == []


@pytest.mark.parametrize(
    ("args", "values"), [((1, "a", "b", 2), {}), ((1,), {"status": 2}), ((), {"statuss": 1})]
)
def test_fields_are_given_once_and_by_their_names(args: Any, values: Any) -> None:
    with pytest.raises(TypeError, match="SessionLog takes each of status, checkpoint_path, msg once"):
        SessionLog(*args, **values)
    with pytest.raises(AttributeError, match="Value has no field 'simple'"):
        Summary.Value().simple = 1.0
    with pytest.raises(TypeError, match="unhashable type: 'Summary'"):
        hash(Summary())


def test_a_histogram_is_filled_field_by_field_as_in_tf1() -> None:
    counts, edges = np.histogram(np.arange(10.0), bins=3)
    histogram = HistogramProto()
    histogram.min, histogram.max = 0.0, np.float64(9.0)
    histogram.num = 10
    histogram.sum, histogram.sum_squares = 45.0, 285.0
    for edge in edges[1:]:
        histogram.bucket_limit.append(edge)
    histogram.bucket.extend(counts)
    summary = Summary(value=[Summary.Value(tag="h", histo=histogram)])
    proto = event_pb2.Event.FromString(Event(summary=summary).SerializeToString())
    assert list(proto.summary.value[0].histo.bucket_limit) == [3.0, 6.0, 9.0]
    assert list(proto.summary.value[0].histo.bucket) == [3.0, 3.0, 4.0]
    assert proto.summary.value[0].histo.num == 10


def test_an_event_is_filled_through_its_parts() -> None:
    event = Event(wall_time=1.5, step=np.int64(3))
    assert event.WhichOneof("what") is None
    event.summary.value.add(tag="loss", simple_value=0.5)
    assert event.WhichOneof("what") == "summary"
    other = Event()
    other.summary.CopyFrom(event.summary)
    event.summary.value[0].tag = "changed"
    assert [value.tag for value in other.summary.value] == ["loss"]
    other.summary.MergeFrom(event.summary)
    assert [value.tag for value in other.summary.value] == ["loss", "changed"]
    event.session_log.status = SessionLog.STOP
    log = Event.FromString(Event(session_log=event.session_log).SerializeToString())
    assert log.session_log.status == SessionLog.STOP


def test_reading_a_part_sets_nothing_and_assigning_another_of_the_group_unsets_it() -> None:
    value = Summary.Value(tag="x")
    assert (value.image.height, value.histo.bucket) == (0, [])
    assert value.metadata.plugin_data.plugin_name == ""
    assert value == Summary.Value(tag="x")
    assert value.SerializeToString() == Summary.Value(tag="x").SerializeToString()
    value.image.height = 3
    assert value.WhichOneof("value") == "image"
    value.simple_value = 1.0
    assert value.WhichOneof("value") == "simple_value"
    assert value.image.height == 0
    value.ClearField("simple_value")
    assert [field.name for field, _ in value.ListFields()] == ["tag"]
    value.Clear()
    assert value.tag == ""


def test_merging_merges_nested_messages_and_sets_what_is_set() -> None:
    metadata = SummaryMetadata(display_name="a", plugin_data=PluginData(plugin_name="p"))
    metadata.MergeFrom(SummaryMetadata(plugin_data=PluginData(content=b"c"), summary_description="s"))
    assert metadata == SummaryMetadata(PluginData("p", b"c"), "a", "s")
    size = metadata.ByteSize()
    assert metadata.MergeFromString(b"") == 0
    assert metadata.ByteSize() == size == len(metadata.SerializeToString())


@given(events)
def test_the_text_is_protobufs(event: Event) -> None:
    read = text_format.Parse(str(event), event_pb2.Event())
    assert read == event_pb2.Event.FromString(event.SerializeToString())


def test_the_text_names_what_has_a_name() -> None:
    text = str(Event(step=3, session_log=SessionLog(SessionLog.START, 'a"\n')))
    assert text == 'step: 3\nsession_log {\n  status: START\n  checkpoint_path: "a\\"\\n"\n}\n'


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Summary.Value(simple_value="x"), "Field 'simple_value' takes a float, got 'x'"),
        (Summary.Value(tag=5), "Field 'tag' takes a text, got 5"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_when_it_is_written(message: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        message.SerializeToString()


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Summary(value=[3]), TypeError, "Field 'value' takes a message, got 3"),
        (lambda: Event(summary=3), TypeError, "expected Summary or a dict"),
        (lambda: HistogramProto(bucket=["x"]), TypeError, "Field 'bucket' takes a double, got 'x'"),
        (lambda: HistogramProto().bucket.append(b"1"), TypeError, "must be real number, not bytes"),
        (lambda: TensorProto().string_val.extend(["x"]), TypeError, "expected bytes, str found"),
        (
            lambda: TensorProto().int64_val.append(1 << 63),
            ValueError,
            "out of range: 9223372036",
        ),
        (lambda: Event().ClearField("stepp"), ValueError, "Event has no field 'stepp'"),
        (lambda: Event().WhichOneof("step"), ValueError, "Event has no oneof 'step'"),
        (lambda: Event().MergeFrom(Summary()), TypeError, "Expected Event, got Summary"),
    ],
)
def test_wrong_elements_and_names_are_refused_at_once(make: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_lists_change_in_place_and_hold_copies() -> None:
    proto = TensorProto(int64_val=[1, 2])
    proto.int64_val[0] = np.int64(3)
    proto.int64_val[1:] = (4, True)
    proto.int64_val.insert(0, 5)
    proto.int64_val += [6]
    assert proto.int64_val == [5, 3, 4, 1, 6]
    summary, value = Summary(), Summary.Value("loss", 0.5)
    summary.value.append(value)
    value.tag = "changed"
    assert summary == Summary(value=[{"tag": "loss", "simple_value": 0.5}])
    assert pickle.loads(pickle.dumps(summary.value)) == summary.value


def test_a_map_checks_its_keys_and_changes_in_place() -> None:
    stats = DeviceStepStats(thread_names={1: "one"})
    stats.thread_names[np.int64(2)] = "two"
    stats.thread_names.MergeFrom({3: "three"})
    assert DeviceStepStats.FromString(stats.SerializeToString()).thread_names == {
        1: "one", 2: "two", 3: "three",
    }  # fmt: skip
    with pytest.raises(TypeError, match="Field 'key' takes a int, got 'x'"):
        stats.thread_names["x"] = "four"
    with pytest.raises(KeyError, match="5"):
        _ = stats.thread_names[5]
    with pytest.raises(TypeError, match="expected str, int found"):
        DeviceStepStats(thread_names={1: 1})


def test_a_group_has_a_field_and_is_cleared_by_its_name() -> None:
    event = Event(file_version="1")
    assert event.HasField("what")
    event.ClearField("what")
    assert not event.HasField("what")


def test_numbers_in_the_text_are_as_short_as_they_can_be() -> None:
    numbers = (3.0, 0.1, 1e20, 123456792.0, math.inf)
    values = [Summary.Value(simple_value=number) for number in numbers]
    shown = [str(value).split()[1] for value in values]
    assert shown == ["3", "0.1", "1e+20", "123456792", "inf"]
