"""``import asyncmon.tf1 as tf``: where TF1's names are, and what is said of those that are not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import asyncmon.tf1 as tf
from asyncmon import graph


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


def test_asyncmon_does_not_load_it() -> None:
    code = "import sys, asyncmon; sys.exit('asyncmon.tf1' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_that_tf1_has_and_asyncmon_has_not_says_what_to_use() -> None:
    with pytest.raises(AttributeError, match=r"'data'.*asyncmon\.data and sess\.iterate"):
        _ = tf.data
    with pytest.raises(AttributeError, match=r"did you mean 'reduce_mean'"):
        _ = tf.reduce_maen
