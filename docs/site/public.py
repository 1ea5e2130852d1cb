"""Where the API reference documents each public object."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType
from typing import Any, NamedTuple

PACKAGES = [
    "", ".runtime", ".hooks", ".checkpoint", ".summary", ".data", ".programs", ".distributed",
    ".executors", ".monitor", ".jobs", ".testing", ".graph", ".graph.nn", ".graph.layers",
    ".graph.train",
]  # fmt: skip


class Place(NamedTuple):
    """The page of an object, which is the name of a package, and its path there."""

    page: str
    path: str


def is_documented(value: Any) -> bool:
    """Return whether an object has an entry of its own."""
    return inspect.isclass(value) or inspect.isroutine(value)


def summary_of(value: Any) -> str:
    """Return the first sentence of a docstring, on one line; "" for a constant."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType)):
        return f"`{value!r}`" if isinstance(value, bool | int | float | str | None) else ""
    text = (inspect.getdoc(value) or "").split("\n\n")[0]
    sentence = re.split(r"(?<=[.:])\s", " ".join(text.split()), maxsplit=1)[0]
    plain = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", sentence).replace("``", "`")
    return plain.replace("|", "\\|")


def _places() -> dict[int, Place]:
    found: dict[int, Place] = {}
    for package in sorted(PACKAGES, key=lambda package: package == ""):  # the others have them first
        module = importlib.import_module(f"asyncmon{package}")
        for name in module.__all__:
            value = getattr(module, name)
            if is_documented(value):
                place = Place(module.__name__, f"{module.__name__}.{name}")
                found.setdefault(id(value), place)
    return found


PLACES = _places()
"""By the identity of the object."""


def place_of(target: str, path: str) -> str | None:
    """Return the place of a name that the docstring of an object refers to.

    Args:
        target: the name, as in ``:meth:`close```.
        path: the path of the object with the docstring.
    """
    target = target.removeprefix("~").lstrip(".").removesuffix("()")
    scopes = _scopes(path)
    first, *rest = target.split(".")
    for scope in scopes:
        value = getattr(scope, first, None)
        found = _place(scope, first, value, rest)
        if found is not None:
            return found
    parts = target.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            module: Any = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        return _place(module, parts[end], getattr(module, parts[end], None), parts[end + 1 :])
    return None


def _scopes(path: str) -> list[Any]:
    """Return the class and the module of an object, and the packages with public names."""
    parts = path.split(".")
    scopes: list[Any] = []
    for end in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        scopes.append(value)
        for part in parts[end:]:
            value = getattr(value, part, None)
            if inspect.isclass(value):
                scopes.insert(0, value)
        break
    return scopes + [importlib.import_module(f"asyncmon{package}") for package in PACKAGES]


def _place(scope: Any, name: str, value: Any, rest: list[str]) -> str | None:
    if value is None:
        return None
    if inspect.isclass(scope) and not rest:
        return _member(scope, name)
    if not rest:
        return PLACES[id(value)].path if id(value) in PLACES else None
    return _member(value, rest[0]) if inspect.isclass(value) and len(rest) == 1 else None


def _member(owner: type, name: str) -> str | None:
    """Return the place of a class's member, which is documented with the class that defines it."""
    defining = next((one for one in owner.__mro__ if name in vars(one)), None)
    place = None if defining is None else PLACES.get(id(defining))
    return None if place is None or name.startswith("_") else f"{place.path}.{name}"
