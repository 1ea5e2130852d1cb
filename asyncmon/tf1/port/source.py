"""A parsed file: its nodes, scopes and positions, and edits of its text."""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Holder = Function | ast.ClassDef | ast.Module
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, order=True)
class Note:
    """A line that needs a manual change, with the reason."""

    line: int
    text: str


class Source:
    """A file. Positions are offsets in ``code``, the text in UTF-8, as those of :mod:`ast`.

    SyntaxError if the text is not Python 3, or mixes tabs with spaces; it has the line.
    """

    def __init__(self, data: bytes, path: Path | None = None) -> None:
        self.path = path
        self.encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        text = data.decode(self.encoding)
        self.module = parsed(text)
        self.code = text.encode()
        ends = [match.end() for match in re.finditer(rb"\r\n|\r|\n", self.code)]
        self.starts = [0, *ends, len(self.code)]
        self.newline = "\r\n" if b"\r\n" in self.code else "\n"
        self.nodes: list[ast.AST] = []
        self.parent: dict[ast.AST, ast.AST] = {}
        self.holder: dict[ast.AST, Holder] = {self.module: self.module}
        self._visit(self.module, self.module)
        self.functions = [n for n in self.nodes if isinstance(n, DEFS)]
        self.classes = [n for n in self.nodes if isinstance(n, ast.ClassDef)]
        self.calls = [n for n in self.nodes if isinstance(n, ast.Call)]
        self.bound: dict[Holder, set[str]] = {}
        self._find_names()
        self.generators = {
            self.holder[n] for n in self.nodes if isinstance(n, ast.Yield | ast.YieldFrom)
        }
        self.edits: list[Edit] = []
        self._active: list[Edit] = []
        unit = re.search(
            rb"^([ \t]+)\S",
            self.code[self.start(self.module.body[0]) :] if self.module.body else b"",
            re.M,
        )
        self.unit = "    " if unit is None else unit[1].decode()

    def _visit(self, node: ast.AST, holder: Holder) -> None:
        self.nodes.append(node)
        self.holder[node] = holder
        inner = node if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else holder
        for name, value in ast.iter_fields(node):
            inside = name in ("body", "args")
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.parent[child] = node
                    self._visit(child, inner if inner is holder or inside else holder)
        if isinstance(node, FUNCTIONS):
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self._rehome(default, inner, holder)

    def _rehome(self, node: ast.AST, inner: Holder, holder: Holder) -> None:
        for one in ast.walk(node):
            if self.holder.get(one) is inner:
                self.holder[one] = holder

    def _find_names(self) -> None:
        declared: dict[Holder, set[str]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Global | ast.Nonlocal):
                declared.setdefault(self.holder[node], set()).update(node.names)
            for name in binds(node):
                self.bound.setdefault(self.holder[node], set()).add(name)
        for holder, names in declared.items():
            self.bound[holder] = self.bound.get(holder, set()) - names
            for node in self.nodes:
                if isinstance(node, ast.Global) and self.holder[node] is holder:
                    self.bound.setdefault(self.module, set()).update(node.names)

    # -- scopes

    def binder(self, name: str, holder: Holder) -> Holder | None:
        """Return the function, class or module that binds a name used in a holder; None: a builtin."""
        first, at = True, holder
        while True:
            if name in self.bound.get(at, ()) and (first or not isinstance(at, ast.ClassDef)):
                return at
            if isinstance(at, ast.Module):
                return None
            first, at = False, self.holder[at]

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class of a method."""
        found = self.holder.get(node)
        return found if isinstance(node, DEFS) and isinstance(found, ast.ClassDef) else None

    def self_class(self, holder: Holder) -> ast.ClassDef | None:
        """Return the class around code."""
        while not isinstance(holder, ast.Module):
            if isinstance(holder, ast.ClassDef):
                return holder
            holder = self.holder[holder]
        return None

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the inner ones first."""
        while (found := self.parent.get(node)) is not None:
            yield found
            node = found

    def is_inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Return whether a node is another one, or inside it."""
        return node is outer or any(one is outer for one in self.above(node))

    def top(self, node: ast.AST) -> ast.AST:
        """Return the statement of the module that has a node."""
        chain = [node, *self.above(node)]
        return chain[-2] if len(chain) > 1 else node

    # -- positions

    def start(self, node: Any) -> int:
        """Return where a node begins; decorators are part of it."""
        first = (getattr(node, "decorator_list", None) or [node])[0]
        first = first.context_expr if isinstance(first, ast.withitem) else first
        at = self.starts[first.lineno - 1] + first.col_offset
        return self.code.rindex(b"@", 0, at) if getattr(node, "decorator_list", None) else at

    def end(self, node: Any) -> int:
        """Return where a node ends."""
        node = (node.optional_vars or node.context_expr) if isinstance(node, ast.withitem) else node
        found: int = self.starts[node.end_lineno - 1] + node.end_col_offset
        return found

    def text(self, node: ast.AST) -> str:
        """Return the old text of a node."""
        return self.code[self.start(node) : self.end(node)].decode()

    def line_start(self, at: int) -> int:
        """Return where the line of a position begins."""
        return max(self.code.rfind(b"\n", 0, at), self.code.rfind(b"\r", 0, at)) + 1

    def indent(self, node: ast.AST) -> str:
        """Return the white space before the first statement of a node's line."""
        line = self.code[self.line_start(self.start(node)) :]
        return line[: len(line) - len(line.lstrip(b" \t"))].decode()

    def is_alone(self, node: ast.AST) -> bool:
        """Return whether a statement has its lines for itself."""
        before = self.code[self.line_start(self.start(node)) : self.start(node)]
        rest = re.match(rb"[ \t]*(#[^\r\n]*)?(\r\n|\r|\n|$)", self.code[self.end(node) :])
        return not before.strip() and rest is not None

    # -- edits

    def wrap(self, node: ast.AST, before: str, after: str = "") -> None:
        """Insert text around a node."""
        start, end = self.start(node), self.end(node)
        self.edits.append(Edit(start, start, start, end, lambda: before))
        if after:
            self.edits.append(Edit(end, end, start, end, lambda: after, closes=True))

    def insert(self, at: int, text: str, *, first: bool = False) -> None:
        """Insert text at a position; if it is ``first``, before all of what begins there."""
        self.edits.append(Edit(at, at, at - first, at, lambda: text, closes=first))

    def replace(
        self, start: int, end: int, text: str | Callable[[], str], *, outer: bool = False
    ) -> None:
        """Replace a range; text that is computed may :meth:`render` the range, if it is ``outer``."""
        made = (lambda: text) if isinstance(text, str) else text
        self.edits.append(Edit(start, end, start, end, made, replaces=True, outer=outer))

    def replace_node(self, node: ast.AST, text: str | Callable[[], str]) -> None:
        """Replace a node."""
        self.replace(self.start(node), self.end(node), text)

    def render(self, start: int, end: int) -> str:
        """Return the new text of a range. Edits of something larger than the range are left out."""
        made, at = [], max(start, 0)
        inside = (e for e in self.edits if start <= e.first and e.last <= end)
        for edit in sorted(inside, key=lambda e: e.order):
            if edit.start < at or edit in self._active:
                continue  # in a part that was replaced, or the one that renders its own range
            self._active.append(edit)
            made += [self.code[at : edit.start].decode(), edit.text()]
            self._active.pop()
            at = max(at, edit.end)
        return "".join([*made, self.code[at:end].decode()])

    def new(self, node: ast.AST) -> str:
        """Return the new text of a node. A replacement of the node itself must use its parts."""
        return self.render(self.start(node), self.end(node))


@dataclass(eq=False)
class Edit:
    """New text for a range, on account of the nodes of ``first`` to ``last``."""

    start: int
    end: int
    first: int
    last: int
    text: Callable[[], str]
    closes: bool = False
    replaces: bool = False
    outer: bool = False
    order: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        # At one position: what ends, the inner first; what begins, the outer first; replacements last.
        size = self.last - self.first
        self.order = (
            (self.start, 0, size) if self.closes else (self.start, 1, -size - self.outer, self.replaces)
        )


def parsed(text: str) -> ast.Module:
    """Return the tree of a text. SyntaxError if it is not Python 3, or mixes tabs with spaces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning of the program is none of the port
        try:
            compile(text, "<program>", "exec", dont_inherit=True)
            return ast.parse(text)
        except ValueError as error:  # a null byte
            raise SyntaxError(str(error)) from None


def binds(node: ast.AST) -> list[str]:
    """Return the names that a node itself binds, in the scope that holds it."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.alias):
        return [node.asname or node.name.partition(".")[0]]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    return []


def dotted(node: ast.AST | None) -> str:
    """Return a dotted name, or "" for another expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def last_name(node: ast.AST | None) -> str:
    """Return the name or the attribute at the end of an expression."""
    return (
        node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    )


def argument(call: ast.Call, index: int | None, name: str) -> ast.expr | None:
    """Return an argument of a call by its position and name."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    plain = not any(isinstance(arg, ast.Starred) for arg in call.args)
    return call.args[index] if index is not None and plain and index < len(call.args) else None


def decorators(node: ast.AST) -> set[str]:
    """Return the last names of a function's decorators."""
    found = getattr(node, "decorator_list", [])
    return {last_name(one.func if isinstance(one, ast.Call) else one) for one in found}


def path_of(source: Source, node: ast.AST) -> str:
    """Return the text of an expression for a note."""
    return dotted(node) or source.text(node)


def is_guard(node: ast.AST) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "__name__ == '__main__'",
        "'__main__' == __name__",
    )


BUILTINS = frozenset(dir(builtins))
