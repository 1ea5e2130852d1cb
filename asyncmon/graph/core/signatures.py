"""Functions made from a table: their names, documentation and signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def named(function: _F, name: str, doc: str | None, module: str | None = None) -> _F:
    """Name and document a function that was made by another one, and return it.

    It is of ``module``, by default that of its code.
    """
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__module__ = module or function.__module__
    return function


def function_of(
    name: str,
    doc: str | None,
    shown: Signature,
    compute: Callable[..., Any],
    hidden: Sequence[Parameter] = (),
) -> Callable[..., Any]:
    """Return a function of a signature, whose arguments ``compute`` gets all by name.

    The function has the module of ``compute``. The signature does not show the ``hidden`` arguments.
    """
    signature = Signature([*shown.parameters.values(), *hidden])

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}{shown}: {error}") from None
        bound.apply_defaults()
        if lacks := [key for key in signature.parameters if key not in bound.arguments]:
            raise TypeError(f"{name}{shown}: missing a required argument: {lacks[0]!r}")
        return compute(**bound.arguments)

    function.__signature__ = shown  # type: ignore[attr-defined]  # inspect reads it
    return named(function, name, doc, compute.__module__)
