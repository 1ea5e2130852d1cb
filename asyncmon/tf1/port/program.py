"""The files of a program: what becomes async in each of them depends on the others."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from asyncmon.tf1.port import blocking
from asyncmon.tf1.port.flow import Flow
from asyncmon.tf1.port.kinds import Foreign, Instance, Kind, Real, Symbol
from asyncmon.tf1.port.plan import Planner
from asyncmon.tf1.port.scopes import Tree, is_guard
from asyncmon.tf1.port.siblings import Facts, Siblings
from asyncmon.tf1.port.threads import Threads


@dataclass
class Planned:
    """The plan for a file."""

    planner: Planner
    threads: Threads

    def settle(self) -> bool:
        """Extend the plan to a fixed point; return whether it has changed."""
        changed = False
        while self.planner.settle():
            self.threads = Threads(self.planner)
            changed = True
        return changed


class Program:
    """Plans the files of a program, each at its first use, and keeps their facts up to date."""

    def __init__(self) -> None:
        self.facts: dict[Path, Facts] = {}
        self._plans: dict[Path, Planned] = {}

    def read(self, path: Path) -> Facts:
        """Return the facts of a file; those of one that cannot be read, or parsed, are empty."""
        path = path.resolve()
        if path not in self.facts:
            self.facts[path] = Facts()  # for circular imports
            try:
                self._plans[path] = made = self._plan(path.read_bytes(), path.parent)
            except (OSError, SyntaxError):
                return self.facts[path]
            self.facts[path] = _facts(made.planner)
        return self.facts[path]

    def plan(self, source: bytes | str, folder: Path | None, path: Path | None = None) -> Planned:
        """Return the plan for a text; it agrees with the plans for all files that were read.

        Args:
            source: the text.
            folder: the folder in which imported files are found; None to read no other file.
            path: the file of the text, if it was read.

        Raises:
            SyntaxError: the text is not Python 3, or mixes tabs with spaces.
        """
        known = None if path is None else self._plans.get(path.resolve())
        made = known or self._plan(source, folder)
        while any(self._settle(one) for one in list(self._plans)) or made.settle():
            pass
        return made

    def _plan(self, source: bytes | str, folder: Path | None) -> Planned:
        tree = Tree(parsed(source))
        planner = Planner(Flow(tree, Siblings(folder, self.read, self.facts)))
        made = Planned(planner, Threads(planner))
        made.settle()
        return made

    def _settle(self, path: Path) -> bool:
        made = self._plans[path]
        if changed := made.settle():
            self.facts[path] = _facts(made.planner)
        return changed


def parsed(source: bytes | str) -> cst.Module:
    """Return the tree of a text.

    SyntaxError if it is not Python 3, or mixes tabs with spaces; it has the line.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning of the program is none of the port
        try:
            compile(source, "<program>", "exec", dont_inherit=True)
            return cst.parse_module(source)
        except ValueError as error:  # a null byte
            raise SyntaxError(str(error)) from None
        except cst.ParserSyntaxError as error:
            message = error.message.splitlines()[0]
            raise SyntaxError(message, ("", error.raw_line, error.raw_column, "")) from None


def _facts(planner: Planner) -> Facts:
    tree, flow = planner.tree, planner.flow
    functions = [f for f in tree.functions if isinstance(tree.holder(f), cst.Module)]
    methods = [(c, f) for f in tree.functions if (c := tree.is_method(f)) is not None]
    awaited = {(c.name.value, f.name.value) for c, f in methods if planner.is_coroutine(f)}
    blocks = _blocking(planner)
    facts = Facts(
        functions=frozenset(f.name.value for f in functions if planner.is_coroutine(f)),
        methods=frozenset(
            (owner, "" if name in ("__init__", "__new__") else name) for owner, name in awaited
        ),
        names=frozenset(f.name.value for f in functions)
        | frozenset(c.name.value for c in tree.classes)
        | frozenset(f"{c.name.value}.{f.name.value}" for c, f in methods),
        blocking=frozenset(f.name.value for f in functions if f in blocks)
        | frozenset(f"{c.name.value}.{f.name.value}" for c, f in methods if f in blocks),
        bases=tuple((c.name.value, base) for c in tree.classes for base in flow.real_bases(c)),
        values=tuple((name, seen) for name, kind in _globals(planner) if (seen := _outside(kind))),
        runs=any(not is_guard(tree.top(site)) for site in planner.plan.sites),
    )
    for name, kind in _globals(planner):
        if isinstance(kind, Foreign):
            facts |= flow.siblings.imported(kind.path, name)
    return facts


def _blocking(planner: Planner) -> set[cst.CSTNode]:
    """Return the plain functions of a file that block a thread, by their own calls or by callees."""
    found: set[cst.CSTNode] = set()
    fresh: set[cst.CSTNode] = {planner.tree.module}
    while fresh:
        found |= fresh
        calls = (call for call in planner.calls if _blocks(planner, call, found))
        holders = map(planner.tree.holder, calls)
        fresh = {one for one in holders if one not in found and not planner.is_coroutine(one)}
    return found - {planner.tree.module}


def _blocks(planner: Planner, call: cst.Call, found: set[cst.CSTNode]) -> bool:
    kinds, siblings = planner.flow.kinds(call.func), planner.flow.siblings
    paths = (kind.path for kind in kinds if isinstance(kind, Foreign))
    if kinds and (blocking.why(kinds, call) or any(map(siblings.blocks, paths))):
        return True
    return any(target in found for target in planner.targets(call))


def _outside(kind: Kind) -> Kind | None:
    """Return the kind that an object of a file has in other files; None if they do not follow it."""
    if isinstance(kind, Instance) and isinstance(kind.of, cst.ClassDef):
        return Foreign(f"{kind.of.name.value}()", known=False)
    return kind if isinstance(kind, Real | Instance | Symbol) else None


def _globals(planner: Planner) -> list[tuple[str, Kind]]:
    root = planner.tree.scopes[planner.tree.module]
    names = planner.flow.names.items()
    return [(name, kind) for (scope, name), kinds in names if scope is root for kind in kinds]
