"""Write docs/names.md: every public name with the first sentence of its docstring.

Run it after a public name or its docstring changed: ``python docs/make_names.py``. A test compares.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).with_name("names.md")
PACKAGES = [
    "", ".runtime", ".hooks", ".checkpoint", ".summary", ".data", ".programs", ".distributed",
    ".monitor", ".testing", ".graph", ".graph.nn", ".graph.layers", ".graph.train",
]  # fmt: skip
INTRODUCTION = """# Public names

Each package with its public names, `dir()` and `help()` of the package show the same. Made from the
docstrings by `python docs/make_names.py`. TF1's layout of names is `asyncmon.tf1`: see
[porting](porting.md). `asyncmon.programs.torch` and `asyncmon.programs.jax` need their extras: see
[programs](programs.md).
"""


def summary_of(value: Any) -> str:
    """Return the first sentence of a docstring, on one line; "" for a constant."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType)):
        return f"`{value!r}`" if isinstance(value, bool | int | float | str | None) else ""
    text = (inspect.getdoc(value) or "").split("\n\n")[0]
    sentence = re.split(r"(?<=[.:])\s", " ".join(text.split()), maxsplit=1)[0]
    plain = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", sentence).replace("``", "`")
    return plain.replace("|", "\\|")


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for package in PACKAGES:
        module = importlib.import_module(f"asyncmon{package}")
        rows = [f"| `{name}` | {summary_of(getattr(module, name))} |" for name in module.__all__]
        head = f"## {module.__name__}\n\n{summary_of(module)}\n\n| name | |\n|---|---|\n"
        parts.append(head + "\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
