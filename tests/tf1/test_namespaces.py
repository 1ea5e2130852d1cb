"""``import asyncmon.tf1 as tf``: where TF1's names are, and what is said of those that are not."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import asyncmon.tf1 as tf
from asyncmon import graph
from asyncmon.tf1.names import tf1_names
from asyncmon.tf1.namespaces import ADDITIONS


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


def test_tf_initializers_has_those_of_the_graph_and_the_ops_that_initialize() -> None:
    for name in ("zeros", "ones", "constant", "random_normal", "he_normal", "variance_scaling"):
        assert getattr(tf.initializers, name) is getattr(graph.initializers, name)
    assert tf.initializers.global_variables is tf.global_variables_initializer
    assert tf.initializers.variables is tf.variables_initializer


NAMESPACES = [
    tf, tf.app, tf.compat, tf.contrib, tf.contrib.layers, tf.contrib.rnn, tf.contrib.seq2seq,
    tf.contrib.framework, tf.contrib.slim, tf.contrib.slim.prefetch_queue, tf.contrib.training,
    tf.debugging, tf.dtypes, tf.gfile, tf.image, tf.initializers, tf.io, tf.io.gfile, tf.layers,
    tf.linalg, tf.logging, tf.losses, tf.manip, tf.math, tf.metrics, tf.nn, tf.nn.rnn_cell,
    tf.python_io, tf.random, tf.strings, tf.summary, tf.train,
]  # fmt: skip


def space_of(module: ModuleType) -> str:
    return "nn.rnn_cell" if module is tf.nn.rnn_cell else module.__name__.partition("tf1")[2].strip(".")


@pytest.mark.parametrize("module", NAMESPACES, ids=space_of)
def test_the_public_names_are_those_of_tf1_and_the_listed_additions(module: ModuleType) -> None:
    space = space_of(module)
    known = {name for name in tf1_names() if name.rpartition(".")[0] == space}
    shown = {f"{space}.{name}".lstrip(".") for name in dir(module)}
    added = {f"{space}.{name}".lstrip(".") for name in ADDITIONS.get(space, ())}
    assert shown - known == added - known
    assert shown >= {f"{space}.{name}".lstrip(".") for name in set(module.__all__)}
    assert all(hasattr(module, name) for name in dir(module))


def test_what_a_module_defines_is_private_or_a_public_name_of_its_namespace() -> None:
    own = {
        f"{space_of(module)}.{name}"
        for module in NAMESPACES
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        if name not in dir(module)
    }
    assert own == {"logging.get_logger", "logging.leave_out"}  # for tf.get_logger and tf.app


@pytest.mark.parametrize("module", NAMESPACES, ids=space_of)
def test_what_a_module_imports_is_hidden_unless_it_is_public(module: ModuleType) -> None:
    shown = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and hasattr(module, name)
        if getattr(value, "__module__", "") != module.__name__  # else it is its own
    }
    below = {name for name in shown if f"{module.__name__}.{name}" in sys.modules}
    assert shown - below <= set(dir(module))


def test_nothing_leaks_from_other_modules() -> None:
    for module, names in {
        tf.app: ["asyncio", "sys"],
        tf.gfile: ["os", "shutil", "TYPE_CHECKING"],
        tf.image: ["np", "g"],
        tf.losses: ["REQUIRED", "function_of"],
        tf.train: ["Channel", "EvalHook", "JsonlWriter", "LoopLagHook", "Recovery"],
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


def test_asyncmon_does_not_load_it() -> None:
    code = "import sys, asyncmon; sys.exit('asyncmon.tf1' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_that_tf1_has_and_asyncmon_has_not_says_what_to_use() -> None:
    with pytest.raises(AttributeError, match=r"'data'.*asyncmon\.data and sess\.iterate"):
        _ = tf.data
    with pytest.raises(AttributeError, match=r"did you mean 'reduce_mean'"):
        _ = tf.reduce_maen


@pytest.mark.parametrize(
    "name",
    ["gfile.os", "image.np", "losses.REQUIRED", "app.asyncio", "metrics.Any", "train.LoopLagHook"],
)
def test_imports_of_a_namespace_are_no_names_of_it(name: str) -> None:
    space, _, last = name.partition(".")
    assert not hasattr(getattr(tf, space), last)
