"""The description of a cluster, with the results and errors of TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import asyncmon as am
from asyncmon.distributed import ClusterSpec
from asyncmon.protobuf.cluster_def import ClusterDef, JobDef

FULL: dict[str, Any] = {
    "ps": ["a:1", "b:2"],
    "worker": ("w:0",),
    "gaps": {3: "q:1", "1": "p:1"},
    "e": [],
}


def test_every_form_of_tasks() -> None:
    cluster = ClusterSpec(FULL)
    assert cluster.jobs == ["ps", "worker", "gaps", "e"]
    assert [cluster.num_tasks(job) for job in cluster.jobs] == [2, 1, 2, 0]
    assert [cluster.task_indices(job) for job in cluster.jobs] == [[0, 1], [0], [1, 3], []]
    assert cluster.job_tasks("gaps") == [None, "p:1", None, "q:1"]
    assert cluster.job_tasks("e") == []
    assert cluster.task_address("gaps", 3) == "q:1"
    assert cluster.as_dict() == {**FULL, "worker": ["w:0"], "gaps": {1: "p:1", 3: "q:1"}, "e": {}}
    text = "{'e': {}, 'gaps': {1: 'p:1', 3: 'q:1'}, 'ps': ['a:1', 'b:2'], 'worker': ['w:0']}"
    assert repr(cluster) == f"ClusterSpec({text})"
    assert repr(ClusterSpec({"a": {1: "y", 0: "x"}})) == "ClusterSpec({'a': ['x', 'y']})"


def test_a_cluster_def_is_kept_and_a_spec_is_copied() -> None:
    definition = ClusterDef(
        job=[JobDef(name="ps", tasks={0: "a:1", 2: "c:3"}), JobDef(name="b", tasks={0: "w:1"})]
    )
    cluster = ClusterSpec(definition)
    assert cluster.as_dict() == {"ps": {0: "a:1", 2: "c:3"}, "b": ["w:1"]}
    assert cluster.as_cluster_def() is definition
    copied = ClusterSpec(cluster)
    assert copied == cluster
    assert copied.jobs == ["ps", "b"]
    assert copied.as_cluster_def() == definition
    assert copied.as_cluster_def() is not definition


def test_the_bytes_and_the_text_of_a_cluster_def_are_protobufs() -> None:
    definition = ClusterSpec({"worker": ["w:0"], "ps": {1: b"b:2", 0: "a:1"}}).as_cluster_def()
    data = definition.SerializeToString()
    assert data == (
        b"\n\x16\n\x02ps\x12\x07\x08\x00\x12\x03a:1\x12\x07\x08\x01\x12\x03b:2"
        b"\n\x11\n\x06worker\x12\x07\x08\x00\x12\x03w:0"
    )
    assert ClusterDef.FromString(data) == definition
    assert str(definition).startswith(
        'job {\n  name: "ps"\n  tasks {\n    key: 0\n    value: "a:1"\n  }\n'
    )


def test_bytes_are_text_once_they_were_a_cluster_def() -> None:
    cluster = ClusterSpec({"ps": [b"a:1"]})
    assert cluster.as_dict() == {"ps": [b"a:1"]}
    assert ClusterSpec(cluster).as_dict() == {"ps": ["a:1"]}


def test_equality_and_truth() -> None:
    cluster = ClusterSpec({"a": ["b"]})
    assert cluster == ClusterSpec({"a": {0: "b"}}) == {"a": {0: "b"}}
    assert cluster != {"a": ["b"]}
    assert cluster != ClusterSpec({"a": ["c"]})
    assert cluster != None  # noqa: E711  what __eq__ says is what matters
    assert cluster
    assert ClusterSpec({"a": []})
    assert not ClusterSpec({})
    with pytest.raises(TypeError, match="unhashable type: 'ClusterSpec'"):
        hash(cluster)


@pytest.mark.parametrize("cluster", [None, [], "ps", 5])
def test_no_cluster(cluster: Any) -> None:
    with pytest.raises(TypeError, match="`cluster` must be a dictionary mapping one or more job"):
        ClusterSpec(cluster)


@pytest.mark.parametrize(
    ("cluster", "error", "text"),
    [
        ({"a": "b:1"}, TypeError, "The tasks for job 'a' must be a list or a dictionary from integers"),
        ({"a": None}, TypeError, "The tasks for job 'a' must be a list or a dictionary from integers"),
        ({"a": [5]}, TypeError, "Task address 5 must be bytes or unicode"),
        ({"a": [None]}, TypeError, "Task address None must be bytes or unicode"),
        ({5: ["a"]}, TypeError, "Job name 5 must be bytes or unicode"),
        ({"a": {"z": "x"}}, ValueError, "invalid literal for int"),
        ({"a": {1 << 31: "x"}}, ValueError, "Value out of range: 2147483648"),
        ({"a": [b"\xff"]}, ValueError, "'utf-8' codec can't decode"),
    ],
)
def test_clusters_that_are_not_valid(cluster: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ClusterSpec(cluster)


@pytest.mark.parametrize("method", ["num_tasks", "task_indices", "job_tasks"])
def test_a_job_that_there_is_not(method: str) -> None:
    with pytest.raises(ValueError, match="No such job in cluster: 'x'"):
        getattr(ClusterSpec(FULL), method)("x")


def test_a_task_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="No such job in cluster: 'x'"):
        ClusterSpec(FULL).task_address("x", 0)
    with pytest.raises(ValueError, match="No task with index 3 in job 'ps'"):
        ClusterSpec(FULL).task_address("ps", 3)


def test_its_names() -> None:
    assert am.ClusterSpec is am.distributed.ClusterSpec is ClusterSpec


def test_grpc_is_not_imported() -> None:
    code = "import sys, asyncmon; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
