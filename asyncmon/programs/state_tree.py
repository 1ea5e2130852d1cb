"""Trees of state: nested dicts and lists of arrays, numbers and strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncmon.checkpoint.dtypes import element_of, is_text

Tree = Any
"""A dict with string keys, a list, an array, a number or a string."""

Arrays = dict[int, "NDArray[Any]"]
"""Arrays by ``id``."""

_INT64 = np.iinfo(np.int64)


def declare(tree: Tree, path: str = "state") -> Tree:
    """Return a tree like the given one that shares nothing with it, its arrays read-only.

    Raises:
        TypeError: something in it is neither container, array, number nor string; the error says
            where.
        ValueError: a key is empty or contains a slash, which separates levels in names; a number is
            too large for a checkpoint; a string ends with a null character.
    """
    if isinstance(tree, Mapping):
        for key in tree:
            if not isinstance(key, str):
                raise TypeError(f"{path} has the key {key!r}; keys of state must be strings.")
            if not key or "/" in key:
                raise ValueError(
                    f"{path} has the key {key!r}; keys must not be empty, and '/' separates levels in "
                    "names."
                )
        return {key: declare(value, f"{path}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [declare(value, f"{path}[{i}]") for i, value in enumerate(tree)]
    if isinstance(tree, np.number | np.bool_ | np.str_):
        tree = tree.item()
    if isinstance(tree, str):
        if problem := _misfit_text(tree):
            raise ValueError(f"{path} {problem}.")
        return str(tree)
    if isinstance(tree, bool | int | float | complex):
        if type(tree) is int and not _INT64.min <= tree <= _INT64.max:
            raise ValueError(f"{path} is {tree!r}; whole numbers in the state must fit into 64 bits.")
        return tree
    if isinstance(tree, np.ndarray):
        if tree.dtype == object or (element_of(tree.dtype) is None and not is_text(tree.dtype)):
            raise TypeError(
                f"{path} is an array of dtype {tree.dtype}, which checkpoints do not have. Declare "
                "numbers, truth values or text."
            )
        return _frozen(tree.copy())
    raise TypeError(
        f"{path} is {tree!r}; state is made of arrays, numbers, strings, and dicts and lists of these. "
        "Wrap it in np.asarray(...), or keep it outside of the state."
    )


def with_fresh_arrays(tree: Tree, made: Arrays) -> Tree:
    """Return a deep copy; its arrays are also put into ``made``, by ``id``."""
    if isinstance(tree, np.ndarray):
        array = tree.copy()
        made[id(array)] = array
        return array
    if isinstance(tree, dict):
        return {key: with_fresh_arrays(value, made) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_fresh_arrays(value, made) for value in tree]
    return tree


def unwritable(tree: Tree) -> Tree:
    """Return a copy of the containers; the arrays are shared and cannot be written through it."""
    kind = tree.__class__
    if kind is dict:
        return {key: unwritable(value) for key, value in tree.items()}
    if kind is list:
        return [unwritable(value) for value in tree]
    if kind is np.ndarray and tree.flags.writeable:
        return _frozen(tree.view())
    return tree


def first_change(now: Tree, before: Tree, path: tuple[str | int, ...] = ()) -> str | None:
    """Return the first place at which the containers of a tree were changed, or None."""
    kind = before.__class__
    if kind not in (dict, list):
        return None if now is before else _place(path)
    if (
        now.__class__ is not kind
        or len(now) != len(before)
        or (kind is dict and now.keys() != before.keys())
    ):
        return _place(path)
    for key, was in before.items() if kind is dict else enumerate(before):
        value = now[key]
        if value is not was and (change := first_change(value, was, (*path, key))) is not None:
            return change
    return None


def adopt(
    new: Tree, old: Tree, unshared: Arrays, problems: list[str], path: tuple[str | int, ...] = ()
) -> Tree:
    """Return the copy that a step has changed as the next state, or note why it cannot be.

    Arrays that only the step had become part of the state, read-only; others, which other code may
    write to, are copied.

    Args:
        new: the copy.
        old: the state before, of the same structure.
        unshared: the arrays that the step got and that only the copy refers to, by ``id``.
        problems: a sentence for everything that does not fit is added.
        path: of this part, for the sentences.
    """
    if isinstance(old, dict):
        if not isinstance(new, Mapping) or new.keys() != old.keys():
            found = list(new) if isinstance(new, Mapping) else new
            problems.append(f"{_place(path)} must keep the keys {list(old)}, found {found!r}")
            return old
        return {
            key: was if new[key] is was else adopt(new[key], was, unshared, problems, (*path, key))
            for key, was in old.items()
        }
    if isinstance(old, list):
        if not isinstance(new, list | tuple) or len(new) != len(old):
            problems.append(f"{_place(path)} must stay a list of {len(old)}, found {new!r}")
            return old
        return [
            adopt(one, was, unshared, problems, (*path, i))
            for i, (one, was) in enumerate(zip(new, old, strict=True))
        ]
    if isinstance(old, np.ndarray):
        return _adopt_array(new, old, unshared, problems, path)
    if new.__class__ is old.__class__ is float:
        return new
    return _adopt_number(new, old, problems, path)


def _adopt_array(
    new: Any, old: NDArray[Any], unshared: Arrays, problems: list[str], path: tuple[str | int, ...]
) -> NDArray[Any]:
    try:
        array = np.asarray(new)
    except ValueError as error:
        problems.append(f"{_place(path)} cannot be made an array: {error}")
        return old
    if array.shape != old.shape or not np.can_cast(array.dtype, old.dtype, "same_kind"):
        problems.append(
            f"{_place(path)} must stay an array of shape {old.shape} and dtype {old.dtype}, found "
            f"shape {array.shape} and dtype {array.dtype}"
        )
        return old
    if id(array) not in unshared or array.dtype != old.dtype:
        array = array.astype(old.dtype)
    return _frozen(array)


def _adopt_number(new: Any, old: Any, problems: list[str], path: tuple[str | int, ...]) -> Any:
    number = new.item() if isinstance(new, np.generic | np.ndarray) and new.ndim == 0 else new
    if type(old) is str:
        problem = "must stay a string" if not isinstance(number, str) else _misfit_text(number)
        if problem:
            problems.append(f"{_place(path)} {problem}, found {new!r}")
        return old if problem else str(number)
    if type(number) is not type(old):
        if not isinstance(number, bool | int | float | complex) or not np.can_cast(
            type(number), type(old), "safe"
        ):
            problems.append(f"{_place(path)} must stay a {type(old).__name__}, found {new!r}")
            return old
        number = type(old)(number)
    if type(old) is int and not _INT64.min <= number <= _INT64.max:
        problems.append(f"{_place(path)} must fit into 64 bits, found {number!r}")
        return old
    return number


def _misfit_text(text: str) -> str | None:
    return "must not end with a null character, which numpy drops" if text.endswith("\0") else None


def _place(path: tuple[str | int, ...]) -> str:
    return "state" + "".join(f"[{key!r}]" for key in path)


def flatten(tree: Tree, prefix: str = "") -> dict[str, Any]:
    """Return names to arrays and numbers; levels are separated by slashes."""
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        flat: dict[str, Any] = {}
        for key, value in items:
            flat |= flatten(value, f"{prefix}/{key}" if prefix else str(key))
        return flat
    return {prefix: tree}


def replace_leaves(tree: Tree, values: Mapping[str, Any], prefix: str = "") -> Tree:
    """Return a tree with new values at the given names, converted to the types of the old ones."""
    if isinstance(tree, dict):
        return {
            key: replace_leaves(value, values, f"{prefix}/{key}" if prefix else key)
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [
            replace_leaves(value, values, f"{prefix}/{i}" if prefix else str(i))
            for i, value in enumerate(tree)
        ]
    if prefix not in values:
        return tree
    if isinstance(tree, np.ndarray):
        return _frozen(np.array(values[prefix], dtype=tree.dtype))
    return type(tree)(np.asarray(values[prefix]).item())


def misfit(name: str, value: Any, old: Any) -> str | None:
    """Return why a value cannot be loaded in the place of another, or None."""
    array, present = np.asarray(value), np.asarray(old)
    if array.shape != present.shape:
        return f"{name!r} has shape {present.shape}, the value {array.shape}"
    if not isinstance(old, np.ndarray):
        problems: list[str] = []
        _adopt_number(array, old, problems, (name,))
        fits = not problems
    elif present.dtype.kind in "US":
        fits = array.dtype.kind == present.dtype.kind and array.itemsize <= present.itemsize
    elif isinstance(value, np.ndarray | np.generic):  # what has a dtype of its own is not rounded
        fits = array.dtype.newbyteorder("=") == present.dtype.newbyteorder("=")
    else:
        fits = np.can_cast(array.dtype, present.dtype, "same_kind")
    return None if fits else f"{name!r} has dtype {present.dtype}, the value {array.dtype}"


def misfits(values: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each value that cannot be loaded in the place of a present one."""
    unknown = [
        f"{name!r} is not an entry of the state, which has {list(present)}"
        for name in values
        if name not in present
    ]
    known = [name for name in values if name in present]
    return unknown + [text for name in known if (text := misfit(name, values[name], present[name]))]


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
