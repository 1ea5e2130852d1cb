"""JsonlWriter: what hooks write, as lines of JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver
from asyncmon.hooks import CheckpointSaverHook, JsonlWriter, StepCounterHook, SummarySaverHook
from asyncmon.summary import HistogramProto, SessionLog, Summary
from asyncmon.summary.events import Image, TensorProto, Value
from asyncmon.testing import ScriptedSession, assert_nothing_left_behind
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

EPOCH = 1_700_000_000.0


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_hooks_write_to_it(
    train: Train, tmp_path: Path, lasting: Callable[..., Iterable[Any]]
) -> None:
    path = tmp_path / "logs" / "train.jsonl"
    writer = JsonlWriter(path)
    hooks = [
        SummarySaverHook(2, summary_writer=writer, summary_op={"loss": "loss"}),
        StepCounterHook(2, summary_writer=writer),
    ]
    async with assert_nothing_left_behind(tmp_path), writer:
        await train(*hooks, runs=3, session=ScriptedSession(lasting(1), values={"loss": 0.5}))
    assert read(path) == [
        {"step": 0, "time": EPOCH, "event": "start"},
        {"step": 1, "time": EPOCH + 1, "loss": 0.5},
        {"step": 3, "time": EPOCH + 3, "loss": 0.5},
        {"step": 3, "time": EPOCH + 3, "global_step/sec": 1.0},
    ]


async def test_the_step_may_be_what_a_run_returned(tmp_path: Path) -> None:
    async with JsonlWriter(tmp_path / "x") as writer:
        writer.add_scalar("a", np.float32(0.5), np.int64(3))
    assert read(tmp_path / "x") == [{"step": 3, "time": EPOCH, "a": 0.5}]


async def test_it_lives_before_and_after_a_loop(tmp_path: Path) -> None:
    """A line that came before any loop, one that was left in a loop that ended, one in the next."""
    writer = JsonlWriter(tmp_path / "x", flush_secs=5)

    async def add(step: int) -> None:
        writer.add_scalar("a", 1.0, step)

    def live() -> None:
        writer.add_scalar("a", 1.0, 1)
        asyncio.run(add(2))

    await asyncio.to_thread(live)
    writer.add_scalar("a", 1.0, 3)
    await writer.close()
    assert [line["step"] for line in read(tmp_path / "x")] == [1, 2, 3]


async def test_summaries_of_all_kinds(tmp_path: Path) -> None:
    values = [
        Value(tag="scalar", simple_value=0.5),
        Value(tag="histogram", histo=HistogramProto(min=-1, max=3, num=4, sum=8)),
        Value(tag="text", tensor=TensorProto(dtype=7, string_val=[b"hello"])),
        Value(tag="texts", tensor=TensorProto(dtype=7, string_val=[b"a", b"b"])),
        Value(tag="image", image=Image(height=1, width=1)),
    ]
    async with JsonlWriter(tmp_path / "x") as writer:
        writer.add_summary(Summary(value=values), 3)
        writer.add_summary(Summary(value=values[:1]).SerializeToString(), 4)
        writer.add_summary(Summary(value=values[-1:]), 5)
    assert read(tmp_path / "x") == [
        {
            "step": 3,
            "time": EPOCH,
            "scalar": 0.5,
            "histogram": {"num": 4, "min": -1, "max": 3, "mean": 2},
            "text": "hello",
            "texts": ["a", "b"],
        },
        {"step": 4, "time": EPOCH, "scalar": 0.5},
    ]


async def test_numbers_that_json_lacks_are_strings(tmp_path: Path) -> None:
    async with JsonlWriter(tmp_path / "x") as writer:
        for value in (float("nan"), float("inf"), float("-inf")):
            writer.add_scalar("a", value)
    assert [line["a"] for line in read(tmp_path / "x")] == ["NaN", "Infinity", "-Infinity"]
    assert all(line["step"] is None for line in read(tmp_path / "x"))


async def test_session_logs(tmp_path: Path) -> None:
    async with JsonlWriter(tmp_path / "x") as writer:
        writer.start(5)
        writer.start(5)
        writer.add_session_log(SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path="m-6"), 6)
    assert [(line["event"], line["step"], line.get("path")) for line in read(tmp_path / "x")] == [
        ("start", 5, None),
        ("checkpoint", 6, "m-6"),
    ]


async def test_a_file_is_continued_also_after_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text('{"step": 1}\n{"ste')
    for value in (1, 2):
        async with JsonlWriter(path) as writer:
            writer.add_scalar("a", value, 2)
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"step": 1}', '{"ste']
    assert [json.loads(line)["a"] for line in lines[2:]] == [1, 2]


async def test_a_cancelled_flush_leaves_whole_lines(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "x")
    for step in range(1000):
        writer.add_scalar("a", 1.0, step)
    flushing = asyncio.create_task(writer.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    writer.add_scalar("a", 1.0, 1000)
    await writer.close()
    assert [line["step"] for line in read(tmp_path / "x")] == list(range(1001))


async def test_what_the_disk_refuses_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "directory"
    blocked.write_text("a file is in the way")
    writer = JsonlWriter(blocked / "x", flush_secs=1)
    writer.add_scalar("a", 1, 1)
    with pytest.raises(OSError, match="directory"):
        await writer.flush()
    assert f"The lines cannot be written to '{tmp_path}" in caplog.text
    blocked.unlink()
    await writer.flush()
    assert [line["a"] for line in read(blocked / "x")] == [1]


async def test_a_checkpoint_hook_needs_no_event_writer_for_it(train: Train, tmp_path: Path) -> None:
    """The two kinds of writer live side by side."""
    writer = JsonlWriter(tmp_path / "x")
    hooks = [
        SummarySaverHook(1, summary_writer=writer, summary_op={"a": "a"}),
        CheckpointSaverHook(tmp_path / "checkpoints", save_steps=1, saver=Saver()),
    ]
    await train(*hooks, runs=1, session=ScriptedSession(values={"a": 1.0}))
    assert [line.get("a") for line in read(tmp_path / "x")] == [None, 1.0]


async def test_two_writers_of_a_file_do_not_mix_their_lines(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    writers = JsonlWriter(tmp_path / "x"), JsonlWriter(tmp_path / "link" / "x")
    for step in range(5_000):
        for writer in writers:
            writer.add_scalar("a", 1.0, step)
    await asyncio.gather(*(writer.flush() for writer in writers))
    assert sorted(line["step"] for line in read(tmp_path / "x")) == sorted([*range(5_000)] * 2)
