"""Summary ops: TF1's tags and collections, and values that FileWriter takes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon import summary
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import get_collection, name_scope
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.ops.basic import placeholder
from asyncmon.graph.session.session import Session
from asyncmon.summary.events import PluginData

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


async def run(op: Any, feed_dict: Any = None) -> summary.Summary:
    async with Session(graph=op.graph) as session:
        data = await session.run(op, feed_dict)
    assert type(data) is bytes
    return summary.Summary.FromString(data)


def tag(op: Tensor) -> Any:
    return op.op.get_attr("tag")


async def test_the_tag_is_the_scoped_unique_name_su_1() -> None:
    """SU-1."""
    assert tag(summary.scalar("dup", 1.0)) == "dup"
    assert tag(summary.scalar("dup", 1.0)) == "dup_1"
    with name_scope("outer"):
        op = summary.scalar("x", 1.0)
    assert (tag(op), op.name) == ("outer/x", "outer/x:0")
    assert (await run(op)).value == (summary.Summary.Value("outer/x", 1.0),)


async def test_a_summary_is_in_summaries_unless_collections_are_given_su_1() -> None:
    """SU-1."""
    first = summary.scalar("a", 1.0)
    other = summary.histogram("b", 1.0, collections=["mine", "yours"])
    nowhere = summary.text("c", "x", collections=[])
    image = summary.image("d", np.zeros((1, 2, 2, 1), np.uint8))
    assert get_collection(GraphKeys.SUMMARIES) == [first, image]
    assert get_collection("mine") == get_collection("yours") == [other]
    assert nowhere.op.type == "TensorSummaryV2"


async def test_a_family_comes_first_su_2() -> None:
    """SU-2."""
    op = summary.scalar("x", 1.0, family="fam")
    assert (tag(op), op.name) == ("fam/fam/x", "fam/x:0")
    with name_scope("outer"):
        op = summary.histogram("x", 1.0, family="fam")
    assert (tag(op), op.name) == ("fam/outer/fam/x", "outer/fam/x:0")


async def test_illegal_characters_become_underscores_su_3(caplog: pytest.LogCaptureFixture) -> None:
    """SU-3."""
    caplog.set_level(logging.INFO, "asyncmon")
    assert tag(summary.scalar("bad name!", 1.0)) == "bad_name_"
    assert tag(summary.scalar("//lead", 1.0)) == "lead"
    assert [record.getMessage() for record in caplog.records] == [
        "Summary name bad name! is illegal; using bad_name_ instead.",
        "Summary name //lead is illegal; using lead instead.",
    ]


async def test_a_scalar_of_more_than_one_number_is_refused_su_4() -> None:
    """SU-4: when the op is built if its shape is known then, else in the run."""
    with pytest.raises(ValueError, match=r"not the same shape: \[\] != \[2\] \(tag 'loss'\)"):
        summary.scalar("loss", [1.0, 2.0])
    x = placeholder(dtypes.float32)
    op = summary.scalar("later", x)
    with pytest.raises(InvalidArgumentError, match=r"\[\] != \[1\] \(tag 'later'\)"):
        await run(op, {x: [1.0]})


@pytest.mark.parametrize("build", [summary.scalar, summary.histogram])
async def test_what_is_no_real_number_is_refused(build: Any) -> None:
    with pytest.raises(TypeError, match="expected real numbers"):
        build("x", "text")
    with pytest.raises(TypeError, match="complex128 values; expected real numbers"):
        build("x", 1j)


async def test_integers_are_summarised_too() -> None:
    assert (await run(summary.scalar("n", 3))).value[0].simple_value == 3.0


async def test_a_histogram_has_its_values() -> None:
    x = placeholder(dtypes.float32, [None])
    (value,) = (await run(summary.histogram("h", x), {x: [1.0, 2.0, 4.0]})).value
    assert (value.tag, value.histo.num, value.histo.sum) == ("h", 3.0, 7.0)


async def test_nan_in_a_histogram_does_not_end_the_run_su_5(caplog: pytest.LogCaptureFixture) -> None:
    """SU-5."""
    x = placeholder(dtypes.float32, [None])
    histogram, loss = summary.histogram("diverged", x), summary.scalar("loss", 0.5)
    merged = await run(summary.merge([histogram, loss]), {x: [1.0, math.nan]})
    assert [value.tag for value in merged.value] == ["loss"]
    assert "Nan in summary histogram for: diverged" in caplog.text


async def test_images_are_pngs_with_tf1s_tags_su_6() -> None:
    """SU-6."""
    batch = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    values = (await run(summary.image("i", batch))).value
    assert [value.tag for value in values] == ["i/image/0", "i/image/1"]
    assert values[0].image.encoded_image_string.startswith(b"\x89PNG")
    (value,) = (await run(summary.image("one", batch, max_outputs=1))).value
    assert (value.tag, value.image.height, value.image.width) == ("one/image", 3, 4)


async def test_what_is_no_batch_of_images_is_refused_su_6() -> None:
    """SU-6."""
    with pytest.raises(ValueError, match="Tensor must be 4-D with last dim 1, 3, or 4, not"):
        summary.image("i", np.zeros((2, 2, 1), np.float32))
    with pytest.raises(ValueError, match="last dim 1, 3, or 4"):
        summary.image("i", np.zeros((1, 2, 2, 2), np.float32))
    with pytest.raises(TypeError, match="int32 values; expected uint8 or floats"):
        summary.image("i", np.zeros((1, 2, 2, 1), np.int32))
    with pytest.raises(ValueError, match="max_outputs=0"):
        summary.image("i", np.zeros((1, 2, 2, 1), np.uint8), max_outputs=0)
    x = placeholder(dtypes.float32)
    with pytest.raises(InvalidArgumentError, match="last dim 1, 3, or 4, not"):
        await run(summary.image("i", x), {x: np.zeros((2, 2))})


async def test_text_is_of_strings_su_7() -> None:
    """SU-7."""
    (value,) = (await run(summary.text("t", ["a", "b"]))).value
    assert (value.tag, list(value.tensor.string_val)) == ("t", [b"a", b"b"])
    assert value.metadata.plugin_data.plugin_name == "text"
    with pytest.raises(ValueError, match=r"Expected tensor .* to have dtype string, got .*float32"):
        summary.text("t", 1.0)


async def test_sound_is_wav_with_tf1s_tags_su_10() -> None:
    """SU-10."""
    batch = np.zeros((2, 5, 2), np.float32)
    values = (await run(summary.audio("a", batch, 8000))).value
    assert [value.tag for value in values] == ["a/audio/0", "a/audio/1"]
    sound = values[0].audio
    assert (sound.sample_rate, sound.num_channels, sound.length_frames) == (8000.0, 2, 5)
    assert (sound.content_type, sound.encoded_audio_string[:4]) == ("audio/wav", b"RIFF")
    (value,) = (await run(summary.audio("one", batch[..., 0], 8000, max_outputs=1))).value
    assert (value.tag, value.audio.num_channels) == ("one/audio", 1)


async def test_what_is_no_sound_is_refused_su_10() -> None:
    """SU-10."""
    with pytest.raises(ValueError, match=r"Tensor must be 3-D or 2-D, got: \[5\]"):
        summary.audio("a", np.zeros(5, np.float32), 8000)
    with pytest.raises(TypeError, match="int32 values; expected float32"):
        summary.audio("a", np.zeros((1, 5), np.int32), 8000)
    with pytest.raises(ValueError, match="max_outputs=0"):
        summary.audio("a", np.zeros((1, 5), np.float32), 8000, max_outputs=0)
    rate = placeholder(dtypes.float32, [])
    op = summary.audio("a", np.zeros((1, 5), np.float32), rate)
    with pytest.raises(InvalidArgumentError, match="sample_rate must be > 0, got 0"):
        await run(op, {rate: 0.0})


async def test_a_tensor_is_kept_as_it_is_with_its_metadata_su_10() -> None:
    """SU-10."""
    plugin = summary.SummaryMetadata(plugin_data=PluginData("mine", b"content"))
    op = summary.tensor_summary(
        "t", [1.0, 2.0], "what it is", summary_metadata=plugin, family="fam", display_name="T"
    )
    (value,) = (await run(op)).value
    assert (tag(op), value.tag) == ("fam/fam/t", "fam/fam/t")
    assert np.frombuffer(value.tensor.tensor_content, "<f4").tolist() == [1.0, 2.0]
    assert value.metadata.plugin_data == PluginData("mine", b"content")
    assert (value.metadata.summary_description, value.metadata.display_name) == ("what it is", "T")
    assert op in get_collection(GraphKeys.SUMMARIES)


@pytest.mark.parametrize("name", [None, ""])
async def test_a_summary_needs_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="a summary needs a name, which is its tag"):
        summary.scalar(name, 1.0)


async def test_merge_puts_values_together_and_is_in_no_collection_su_8() -> None:
    """SU-8."""
    first, second = summary.scalar("a", 1.0), summary.scalar("b", 2.0)
    op = summary.merge([first, second])
    assert op.name == "Merge/MergeSummary:0"
    assert summary.merge([first], name="my merge").name == "my_merge/my_merge:0"
    assert [value.tag for value in (await run(op)).value] == ["a", "b"]
    assert [value.tag for value in (await run(summary.merge([op]))).value] == ["a", "b"]
    assert get_collection(GraphKeys.SUMMARIES) == [first, second]
    assert get_collection(GraphKeys.SUMMARY_OP) == []
    assert summary.merge([first], [GraphKeys.SUMMARY_OP]) in get_collection(GraphKeys.SUMMARY_OP)


async def test_duplicate_tags_are_refused_su_8() -> None:
    """SU-8."""
    op = summary.scalar("q", 1.0)
    with pytest.raises(InvalidArgumentError, match="Duplicate tag q found in summary inputs"):
        await run(summary.merge([op, op]))
    with pytest.raises(TypeError, match="Expected summaries, which are strings, got float32"):
        summary.merge([1.0])
    with pytest.raises(ValueError, match="no summaries"):
        summary.merge([])


async def test_summaries_that_were_fetched_may_be_merged_when_fed() -> None:
    x = placeholder(dtypes.string, [])
    data = summary.Summary([summary.Summary.Value("a", 1.0)]).SerializeToString()
    merged = await run(summary.merge([x]), {x: data})
    assert merged.value[0].tag == "a"


async def test_merge_all_takes_those_of_a_scope_or_all_or_is_none_su_9() -> None:
    """SU-9."""
    assert summary.merge_all() is None
    first = summary.scalar("a", 1.0)
    with name_scope("outer"):
        second = summary.scalar("b", 1.0)
    merged = summary.merge_all()
    assert merged is not None
    assert merged.op.inputs == (first, second)
    scoped = summary.merge_all(scope="out")
    assert scoped is not None
    assert scoped.op.inputs == (second,)
    assert summary.merge_all(key="other") is None


async def test_what_a_run_returns_is_what_add_summary_takes(tmp_path: Path, graph: Graph) -> None:
    x = placeholder(dtypes.float32, [])
    op = summary.scalar("loss", x)
    async with Session(graph=graph) as session, summary.FileWriter(tmp_path, graph) as writer:
        for step in (1, 2):
            writer.add_summary(await session.run(op, {x: 1 / step}), step)
        await writer.flush()
        events = list(summary.summary_iterator(str(writer.path)))
    assert [event.summary.value[0].simple_value for event in events[2:]] == [1.0, 0.5]
    assert events[1].graph_def
