"""Functions that share arguments of TF1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

REQUIRED = Parameter.empty
"""The default of an argument that has none."""


def function_of(
    name: str, doc: str | None, arguments: Mapping[str, Any], compute: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that takes arguments by position or name, with defaults.

    ``compute`` gets all of them by name. The function has the module of ``compute``.
    """
    plain = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature([Parameter(key, plain, default=value) for key, value in arguments.items()])

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}{signature}: {error}") from None
        bound.apply_defaults()
        return compute(**bound.arguments)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__module__ = compute.__module__
    function.__signature__ = signature  # type: ignore[attr-defined]  # inspect reads it
    return function
