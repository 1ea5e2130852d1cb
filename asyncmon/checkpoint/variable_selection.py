"""Select the variables of a saver and their names in checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from asyncmon.checkpoint.saveable_session import RESERVED, FetchMembers
from asyncmon.errors import NotFoundError
from asyncmon.system.members import members_of

T = TypeVar("T")


def name_of(variable: Any) -> str:
    """Return the name of a variable: the string itself, ``.op.name`` or ``.name``, without ``:0``.

    Raises:
        TypeError: the object has no name.
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
    """Set the function by which a saver without a ``var_list`` finds all variables.

    Args:
        find: returns the names of the variables in the graph under construction, or None.
    """
    global _under_construction  # set once, by the package that has programs
    _under_construction = find


class Selection:
    """The variables of a saver: names in checkpoints to names in the session, or all.

    Args: see :class:`~asyncmon.checkpoint.Saver`.

    Raises:
        ValueError: a variable occurs twice, or there is none.
        TypeError: an element is no variable.
    """

    def __init__(
        self, var_list: Iterable[Any] | Mapping[str, Any] | None, defer_build: bool, allow_empty: bool
    ) -> None:
        self.allow_empty = allow_empty
        self._names: dict[str, str] | None = None
        self.takes_all = var_list is None
        """Whether all variables are saved, including reserved names."""
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
        """Choose the variables of the graph under construction, unless this was done before."""
        if self._built:
            return
        if self.takes_all:
            names = None if _under_construction is None else _under_construction()
            self._names = None if names is None else {name: name for name in names}
        if self.is_empty and not self.allow_empty:
            raise ValueError("No variables to save")
        self._built = True

    @property
    def is_empty(self) -> bool:
        """Whether there is no variable."""
        return self._names is not None and not self._names

    @property
    def names(self) -> list[str] | None:
        """The names in the session; None for all variables."""
        return None if self._names is None else list(self._names.values())

    def covers(self, name: str) -> bool:
        """Return whether a variable of the session is selected."""
        return self._names is None or name in self._names.values() or self._is_reserved(name)

    def to_checkpoint(self, state: Mapping[str, T]) -> dict[str, T]:
        """Return the selected part of a session's state, by names in the checkpoint.

        Raises:
            NotFoundError: the session lacks a variable.
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
        return self.takes_all and name.startswith(RESERVED)


def _refuse_twice(names: Iterable[str], problem: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{problem}: {name}")
