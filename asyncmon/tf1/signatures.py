"""Functions made from a table of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

from asyncmon.graph.core import signatures

REQUIRED = Parameter.empty
"""The default of an argument that has none."""


def function_of(
    name: str, doc: str | None, arguments: Mapping[str, Any], compute: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that takes arguments by position or name, with defaults.

    ``compute`` gets all of them by name. The function has the module of ``compute``.
    """
    plain = Parameter.POSITIONAL_OR_KEYWORD
    shown = Signature([Parameter(key, plain, default=value) for key, value in arguments.items()])
    return signatures.function_of(name, doc, shown, compute)
