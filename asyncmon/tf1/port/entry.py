"""The entry point of a module that awaits: ``asyncio.run`` or ``async def main()``; Ctrl-C in it."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from asyncmon.tf1.port import blocking
from asyncmon.tf1.port.kinds import Def
from asyncmon.tf1.port.plan import Plan
from asyncmon.tf1.port.source import COMPREHENSIONS, Source, binds, dotted, is_guard

_CANCELLED = "asyncio.CancelledError"
_NAMES = ("main", "async_main", "run_main", "main_")
# Builtins that are about the names of the module when they are called in it without an argument.
_OF_MODULE = {"locals": "globals()", "vars": "globals()", "dir": "sorted(globals())"}


class Entry:
    """Finds the statements of a module that await, and moves them into a coroutine.

    A single call of a function of the file is wrapped in ``asyncio.run``. Otherwise the body of
    ``if __name__ == "__main__":`` becomes ``main``, or all statements from the first one that awaits.
    The names that these bind stay names of the module: they are ``global`` in ``main``.
    """

    def __init__(self, source: Source, plan: Plan) -> None:
        self.source = source
        self.plan = plan
        self.body = source.module.body
        self.name = ""
        self.run: ast.AST | None = None
        self.guard: ast.If | None = None
        self.moved: list[ast.stmt] = []
        sites = [node for node in source.nodes if node in plan.sites]
        if not sites:
            return
        holding = {source.top(site) for site in sites}
        tops = [node for node in self.body if node in holding]
        if len(sites) == 1 and self._is_single_call(sites[0]):
            self.run = sites[0]
            return
        if len(tops) == 1 and isinstance(tops[0], ast.If) and is_guard(tops[0]) and not tops[0].orelse:
            self.guard = tops[0]
            self.moved = self.guard.body
        else:
            lines = [node.lineno for node in self.body]
            self.moved = self.body[lines.index(tops[0].lineno) :]
        taken = source.bound.get(source.module, set())
        self.name = next(name for name in _NAMES if name not in taken)
        self._inside = [one for node in self.moved for one in ast.walk(node)]
        self._check()

    def _is_single_call(self, site: ast.AST) -> bool:
        """Return whether a site is a call of a function of the program, outside of loops."""
        if not isinstance(site, ast.Call):
            return False
        kinds = self.plan.of(self.source, site.func)
        if not any(isinstance(k, Def) and not isinstance(k.node, ast.ClassDef) for k in kinds):
            return False
        loops = (ast.For, ast.While, ast.With, *COMPREHENSIONS)
        return not any(isinstance(node, loops) for node in self.source.above(site))

    def _is_of_module(self, node: ast.AST) -> bool:
        return isinstance(self.source.holder[node], ast.Module)

    def _check(self) -> None:
        for node in self._inside:
            if not isinstance(node, ast.Call):
                continue
            if self._is_of_module(node) and not self.plan.is_told(self.source, node):
                kinds = self.plan.of(self.source, node.func)
                if blocking.form(kinds, node) and self.plan.reach(self.source, node):
                    self.plan.awaited.add(node)
            if dotted(node.func).endswith("app.run"):
                text = (
                    f"`{dotted(node.func)}` is inside of `{self.name}` now, which has a loop of its own"
                )
                self.plan.note(self.source, node, text)

    # -- the new text

    def edit(self) -> None:
        """Move the statements of the module that await into ``main``."""
        if not self.name:
            return
        source = self.source
        for node in self._inside:
            if self._is_of_module(node):
                self._keep_scope(node)
        first, last = self.moved[0], self.moved[-1]
        start, end = source.line_start(source.start(first)), source.end(last)
        rest = re.match(rb"[ \t]*(;[ \t]*)?(#[^\r\n]*)?", source.code[end:])
        end += 0 if rest is None else rest.end()
        call, newline = f"asyncio.run({self.name}())", source.newline
        gap, opening = newline * 3, f"async def {self.name}():"
        if self.guard is not None:
            header = source.start(self.guard)
            text = source.code[header : source.start(first)].decode()
            inline = first.lineno == self.guard.lineno
            start = source.start(first) if inline else start
            rest_of_line = newline if inline else text[text.index(":") + 1 :].rstrip(" \t")
            unit = source.unit if inline else ""
            above = f'if __name__ == "__main__":{newline}{source.unit}{call}'
            source.replace(header, end, lambda: (
                f"{opening}{rest_of_line}{self._declared()}{unit}{source.render(start, end)}"
                f"{gap}{above}"
            ), outer=True)  # fmt: skip
            return
        at = self._comments_above(start)
        before = source.code[:at].decode()
        blank = len(re.findall(r"\n|\r(?!\n)", before[len(before.rstrip()) :]))
        gap_above = newline * max(3 - blank, 0) if before.strip() else ""
        comments = source.code[at:start].decode()
        source.replace(at, end, lambda: (
            f"{gap_above}{comments}{opening}{newline}{self._declared()}"
            f"{indented(source.render(start, end), source.unit)}{gap}{call}"
        ), outer=True)  # fmt: skip

    def _comments_above(self, start: int) -> int:
        """Return where the comment lines right above a position begin."""
        lines = self.source.code[:start].splitlines(keepends=True)
        while lines and lines[-1].startswith(b"#") and len(lines) > 1:
            start -= len(lines.pop())
        return start

    def _declared(self) -> str:
        """Return the ``global`` statement for the names that the moved statements bind."""
        found: set[str] = set()
        for node in self._inside:
            loops = (ast.comprehension, *COMPREHENSIONS)
            targets = [n for n in self.source.above(node) if isinstance(n, loops)]
            if self._is_of_module(node) and (not targets or self._is_walrus(node)):
                found.update(name for name in binds(node) if name != "*")
        unit, newline = self.source.unit, self.source.newline
        text = f"{unit}global {', '.join(sorted(found))}" if found else ""
        if len(text) > 100:
            rows = [sorted(found)[i : i + 8] for i in range(0, len(found), 8)]
            text = newline.join(f"{unit}global {', '.join(row)}" for row in rows)
        return f"{text}{newline}" if text else ""

    def _is_walrus(self, node: ast.AST) -> bool:
        above = self.source.parent[node]
        return isinstance(above, ast.NamedExpr) and above.target is node

    def _keep_scope(self, node: ast.AST) -> None:
        """Change what has another meaning in a function than in the module."""
        source = self.source
        if isinstance(node, ast.AnnAssign):
            value = node.value
            target = "" if value is None else f"{source.text(node.target)} = "
            source.replace(
                source.start(node),
                source.end(node) if value is None else source.start(value),
                target or "pass",
            )
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            source.replace_node(node, f"exec({source.text(node)!r}, globals())")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            name = node.func.id
            if source.binder(name, source.module) is not None:
                return
            if name in _OF_MODULE and not node.args:
                source.replace_node(node, _OF_MODULE[name])
            elif name in ("exec", "eval") and len(node.args) == 1:
                source.insert(source.end(node.args[0]), ", globals()")

    # -- Ctrl-C, which arrives in a coroutine as a cancellation

    def edit_handlers(self) -> bool:
        """Make handlers of KeyboardInterrupt around awaits catch cancellations; return if there are."""
        changed = False
        for node in self.source.nodes:
            if isinstance(node, ast.ExceptHandler) and self._catches_interrupts(node):
                assert node.type is not None, "it has a name"
                kept = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                names = ", ".join([*map(self.source.text, kept), _CANCELLED])
                self.source.replace_node(node.type, f"({names})")
                changed = True
        return changed

    def _catches_interrupts(self, handler: ast.ExceptHandler) -> bool:
        types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names = [dotted(one) for one in types]
        above = self.source.parent[handler]
        if "KeyboardInterrupt" not in names or _CANCELLED in names or not isinstance(above, ast.Try):
            return False
        holder = self.source.holder[above]
        moves = isinstance(holder, ast.Module) and bool(self.name)
        return (moves or holder in self.plan.functions) and any(
            self.source.holder[node] is holder and self._is_in_body(node, above)
            for node in self.plan.awaiting() & set(self.source.nodes)
        )

    def _is_in_body(self, node: ast.AST, block: ast.Try) -> bool:
        return any(self.source.is_inside(node, statement) for statement in block.body)


def indented(text: str, unit: str) -> str:
    """Return lines with more indentation; strings of several lines, and blank lines, stay."""
    inside: set[int] = set()
    opened = [0]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind in ("FSTRING_START", "TSTRING_START"):
            opened.append(token.start[0])
        elif kind in ("FSTRING_END", "TSTRING_END"):
            inside.update(range(opened.pop() + 1, token.end[0] + 1))
        elif kind == "STRING":
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    return "".join(
        unit + line if line.strip() and number not in inside else line
        for number, line in enumerate(lines, 1)
    )
