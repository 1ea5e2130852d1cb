"""What to use instead of a name of TF1 that is not here; ``__getattr__`` of the front doors asks it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HINTS = {
    "data": "iterate over your data with asyncmon.data and sess.iterate",
    "estimator": "write the loop: async with MonitoredTrainingSession(...) as sess",
    "keras": "use tf.layers and tf.train optimizers, and write the loop",
    "import_graph_def": "build the graph by code, and restore its variables with Saver.restore",
    "train.import_meta_graph": "build the graph by the code that built it, then Saver.restore",
    "train.export_meta_graph": "checkpoints hold variables; keep the code that builds the graph",
    "train.AdagradDAOptimizer": "use FtrlOptimizer, which also makes weights sparse by an l1 penalty",
    "train.ProximalAdagradOptimizer": "use FtrlOptimizer(l1_regularization_strength=...)",
    "train.ProximalGradientDescentOptimizer": (
        "use FtrlOptimizer(learning_rate_power=0.0, l1_regularization_strength=...)"
    ),
}
"""TF1's name below ``tf.``: what to do instead."""


def missing_name(module: str, name: str, prefix: str, known: Iterable[str]) -> AttributeError:
    """Return the error of a front door that lacks a name.

    `module` is the door's own name, `prefix` where TF1 has the name ("" for ``tf.X``, "train." for
    ``tf.train.X``), and `known` are the names that the door has.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if hint := HINTS.get(prefix + name):
        text += f": {hint}"
    elif close := get_close_matches(name, known, 1, 0.8):
        text += f"; did you mean {close[0]!r}?"
    return AttributeError(text, name=name)
