"""Advice on missing names of TF1: what to use instead, from ``hints.txt``.

:mod:`asyncmon.system.missing_names` imports this module at the first access to a missing name.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

ROOMS = [
    f"asyncmon.tf1{room}"
    for room in (
        "", ".train", ".nn", ".layers", ".losses", ".metrics", ".image", ".summary", ".python_io",
        ".rnn_cell", ".contrib.layers", ".contrib.rnn", ".contrib.training", ".gfile", ".app",
    )
]  # fmt: skip
"""The modules searched for a name of TF1, in this order."""

VAGUE = [
    f"asyncmon.tf1.{room}"
    for room in ("layers", "losses", "metrics", "image", "summary", "contrib.layers", "gfile", "app")
]
"""Modules in which a word such as ``scalar`` or ``mean`` has a meaning of its own."""


def hint_for(name: str, *, exact: bool = False) -> str | None:
    """Return what to use instead of TF1's ``tf.<name>``; None if there is no hint.

    Hints for a namespace or a pattern hold for its names, unless ``exact``.
    """
    if exact:
        return hints().get(name)
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        if hint := hints().get(".".join(parts[:i])):
            return hint
    patterns = [one for one in hints() if "*" in one and fnmatchcase(name, one)]
    return hints()[max(patterns, key=lambda one: len(one.replace("*", "")))] if patterns else None


@cache
def hints() -> dict[str, str]:
    """Return the hint for each name or pattern in ``hints.txt``."""
    found: dict[str, str] = {}
    hint = ""
    for line in files("asyncmon.tf1").joinpath("hints.txt").read_text("utf-8").splitlines():
        if line.startswith(" "):
            found |= dict.fromkeys(line.split(), hint)
        elif not line.startswith("#"):
            hint = line
    return found
