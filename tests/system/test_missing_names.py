"""The error for a missing name of a public package says where the name is, or the closest one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph
from asyncmon.system.missing_names import missing_name


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (am, "placeholder", ": it is asyncmon.graph.placeholder"),
        (am, "AdamOptimizer", ": it is asyncmon.graph.train.AdamOptimizer"),
        (am, "OutOfRangeError", ": it is asyncmon.errors.OutOfRangeError"),
        (am, "train", ": it is asyncmon.graph.train"),
        (graph, "MonitoredSession", ": it is asyncmon.MonitoredSession"),
        (graph, "relu", ": it is asyncmon.graph.nn.relu"),
        (am, "Savr", "; did you mean 'Saver'?"),
        (am, "StopAtStepHok", "; did you mean 'StopAtStepHook'?"),
        (am.errors, "AbortdError", "; did you mean 'AbortedError'?"),
        (graph, "reduce_maen", "; did you mean 'reduce_mean'?"),
    ],
)
def test_a_missing_name_says_where_it_is_or_the_closest_one(module: Any, name: str, said: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value) == f"module {module.__name__!r} has no attribute {name!r}{said}"
    assert caught.value.name == name


@pytest.mark.parametrize("name", ["Any", "TYPE_CHECKING", "annotations", "import_module"])
def test_what_modules_import_is_no_place_for_a_name(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(am, name)
    assert "it is" not in str(caught.value)


@pytest.mark.parametrize("name", ["__wrapped__", "_private", "nonsense", "cli"])
def test_nothing_is_said_of_what_no_program_means(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        am.__getattr__(name)
    assert str(caught.value) == f"module 'asyncmon' has no attribute {name!r}"


def test_rooms_of_the_caller_are_searched_first() -> None:
    error = missing_name("no.module", "merge_all", [""], [], rooms=["asyncmon.summary"])
    assert str(error).endswith(": it is asyncmon.summary.merge_all")


def test_modules_can_be_imported_from_the_package() -> None:
    code = "from asyncmon import cli, training"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
