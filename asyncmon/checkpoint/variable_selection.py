"""The variables that a saver covers, and their names in its checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from asyncmon.checkpoint.saveable_session import RESERVED, FetchMembers
from asyncmon.errors import NotFoundError
from asyncmon.system.members import members_of

T = TypeVar("T")


def name_of(variable: Any) -> str:
    """Return the name of a variable in a snapshot: itself, ``.op.name`` or ``.name`` without ``:0``.

    Raises:
        TypeError: it has none.
    """
    name: object = variable
    if not isinstance(variable, str):
        members = members_of(FetchMembers, variable)
        name = members_of(FetchMembers, members.op).name or members.name
    if not isinstance(name, str):
        raise TypeError(
            f"{variable!r} of type {type(variable).__name__} is no variable: give an object with a"
            " name, or the name itself."
        )
    return name.removesuffix(":0")


_under_construction: Callable[[], list[str] | None] | None = None


def take_variables_from(find: Callable[[], list[str] | None]) -> None:
    """Set how a saver without a ``var_list`` finds the names of all variables.

    Args:
        find: returns the names in the program that is being built; None where there is none.
    """
    global _under_construction  # set once, by the package that has programs
    _under_construction = find


class Selection:
    """A saver's ``var_list``: names in checkpoints to names in the session, or everything.

    Args: see :class:`~asyncmon.checkpoint.Saver`.

    Raises:
        ValueError: a variable is in it twice, or there are none.
        TypeError: something in it is no variable.
    """

    def __init__(
        self, var_list: Iterable[Any] | Mapping[str, Any] | None, defer_build: bool, allow_empty: bool
    ) -> None:
        self.allow_empty = allow_empty
        self._names: dict[str, str] | None = None
        self._takes_all = var_list is None  # then entries with reserved names are covered, too
        self._built = False
        if isinstance(var_list, Mapping):
            self._names = {key: name_of(variable) for key, variable in var_list.items()}
            _refuse_twice(self._names.values(), "The same saveable will be restored with two names")
        elif var_list is not None:
            if isinstance(var_list, str):
                raise TypeError(f"var_list must be a list or a dict, not the string {var_list!r}.")
            names = [name_of(variable) for variable in var_list]
            _refuse_twice(names, "At least two variables have the same name")
            self._names = dict(zip(names, names, strict=True))
        if not defer_build:
            self.build()

    def build(self) -> None:
        """Take the variables of the program under construction, if none were given or taken before."""
        if self._built:
            return
        if self._takes_all:
            names = None if _under_construction is None else _under_construction()
            self._names = None if names is None else {name: name for name in names}
        if self.is_empty and not self.allow_empty:
            raise ValueError("No variables to save")
        self._built = True

    @property
    def is_empty(self) -> bool:
        """Whether it covers no variable."""
        return self._names is not None and not self._names

    @property
    def names(self) -> list[str] | None:
        """The names in the session that it lists; None where it covers everything."""
        return None if self._names is None else list(self._names.values())

    def covers(self, name: str) -> bool:
        """Return whether it covers a variable of the session."""
        return self._names is None or name in self._names.values() or self._is_reserved(name)

    def to_checkpoint(self, state: Mapping[str, T]) -> dict[str, T]:
        """Return the covered part of a session's state, by its names in the checkpoint.

        Raises:
            NotFoundError: the session has no such variable.
        """
        if self._names is None:
            return dict(state)
        missing = sorted(name for name in self._names.values() if name not in state)
        if missing:
            raise NotFoundError(
                f"The saver's var_list names {', '.join(map(repr, missing))}, which the session does"
                f" not have; it has: {', '.join(map(repr, sorted(state)[:20]))}."
            )
        found = {key: state[name] for key, name in self._names.items()}
        return found | {name: value for name, value in state.items() if self._is_reserved(name)}

    def _is_reserved(self, name: str) -> bool:
        return self._takes_all and name.startswith(RESERVED)


def _refuse_twice(names: Iterable[str], problem: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{problem}: {name}")
