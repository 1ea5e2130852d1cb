"""``import asyncmon.tf1 as tf``: the places of TF1's names, and messages about missing ones."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import asyncmon as am
import asyncmon.tf1 as tf
from asyncmon import graph
from asyncmon.protobuf import cluster_def
from asyncmon.tf1 import input_data


def test_every_public_name_of_the_engine_is_there() -> None:
    for ours, theirs in [
        (tf, graph),
        (tf.nn, graph.nn),
        (tf.layers, graph.layers),
        (tf.train, graph.train),
    ]:
        different = [
            name for name in theirs.__all__ if getattr(ours, name) is not getattr(theirs, name)
        ]
        assert different == (["initializers"] if ours is tf else [])


def test_clusters_have_their_names_of_tf1() -> None:
    train, ours = tf.train, am.distributed
    assert (train.ClusterSpec, train.Server) == (ours.ClusterSpec, ours.Server)
    assert train.replica_device_setter is ours.replica_device_setter
    assert (train.ClusterDef, train.JobDef) == (cluster_def.ClusterDef, cluster_def.JobDef)
    assert tf.contrib.training.RandomStrategy is ours.RandomStrategy
    assert tf.DeviceSpec is graph.DeviceSpec


def test_tf_initializers_has_those_of_the_graph_and_the_ops_that_initialize() -> None:
    for name in ("zeros", "ones", "constant", "random_normal", "he_normal", "variance_scaling"):
        assert getattr(tf.initializers, name) is getattr(graph.initializers, name)
    assert tf.initializers.global_variables is tf.global_variables_initializer
    assert tf.initializers.variables is tf.variables_initializer


NAMESPACES = [
    tf, tf.app, tf.compat, tf.contrib, tf.contrib.layers, tf.contrib.rnn, tf.contrib.seq2seq,
    tf.contrib.framework, tf.contrib.slim, tf.contrib.slim.prefetch_queue, tf.contrib.training,
    tf.distributions,
    tf.debugging, tf.dtypes, tf.gfile, tf.image, tf.initializers, tf.io, tf.io.gfile, tf.layers,
    tf.linalg, tf.logging, tf.losses, tf.manip, tf.math, tf.metrics, tf.nn, tf.nn.rnn_cell,
    tf.python_io, tf.random, tf.strings, tf.summary, tf.train,
]  # fmt: skip


def space_of(module: ModuleType) -> str:
    return "nn.rnn_cell" if module is tf.nn.rnn_cell else module.__name__.partition("tf1")[2].strip(".")


@pytest.mark.parametrize("module", NAMESPACES, ids=space_of)
def test_a_namespace_has_the_names_that_it_shows(module: ModuleType) -> None:
    assert dir(module) == sorted(set(module.__all__))
    assert [name for name in dir(module) if not hasattr(module, name)] == []


def test_what_a_module_shows_is_in_a_namespace() -> None:
    shown = {name for module in NAMESPACES for name in dir(module)}
    ops = sys.modules["asyncmon.tf1.ops"]
    folders = [(tf.__path__, "asyncmon.tf1."), (ops.__path__, "asyncmon.tf1.ops.")]
    for path, prefix in folders:
        for found in pkgutil.iter_modules(path, prefix):
            names = getattr(importlib.import_module(found.name), "__all__", ())
            assert set(names) <= shown | {"rnn_cell"} | set(input_data.__all__), found.name


def test_nothing_leaks_from_other_modules() -> None:
    for module, names in {
        tf.app: ["asyncio", "sys"],
        tf.gfile: ["os", "shutil", "TYPE_CHECKING"],
        tf.image: ["np", "g"],
        tf.losses: ["REQUIRED", "function_of"],
        tf.train: ["Channel", "EvalHook", "JsonlWriter", "LoopLagHook", "Recovery"],
        tf.metrics: ["Any", "function_of"],
    }.items():
        assert not set(names) & set(dir(module))
    with pytest.raises(AttributeError, match=r"it is asyncmon\.LoopLagHook"):
        _ = tf.train.LoopLagHook


def test_flags_shows_the_names_of_absl() -> None:
    pytest.importorskip("absl")
    assert {"FLAGS", "DEFINE_string"} <= set(dir(tf.flags))
    assert not {"functools", "Any", "sys"} & set(dir(tf.flags))


def test_small_namespaces_can_be_imported() -> None:
    code = (
        "import asyncmon.tf1.math\nfrom asyncmon.tf1 import linalg, strings\n"
        "from asyncmon.tf1.random import normal\nassert asyncmon.tf1.math.abs is asyncmon.tf1.abs"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_asyncmon_loads_it_at_the_first_use() -> None:
    code = (
        "import sys, asyncmon as am\nassert 'asyncmon.tf1' not in sys.modules\n"
        "assert am.tf1.train is sys.modules['asyncmon.tf1.train']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_tf1_has_and_asyncmon_has_not_says_what_to_use() -> None:
    with pytest.raises(AttributeError, match=r"'data'.*asyncmon\.data and sess\.iterate"):
        _ = tf.data
    with pytest.raises(AttributeError, match=r"did you mean 'reduce_mean'"):
        _ = tf.reduce_maen
