"""The ``__getattr__`` of the front doors: an AttributeError with advice on the missing name.

The advice itself comes from a function that is registered here, so that this module needs no table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol


class Adviser(Protocol):
    """Where the advice on missing names comes from."""

    def advice_on(self, module: str, name: str, prefixes: list[str], known: Iterable[str]) -> str:
        """Return what follows "module has no attribute": see :func:`missing_name`; "" for nothing."""
        ...

    def hint_for(self, name: str) -> str | None:
        """Return what to use instead of TF1's ``tf.<name>``; None if there is no hint."""
        ...


_load_adviser: Callable[[], Adviser] | None = None


def register_missing_names(load: Callable[[], Adviser]) -> None:
    """Set the function that imports the adviser. It is called when a name is missing, not before."""
    global _load_adviser
    _load_adviser = load


def missing_name(
    module: str, name: str, prefix: str | Iterable[str], known: Iterable[str]
) -> AttributeError:
    """Return the error of a module that lacks a name.

    Args:
        module: the module's ``__name__``.
        name: the missing attribute.
        prefix: the namespace of TF1 that the module stands for: "" for ``tf.X``, "train." for
            ``tf.train.X``; or several.
        known: the names that the module has.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if _load_adviser is not None and not name.startswith("_") and not _is_module(f"{module}.{name}"):
        prefixes = [prefix] if isinstance(prefix, str) else list(prefix)
        text += _load_adviser().advice_on(module, name, prefixes, known)
    return AttributeError(text, name=name)


class MissingMember:
    """A member that TF1's class has and this one has not: access raises an AttributeError with a hint.

    A descriptor, because ``__getattr__`` on a class slows down the access to all of its attributes.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner.__name__, name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        text = f"{self._owner!r} object has no attribute {self._name!r}"
        hint = (
            None if _load_adviser is None else _load_adviser().hint_for(f"{self._owner}.{self._name}")
        )
        raise AttributeError(f"{text}: {hint}" if hint else text, name=self._name)


def _is_module(name: str) -> bool:
    """Return whether it is a module: ``from asyncmon import cli`` looks up the attribute first."""
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
