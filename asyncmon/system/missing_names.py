"""The AttributeError for a missing name of a public package, with advice on the name.

The advice comes from a registered module, so that the packages do not depend on its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol


class Adviser(Protocol):
    """A module that gives advice on missing names."""

    def advice_on(self, module: str, name: str, prefixes: list[str], known: Iterable[str]) -> str:
        """Return the rest of the message of :func:`missing_name`, or ""."""
        ...

    def hint_for(self, name: str) -> str | None:
        """Return what to use instead of TF1's ``tf.<name>``; None if there is no hint."""
        ...


_load_adviser: Callable[[], Adviser] | None = None


def register_missing_names(load: Callable[[], Adviser]) -> None:
    """Set the function that imports the adviser. It is called at the first missing name."""
    global _load_adviser
    _load_adviser = load


def missing_name(
    module: str, name: str, prefix: str | Iterable[str], known: Iterable[str]
) -> AttributeError:
    """Return the error for a missing name of a module.

    Args:
        module: the module's ``__name__``.
        name: the missing attribute.
        prefix: the namespace of TF1 for the module: "" for ``tf.X``, "train." for ``tf.train.X``; or
            several.
        known: the names in the module.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if _load_adviser is not None and not name.startswith("_") and not _is_module(f"{module}.{name}"):
        prefixes = [prefix] if isinstance(prefix, str) else list(prefix)
        text += _load_adviser().advice_on(module, name, prefixes, known)
    return AttributeError(text, name=name)


class MissingMember:
    """A member of TF1's class that this class lacks: access raises an AttributeError with a hint.

    It is a descriptor because ``__getattr__`` would slow down the access to every attribute.
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
    """Return whether a name is a module: ``from asyncmon import cli`` first reads the attribute."""
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
