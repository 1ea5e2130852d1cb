"""Which task holds which variable, with the devices that TensorFlow gives."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph as tf
from asyncmon.distributed import ClusterSpec, replica_device_setter


def devices(setter: Any) -> list[str]:
    """Return the devices of an op, three variables and some in scopes of their own, inside a setter."""
    found: list[Any] = []
    with tf.Graph().as_default(), tf.device(setter):
        found += [tf.constant(1.0), tf.get_variable("v", initializer=0.0), tf.get_variable("w", [2])]
        found += [tf.get_or_create_global_step()]
        for device in ("/cpu:1", "/job:ps", "/job:other", "/job:ps/task:7", None):
            with tf.device(device):
                found.append(tf.Variable(1.0))
        found.append(tf.Variable(1.0, collections=[tf.GraphKeys.LOCAL_VARIABLES]))
        found.append(found[1] + found[0])
        return [value.device.replace("/job:", "") for value in found]


@pytest.mark.parametrize(
    ("setter", "expected"),
    [
        (
            {"ps_tasks": 2},
            "worker ps/task:0 ps/task:1 ps/task:0 ps/task:1/device:CPU:1 ps/task:0 other ps/task:7  "
            "ps/task:0 worker",
        ),
        (
            {"cluster": {"ps": {1: "b", 3: "c"}, "worker": ["w"]}},
            "worker ps/task:0 ps/task:1 ps/task:0 ps/task:1/device:CPU:1 ps/task:0 other ps/task:7  "
            "ps/task:0 worker",
        ),
        (
            {"ps_tasks": 2, "ps_device": "/job:ps/cpu:0", "worker_device": "/job:worker/task:3/cpu:0"},
            "worker/task:3/device:CPU:0 ps/task:0/device:CPU:0 ps/task:1/device:CPU:0 "
            "ps/task:0/device:CPU:0 ps/task:1/device:CPU:1 ps/task:0/device:CPU:0 other/device:CPU:0 "
            "ps/task:7/device:CPU:0  ps/task:0/device:CPU:0 worker/task:3/device:CPU:0",
        ),
        (
            {"ps_tasks": 2, "ps_device": "/cpu:0"},
            "worker /device:CPU:0 /device:CPU:0 /device:CPU:0 /device:CPU:1 ps/device:CPU:0 "
            "other/device:CPU:0 ps/task:7/device:CPU:0  /device:CPU:0 worker",
        ),
        (
            {"ps_tasks": 2, "ps_device": ""},
            "worker worker worker worker worker/device:CPU:1 ps other ps/task:7  worker worker",
        ),
        (
            {"ps_tasks": 2, "worker_device": ""},
            " ps/task:0 ps/task:1 ps/task:0 ps/task:1/device:CPU:1 ps/task:0 other ps/task:7  "
            "ps/task:0 ",
        ),
        (
            {"ps_tasks": 2, "ps_strategy": lambda op: len(op.name)},
            "worker ps/task:1 ps/task:1 ps/task:11 ps/task:8/device:CPU:1 ps/task:10 other ps/task:7  "
            "ps/task:10 worker",
        ),
        (
            {"ps_tasks": 2, "merge_devices": False},
            "worker ps/task:0 ps/task:1 ps/task:0 /device:CPU:1 ps other ps/task:7  ps/task:1 worker",
        ),
        ({"ps_tasks": 0}, "    /device:CPU:1 ps other ps/task:7   "),
    ],
)
def test_devices(setter: dict[str, Any], expected: str) -> None:
    assert devices(replica_device_setter(**setter)) == expected.split(" ")


def test_ps_ops() -> None:
    with tf.device(replica_device_setter(2, ps_ops=["Const"])):
        assert tf.constant(1).device == "/job:ps/task:0"
        v = tf.Variable(1.0, name="v")
        assert v.device == "/job:worker"
        assert v.initial_value.device == "/job:ps/task:1"


def test_a_scope_outside_fills_what_is_left_open() -> None:
    setter = replica_device_setter(2)
    with tf.device("/job:x/cpu:0"), tf.device(setter):
        assert tf.Variable(1).device == "/job:ps/task:0/device:CPU:0"
        assert tf.constant(1).device == "/job:worker/device:CPU:0"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"ps_tasks": 0, "ps_strategy": 3},
        {"cluster": {}},
        {"cluster": {"worker": ["a"]}},
        {"cluster": {"ps": []}},
        {"cluster": {"ps": ["a"]}, "ps_device": "/job:nope"},
        {"cluster": {"ps": ["a"]}, "ps_device": ""},
    ],
)
def test_there_is_no_function_without_ps_tasks(arguments: dict[str, Any]) -> None:
    assert replica_device_setter(**arguments) is None


def test_a_cluster_is_what_makes_one() -> None:
    cluster = ClusterSpec({"ps": ["a", "b", "c"]})
    for given in (cluster, cluster.as_cluster_def(), cluster.as_dict()):
        with tf.Graph().as_default(), tf.device(replica_device_setter(9, cluster=given)):
            last = [tf.Variable(1) for _ in range(4)][-2:]
            assert [v.device for v in last] == ["/job:ps/task:2", "/job:ps/task:0"]


def test_errors() -> None:
    with pytest.raises(TypeError, match="`cluster` must be a dictionary"):
        replica_device_setter(cluster=5)
    with pytest.raises(TypeError, match="ps_strategy must be callable"):
        replica_device_setter(1, ps_strategy=3)  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match="Unknown attribute 'bad' is encountered"):
        replica_device_setter(cluster={"ps": ["a"]}, ps_device="bad")
    with (
        tf.device(replica_device_setter(1, worker_device="bad")),
        pytest.raises(ValueError, match="Unknown attribute 'bad' is encountered"),
    ):
        tf.constant(1)


def test_not_merging_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "asyncmon.distributed"):
        replica_device_setter(1, merge_devices=False)
    assert "It is recommended to set merge_devices=true" in caplog.text


def test_its_names() -> None:
    assert am.replica_device_setter is am.distributed.replica_device_setter is replica_device_setter


def test_the_least_loaded_task_gets_a_variable() -> None:
    strategy = am.distributed.GreedyLoadBalancingStrategy(2, am.distributed.byte_size_load_fn)
    with tf.Graph().as_default(), tf.device(replica_device_setter(2, ps_strategy=strategy)):
        shapes: list[Any] = [[100], [10], [20], [60], [20], []]
        made = [tf.get_variable(f"v{i}", shape) for i, shape in enumerate(shapes)]
        table = tf.get_variable("t", [1000], partitioner=tf.fixed_size_partitioner(4))
    assert [v.device[-1] for v in made] == ["0", "1", "1", "1", "1", "0"]
    assert [v.device[-1] for v in table] == ["0", "1", "0", "1"]


def test_random_tasks_are_those_of_a_seed() -> None:
    first, second = (am.distributed.RandomStrategy(3, seed=2) for _ in range(2))
    op = tf.constant(1.0).op
    chosen = [first(op) for _ in range(20)]
    assert chosen == [second(op) for _ in range(20)]
    assert {*chosen} == {0, 1, 2}


def test_the_load_of_an_operation() -> None:
    load = am.distributed.byte_size_load_fn
    assert load(tf.zeros([3, 4], tf.float64).op) == 96
    assert load(tf.zeros([3, 0], tf.float64).op) == 0
    with pytest.raises(ValueError, match="must have a single output"):
        load(tf.no_op())
    with pytest.raises(ValueError, match="not fully defined"):
        load(tf.placeholder(tf.float32, [None]).op)
