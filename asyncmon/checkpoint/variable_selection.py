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
    """Return the name of a variable in snapshots: the string itself, or that of the object.

    The parts of a variable, and a list of them, have the name of the whole variable.

    Raises:
        TypeError: the object has no name, or is a list of different variables.
    """
    if isinstance(variable, list | tuple):
        names = {name_of(part) for part in variable}
        if len(names) != 1:
            raise TypeError(f"Slices must all be from the same variable, got {variable!r}.")
        return names.pop()
    name: object = variable
    if not isinstance(variable, str):
        members = members_of(FetchMembers, variable)
        name = members.save_name or members_of(FetchMembers, members.op).name or members.name
    if not isinstance(name, str):
        raise TypeError(
            f"{variable!r} of type {type(variable).__name__} is no variable: give an object with a"
            " name, or the name itself."
        )
    return name.removesuffix(":0")


def _check_variable(variable: Any) -> None:
    op = members_of(FetchMembers, variable).op
    if getattr(op, "type", "VariableV2") != "VariableV2":
        raise TypeError(f"Variable to save is not a Variable: {variable!r}")


def names_of(variables: Iterable[Any]) -> list[str]:
    """Return the names of variables in snapshots; the parts of a variable together have one."""
    owners: dict[str, list[Any]] = {}
    for variable in variables:
        _check_variable(variable)
        owners.setdefault(name_of(variable), []).append(variable)
    for name, found in owners.items():
        if len(found) > 1:
            own = [members_of(FetchMembers, getattr(one, "op", None)).name or name for one in found]
            if len(set(own)) < len(own):
                raise ValueError(f"At least two variables have the same name: {name}")
            if name in own:
                raise ValueError(f"Mixing slices and non-slices with the same name: {name}")
    return list(owners)


_under_construction: Callable[[], list[str] | None] | None = None


def take_variables_from(find: Callable[[], list[str] | None]) -> None:
    """Set the function by which a saver without a ``var_list`` finds all variables.

    Args:
        find: returns the names of the variables in the graph under construction, or None.
    """
    global _under_construction  # set once, by the package that has programs
    _under_construction = find


class Selection:
    """The variables of a saver: names in checkpoints to names in the session, or all."""

    def __init__(
        self, var_list: Iterable[Any] | Mapping[str, Any] | None, defer_build: bool, allow_empty: bool
    ) -> None:
        self.allow_empty = allow_empty
        self._names: dict[str, str] | None = None
        self.takes_all = var_list is None
        """Whether all variables are saved, including reserved names."""
        self._built = False
        self._parts: dict[str, tuple[str, Any]] = {}  # saved alone: the whole variable, and the place
        if isinstance(var_list, Mapping):
            self._names = {key: self._selected(variable) for key, variable in var_list.items()}
            for name, count in Counter(self._names.values()).items():
                if count > 1:
                    raise ValueError(f"The same saveable will be restored with two names: {name}")
        elif var_list is not None:
            if isinstance(var_list, str):
                raise TypeError(f"var_list must be a list or a dict, not the string {var_list!r}.")
            self._names = {name: name for name in names_of(var_list)}
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
        if self._names is None or self._is_reserved(name):
            return True
        return any(name in (one, *self._parts.get(one, ())[:1]) for one in self._names.values())

    def to_checkpoint(
        self, state: Mapping[str, T], part_of: Callable[[T, str, Any], T]
    ) -> dict[str, T]:
        """Return the selected part of a session's state, by names in the checkpoint.

        Args:
            state: by name in the session.
            part_of: returns a part of a variable, for that of the whole one, the name and the place of
                the part: an object with ``var_offset`` and ``var_shape``.
        """
        if self._names is None:
            return dict(state)
        cut = {name: whole for name, whole in self._parts.items() if whole[0] in state}
        state = {**state, **{n: part_of(state[one], n, place) for n, (one, place) in cut.items()}}
        missing = sorted(name for name in self._names.values() if name not in state)
        if missing:
            raise NotFoundError(
                f"The saver's var_list names {', '.join(map(repr, missing))}, which the session does"
                f" not have; it has: {', '.join(map(repr, sorted(state)[:20]))}."
            )
        found = {key: state[name] for key, name in self._names.items()}
        return found | {name: value for name, value in state.items() if self._is_reserved(name)}

    def _selected(self, variable: Any) -> str:
        """Return the name in the session of a value of a dict, which may be one part of a variable."""
        _check_variable(variable)
        members = members_of(FetchMembers, variable)
        own = members_of(FetchMembers, members.op).name
        place = getattr(variable, "_save_slice_info", None)
        if place is None or own is None:
            return name_of(variable)
        self._parts[own] = name_of(variable), place
        return own

    def _is_reserved(self, name: str) -> bool:
        return self.takes_all and name.startswith(RESERVED)
