"""The table of names in docs/porting.md is that of the names there are.

Run as a program, this file writes the table: ``python tests/tf1/names/test_page.py``.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import asyncmon.tf1 as tf
from asyncmon.tf1.names import hint_for, tf1_names

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "porting.md"
TABLE = "<!-- names -->\n"

MOVED = {
    "contrib.framework.init_from_checkpoint": "train.init_from_checkpoint",
    "contrib.framework.list_variables": "train.list_variables",
    "contrib.framework.load_checkpoint": "train.load_checkpoint",
    "contrib.framework.load_variable": "train.load_variable",
    "contrib.losses.compute_weighted_loss": "losses.compute_weighted_loss",
    "contrib.losses.get_total_loss": "losses.get_total_loss",
    "contrib.metrics.streaming_accuracy": "metrics.accuracy",
    "contrib.metrics.streaming_auc": "metrics.auc",
    "contrib.metrics.streaming_mean": "metrics.mean",
    "contrib.metrics.streaming_mean_squared_error": "metrics.mean_squared_error",
    "contrib.metrics.streaming_precision": "metrics.precision",
    "contrib.metrics.streaming_recall": "metrics.recall",
}
"""Names of TF1 that have another place, and that place."""

WRITTEN_BY_USERS = (tf.train.SessionRunHook, tf.train.CheckpointSaverListener, tf.train.SessionCreator)


def resolved(name: str) -> Any:
    value: Any = tf
    for part in name.split("."):
        value = getattr(value, part)
    return value


def difference(value: Any) -> str:
    """Return what is awaited of a name, nothing where it is the same."""
    if inspect.isasyncgenfunction(value):
        return "`async for`"
    if inspect.iscoroutinefunction(value):
        return "await it"
    if not inspect.isclass(value):
        return ""
    if value in WRITTEN_BY_USERS:
        return "its methods are `async def`"
    if issubclass(value, WRITTEN_BY_USERS):
        return ""
    methods = [
        f"`{name}`"
        for name, method in inspect.getmembers(value, inspect.iscoroutinefunction)
        if not name.startswith("_")
    ]
    parts = ["`async with`"] if hasattr(value, "__aenter__") else []
    parts += [f"await {', '.join(methods)}"] if methods else []
    return "; ".join(parts)


def table() -> str:
    """Return the table of all names, by namespace."""
    text = ""
    spaces: dict[str, list[str]] = {}
    for name in sorted(tf1_names()):
        spaces.setdefault(name.rpartition(".")[0], []).append(name)
    for space, names in sorted(spaces.items()):
        rows: dict[tuple[str, str], list[str]] = {}
        for name in names:
            rows.setdefault(verdict(name), []).append(f"`{name.rpartition('.')[2]}`")
        text += f"\n### tf.{space}\n\n| | names | |\n|---|---|---|\n"
        for kind in ("same", "different", "out"):
            for (this, remark), found in rows.items():
                if this == kind:
                    text += f"| {kind} | {' '.join(found)} | {remark} |\n"
    text += "\n### Moved\n\n| TF1 | here |\n|---|---|\n"
    return text + "".join(f"| `tf.{old}` | `tf.{new}` |\n" for old, new in MOVED.items())


def verdict(name: str) -> tuple[str, str]:
    try:
        remark = difference(resolved(name))
    except AttributeError:
        return "out", hint_for(name) or "nothing like it"
    return ("different", remark) if remark else ("same", "")


def test_the_table_is_that_of_the_names_there_are() -> None:
    same = PAGE.read_text().partition(TABLE)[2] == table()
    assert same, f"run python {Path(__file__).relative_to(ROOT)}"


def test_names_that_moved_are_where_the_page_says() -> None:
    for old, new in MOVED.items():
        assert resolved(new) is not None
        assert hint_for(old) is not None


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(TABLE)[0] + TABLE + table())
