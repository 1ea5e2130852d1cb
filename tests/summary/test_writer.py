"""What a FileWriter puts into a file, and when."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.meta_graph_pb2 import MetaGraphDef

from asyncmon.graph import Graph, constant
from asyncmon.summary import Event, FileWriter, SessionLog, Summary, summary_iterator
from asyncmon.testing import assert_nothing_left_behind
from asyncmon.testing.pytest_plugin import VirtualTime

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

Scalars = list[tuple[int, str, float]]


async def test_a_file_begins_with_its_version_fw_1(
    tmp_path: Path, event_files: Callable[[], list[Path]]
) -> None:
    """FW-1: ``events.out.tfevents.<secs>.<host>...<suffix>``, first record ``brain.Event:2``."""
    directory = tmp_path / "new" / "logs"
    async with assert_nothing_left_behind(), FileWriter(directory, filename_suffix=".v0") as writer:
        (path,) = event_files()
        assert str(path) == writer.path
    assert path.name.startswith(f"events.out.tfevents.1700000000.{socket.gethostname()}.{os.getpid()}.")
    assert path.name.endswith(".v0")
    (first,) = summary_iterator(path)
    assert first == Event(wall_time=1_700_000_000, file_version="brain.Event:2")


async def test_construction_only_stores_its_arguments(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path / "logs", graph_def=b"")
    assert not (tmp_path / "logs").exists()
    assert writer.get_logdir() == str(tmp_path / "logs")
    await writer.close()
    assert writer.closed


async def test_an_event_has_the_time_and_step_of_its_add_fw_10(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    """FW-10, FW-2."""
    async with FileWriter(tmp_path) as writer:
        writer.add_scalar("loss", np.float32(0.5), 3)
        await asyncio.sleep(60)
        writer.add_summary(Summary(value=[Summary.Value("loss", 0.25)]), np.int64(4))
        writer.add_summary(Summary(value=[Summary.Value("loss", 0.125)]).SerializeToString())
    assert events() == [
        Event(1_700_000_000, 3, summary=Summary([Summary.Value("loss", 0.5)])),
        Event(1_700_000_060, 4, summary=Summary([Summary.Value("loss", 0.25)])),
        Event(1_700_000_060, 0, summary=Summary([Summary.Value("loss", 0.125)])),
    ]


async def test_flush_waits_for_what_was_added_before(
    tmp_path: Path, scalars: Callable[[], Scalars], virtual_time: VirtualTime
) -> None:
    async with FileWriter(tmp_path, flush_secs=1000) as writer:
        writer.add_scalar("loss", 1.0, 1)
        await writer.flush()
        assert scalars() == [(1, "loss", 1.0)]
        await writer.flush()
    assert virtual_time.now() == 0


async def test_an_add_opens_the_file_by_itself(tmp_path: Path, scalars: Callable[[], Scalars]) -> None:
    writer = FileWriter(tmp_path)
    writer.add_scalar("loss", 1.0, 1)
    await writer.flush()
    assert scalars() == [(1, "loss", 1.0)]
    await writer.close()


async def test_a_thread_may_add(tmp_path: Path, scalars: Callable[[], Scalars]) -> None:
    async with FileWriter(tmp_path, max_queue=2) as writer:
        await asyncio.gather(
            *(asyncio.to_thread(writer.add_scalar, "loss", float(n), n) for n in range(20))
        )
    assert sorted(scalars()) == [(n, "loss", float(n)) for n in range(20)]


async def test_close_is_idempotent_and_later_adds_warn_fw_4(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    """FW-4."""
    writer = FileWriter(tmp_path)
    await writer.open()
    await writer.close()
    await writer.close()
    with pytest.warns(UserWarning, match="Attempting to use a closed FileWriter") as caught:
        writer.add_scalar("loss", 1.0, 1)
    with pytest.warns(UserWarning, match="unless the FileWriter is explicitly reopened"):
        writer.add_text("note", "too late")
    with pytest.warns(UserWarning, match="The operation will be a noop"):
        await writer.flush()
    assert os.path.basename(caught[0].filename) == "test_writer.py"
    assert events() == []


async def test_reopen_begins_a_new_file_even_in_the_same_second_fw_4(
    tmp_path: Path, event_files: Callable[[], list[Path]], scalars: Callable[[], Scalars]
) -> None:
    """FW-4: and files sort in the order they were made, as TensorBoard reads them."""
    writer = FileWriter(tmp_path)
    made = []
    for step in range(12):
        await writer.reopen()
        await writer.reopen()  # an open writer continues
        writer.add_scalar("loss", 1.0, step)
        made.append(writer.path)
        await writer.close()
    assert [str(path) for path in event_files()] == made
    assert [step for step, _, _ in scalars()] == list(range(12))


async def test_start_is_written_once_with_the_step_that_comes_next(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    """FW-9, MT-16: START before anything with a step, and STOP at the end."""
    async with FileWriter(tmp_path) as writer:
        writer.start(250)
        writer.start(250)
        writer.add_scalar("loss", 1.0, 251)
        writer.add_session_log(SessionLog(SessionLog.CHECKPOINT, "model.ckpt-251"), 251)
        writer.start(251)
    assert [(event.step, event.session_log.status) for event in events()] == [
        (251, SessionLog.START),
        (251, 0),
        (251, SessionLog.CHECKPOINT),
        (0, SessionLog.STOP),
    ]


async def test_start_is_written_again_after_a_recovery_to_an_earlier_step(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    """FW-9: TensorBoard then forgets what the lost steps wrote."""
    async with FileWriter(tmp_path) as writer:
        writer.start(0)
        for step in (1, 2, 3):
            writer.add_scalar("loss", 1.0, step)
        writer.start(2)
        writer.start(2)
        writer.add_scalar("loss", 2.0, 3)
    steps = [event.step for event in events() if event.session_log.status == SessionLog.START]
    assert steps == [1, 3]


async def test_a_session_without_steps_starts_once(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    async with FileWriter(tmp_path) as writer:
        writer.start(None)
        writer.add_scalar("loss", 1.0, 5)
        writer.start(None)
    assert [event.session_log.status for event in events()] == [SessionLog.START, 0, SessionLog.STOP]


async def test_a_stop_that_was_added_is_not_written_twice(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    async with FileWriter(tmp_path) as writer:
        writer.start(0)
        writer.add_event(Event(5.0, 7, session_log=SessionLog(SessionLog.STOP)))
    assert [(event.step, event.wall_time) for event in events()][1:] == [(7, 5.0)]


class _Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.type = "NoOp"


class _Graph:
    def __init__(self, *names: str) -> None:
        self.nodes = [_Node(name) for name in names]

    def get_operations(self) -> list[_Node]:
        return self.nodes


async def test_the_same_graph_is_written_once_a_file(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    graph = _Graph("a")
    async with FileWriter(tmp_path, graph) as writer:
        writer.add_graph(graph)
        writer.add_graph(graph)
        assert len(events()) == 1  # given at construction, it is the first event
        graph.nodes.append(_Node("b"))
        writer.add_graph(graph)
    await writer.reopen()
    writer.add_graph(graph)
    await writer.close()
    assert [event.graph_def.count(b"NoOp") for event in events()] == [1, 2, 2]


async def test_a_tag_of_run_metadata_is_used_once_fw_5(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    """FW-5."""
    async with FileWriter(tmp_path) as writer:
        writer.add_run_metadata(b"m", "step_1", 1)
        with pytest.raises(ValueError, match="The provided tag was already used for this event type"):
            writer.add_run_metadata(b"n", "step_1", 2)
    (event,) = events()
    assert (event.tagged_run_metadata.tag, event.tagged_run_metadata.run_metadata) == ("step_1", b"m")


async def test_a_graph_becomes_a_meta_graph(tmp_path: Path, events: Callable[[], list[Event]]) -> None:
    async with FileWriter(tmp_path) as writer:
        with Graph().as_default() as graph:
            constant(1.0)
        writer.add_meta_graph(graph)
        with pytest.raises(TypeError, match="must be an instance of `Graph`"):
            writer.add_meta_graph("graph")
    meta = MetaGraphDef.FromString(events()[0].meta_graph_def)
    assert meta.graph_def.node[0].name == graph.get_operations()[0].name


async def test_a_meta_graph_is_written_as_it_is(
    tmp_path: Path, events: Callable[[], list[Event]]
) -> None:
    async with FileWriter(tmp_path) as writer:
        writer.add_meta_graph(b"meta", 1)
    assert events()[0].meta_graph_def == b"meta"


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"max_queue": 0}, ValueError, "max_queue=0"),
        ({"flush_secs": -1}, ValueError, "flush_secs=-1"),
        ({"logdir": ""}, ValueError, "logdir=''"),
        ({"logdir": 3}, TypeError, "str, bytes or os.PathLike"),
        ({"graph": _Graph(), "graph_def": b""}, ValueError, "Please pass only graph, or graph_def"),
        ({"graph": "graph"}, TypeError, "must be an instance of `Graph`"),
    ],
)
async def test_an_argument_that_cannot_be_is_refused(
    kwargs: dict[str, Any], error: type[Exception], message: str
) -> None:
    """FW-12."""
    with pytest.raises(error, match=message):
        FileWriter(**{"logdir": "x", **kwargs})


@pytest.mark.parametrize(
    ("add", "error", "message"),
    [
        (lambda w: w.add_summary("text"), TypeError, "bytes that a summary op returned"),
        (lambda w: w.add_summary(b"garbage"), ValueError, "7 bytes were passed that are no serialized"),
        (lambda w: w.add_event("e"), TypeError, "An Event was expected, not str"),
        (lambda w: w.add_session_log("START"), TypeError, "A SessionLog was expected, not str"),
        (lambda w: w.add_scalar("x", [1.0]), TypeError, "'x' was given"),
        (lambda w: w.add_scalar("x", np.ones(1)), ValueError, r"'x' was given a value of shape \[1\]"),
        (lambda w: w.add_scalar("x", "1"), TypeError, "text is not converted"),
        (lambda w: w.add_scalar("", 1.0), TypeError, "tag=''"),
        (lambda w: w.add_histogram("h", ["a"]), TypeError, "expected real numbers"),
        (lambda w: w.add_image("i", np.zeros((2, 2, 2))), ValueError, "last dim 1, 3, or 4"),
        (lambda w: w.add_image("i", np.zeros((2, 2), int)), TypeError, "uint8 or floats"),
        (lambda w: w.add_text("t", 3), TypeError, "expected strings"),
        (lambda w: w.add_hparams({"lr": [1]}), TypeError, "hyperparameter 'lr'"),
        (lambda w: w.add_graph(3), TypeError, "must be an instance of `Graph`"),
    ],
)
async def test_what_cannot_be_written_is_refused_by_the_add_fw_6(
    tmp_path: Path, add: Callable[[FileWriter], None], error: type[Exception], message: str
) -> None:
    """FW-6, SU-4: at once, not later in a thread."""
    async with FileWriter(tmp_path) as writer:
        with pytest.raises(error, match=message):
            add(writer)
