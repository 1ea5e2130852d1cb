"""Messages about names that are in another place."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
from typing import Any

import pytest

import asyncmon as am
import asyncmon.tf1 as tf
from asyncmon import graph
from asyncmon.tf1.names import hint_for, hints


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (am, "placeholder", "it is asyncmon.graph.placeholder"),
        (am, "AdamOptimizer", "it is asyncmon.graph.train.AdamOptimizer"),
        (am, "OutOfRangeError", "it is asyncmon.errors.OutOfRangeError"),
        (am, "ConfigProto", "it is asyncmon.tf1.ConfigProto"),
        (am, "to_float", "it is asyncmon.tf1.to_float"),
        (am, "import_meta_graph", "build the graph by the code that built it, then Saver.restore"),
        (am, "estimator", "write the loop"),
        (am, "train", "it is asyncmon.graph.train"),
        (graph, "losses", "it is asyncmon.tf1.losses"),
        (graph, "MonitoredSession", "it is asyncmon.MonitoredSession"),
        (graph, "relu", "it is asyncmon.graph.nn.relu"),
        (graph, "SparseTensor", "it is asyncmon.tf1.SparseTensor"),
        (graph, "data", "iterate over your data with asyncmon.data and sess.iterate"),
        (graph, "igammac", "compute it with scipy.special before it is fed, or in a tf.py_func"),
        (tf, "AdamOptimizer", "it is asyncmon.tf1.train.AdamOptimizer"),
        (tf, "sparse_add", "sparse tensors are parsed, fed, looked up and multiplied only"),
        (tf.train, "float32", "it is asyncmon.tf1.float32"),
        (tf.train, "Checkpoint", "use tf.train.Saver"),
        (tf.nn, "ctc_loss", "CTC is not here"),
        (tf.flags, "DEFINE_strnig", "did you mean 'DEFINE_string'?"),
        (tf, "scalar", "use tf.TensorShape([])"),
        (tf, "mean_squared_error", "it is asyncmon.tf1.losses.mean_squared_error"),
        (tf, "qint8", "quantised numbers are not here; did you mean 'int8'?"),
    ],
)
def test_a_missing_name_says_where_it_is_or_what_to_do(module: Any, name: str, said: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    text = str(caught.value)
    assert text.startswith(f"module {module.__name__!r} has no attribute {name!r}")
    assert said in text
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [(tf, "reduce_maen", "reduce_mean"), (tf.train, "AdamOptimiser", "Adam")],
)
def test_a_misspelt_name_is_corrected(module: Any, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"; did you mean '{meant}"):
        getattr(module, name)


def test_modules_can_be_imported_from_the_packages() -> None:
    code = "from asyncmon import tf1\nfrom asyncmon.tf1 import old_names"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_hints_cost_nothing_until_a_name_is_missing() -> None:
    code = (
        "import asyncmon.tf1 as tf\n"
        "from asyncmon.tf1.names import hints\n"
        "assert hints.cache_info().currsize == 0\n"
        "assert not hasattr(tf, 'nothing')\n"
        "assert hints.cache_info().currsize == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tf1_is_imported_when_a_name_is_missing() -> None:
    code = (
        "import sys, asyncmon\nassert 'asyncmon.tf1' not in sys.modules\n"
        "assert not hasattr(asyncmon, 'nothing')\nassert 'asyncmon.tf1' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def resolved(name: str) -> Any:
    value: Any = tf
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", ["nextafter", "no_such_name", "accuracy"])
def test_nothing_is_said_of_a_name_without_a_hint(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^module 'asyncmon.tf1' has no attribute '{name}'$"):
        getattr(tf, name)


def test_hints_are_given_for_names_that_are_missing_only() -> None:
    """A name that lands makes its own hint, or that of its pattern, superfluous."""
    superfluous = []
    for name in hints():
        with contextlib.suppress(AttributeError):
            superfluous += [name] if "*" not in name and resolved(name) else []
    assert superfluous == []


def test_hints_name_what_is_there() -> None:
    for hint in set(hints().values()):
        for word in hint.replace(",", " ").replace(":", " ").replace("(", " ").split():
            if word.startswith("tf.") and word[-1].isalnum():
                name = word[3:].split("=")[0]
                assert resolved(name) is not None, name
            if word.startswith("asyncmon.") and word[-1].isalnum():
                module, _, last = word.rpartition(".")
                assert hasattr(importlib.import_module(module), last), word


def test_what_is_said_of_a_namespace_holds_for_its_names() -> None:
    assert hint_for("contrib.slim.stack") == hints()["contrib.slim.*"]
    assert hint_for("contrib.slim.learning.train") == hints()["estimator"]
    assert hint_for("contrib.ffmpeg.decode_audio") == hints()["contrib.*"]
    assert hint_for("sparse_reduce_max") == hints()["sparse_reduce_sum"]
    assert hint_for("reduce_sum") is None
