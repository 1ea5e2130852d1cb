"""The new text of a file: edits at positions, so that the layout stays."""

from __future__ import annotations

import ast
from bisect import bisect
from collections.abc import Sequence

import asyncmon.tf1 as tf
from asyncmon.tf1.port import blocking, imports, names
from asyncmon.tf1.port.entry import Entry, indented
from asyncmon.tf1.port.infer import MANAGERS
from asyncmon.tf1.port.kinds import Def, Foreign, Instance, Method, Real
from asyncmon.tf1.port.plan import ENTERING, Plan
from asyncmon.tf1.port.source import Source, decorators, dotted
from asyncmon.tf1.port.threads import Threads

NO_OPS = frozenset({"disable_v2_behavior", "disable_eager_execution", "disable_v2_tensorshape"})

# Added to a class whose __init__ awaits, for await Class(...).
_NEW = (
    "async def __new__(cls, *args, **kwargs):",
    "    self = super().__new__(cls)",
    "    await self.__init__(*args, **kwargs)",
    "    return self",
    "",
)


class Editor:
    """Applies a plan to a file."""

    def __init__(self, source: Source, plan: Plan, threads: Threads, entry: Entry) -> None:
        self.source = source
        self.plan = plan
        self.threads = threads
        self.entry = entry
        self.needed: set[str] = set()
        """Modules to import."""
        self.removed: set[ast.AST] = set(threads.dropped)

    def text(self) -> str:
        """Return the new text."""
        source = self.source
        source.edits.clear()
        for node in source.nodes:
            self._edit(node)
        for node in self.removed:
            self._remove(node)
        self.entry.edit()
        if self.entry.edit_handlers() or self.entry.name or self.entry.run is not None:
            self.needed.add("asyncio")
        self._import()
        return source.render(-1, len(source.code))

    def _edit(self, node: ast.AST) -> None:
        match node:
            case ast.Call():
                self._edit_call(node)
            case ast.Attribute():
                self._edit_attribute(node)
            case ast.For() | ast.With() | ast.FunctionDef():
                self._edit_block(node)
            case ast.comprehension() if node in self.plan.loops:
                at = self.source.code.rindex(b"for", 0, self.source.start(node.target))
                self.source.insert(at, "async ")
            case ast.Import() | ast.ImportFrom():
                made, _ = imports.rewritten(node)
                gap = self.source.newline + self.source.indent(node)
                if made:
                    self.source.replace_node(node, gap.join(made))
            case ast.Expr() if self._is_no_op(node):
                self.removed.add(node)

    def _is_no_op(self, node: ast.Expr) -> bool:
        call = node.value
        return isinstance(call, ast.Call) and dotted(call.func).rpartition(".")[2] in NO_OPS

    # -- expressions

    def _edit_call(self, call: ast.Call) -> None:
        source, threads = self.source, self.threads
        if call in threads.created:
            self.needed.add("asyncio")
            source.replace_node(call, lambda: threads.task(call))
            return
        assert isinstance(call.func, ast.expr), "a call has a function"
        if call in threads.joined:
            if call.args or call.keywords:
                self.needed.add("asyncio")
            self._await(call)
            source.replace_node(call, lambda: threads.join(call))
            return
        if call in threads.alive and isinstance(call.func, ast.Attribute):
            value = call.func.value
            source.replace_node(call, lambda: f"(not {source.new(value)}.done())")
            return
        form = blocking.form(self.plan.of(source, call.func), call) if call in self.plan.awaited else ""
        if call in threads.waited or form == blocking.TO_THREAD:
            self.needed.add("asyncio")
            self._await(call)
            inside = source.end(call.func), source.end(call)
            comma = ", " if call.args or call.keywords else ""
            source.replace_node(call, lambda: (
                f"asyncio.to_thread({source.new(call.func)}{comma}"
                f"{source.render(*inside).strip().removeprefix('(').lstrip()}"
            ))  # fmt: skip
            return
        if form == blocking.SLEEP:
            self.needed.add("asyncio")
            source.replace_node(call.func, "asyncio.sleep")
        self._rename_arguments(call)
        if call in self.plan.nexts:
            source.replace_node(call.func, "anext")
        if call is self.entry.run:
            source.wrap(call, "asyncio.run(", ")")
        elif call in self.plan.awaited:
            self._await(call)
        elif call in self.plan.started:
            self._await(call)
            source.insert(source.end(call), ".start()")
        for arg in call.args:
            if arg in self.plan.collected:
                self._collect(call, arg)

    def _await(self, call: ast.Call) -> None:
        source, outer = self.source, self.source.parent[call]
        code, start, end = source.code, source.start(call), source.end(call)
        if code[start:end].strip() != code[start:end] or not _same(source.text(call), call):
            text = f"`{ast.unparse(call)}` is in a text: take it out, and await it"
            self.plan.note(source, call, text)  # positions in an f-string of several lines
            return
        tight = (isinstance(outer, ast.Attribute | ast.Subscript) and outer.value is call) or (
            isinstance(outer, ast.Call) and outer.func is call
        )
        closed = code[:start].rstrip().endswith(b"(") and code[end:].lstrip().startswith(b")")
        tight = tight and not closed
        source.wrap(call, "(await " if tight else "await ", ")" if tight else "")

    def _collect(self, call: ast.Call, arg: ast.expr) -> None:
        if isinstance(arg, ast.GeneratorExp):
            start, end = self.source.start(arg), self.source.end(arg)
            shared = end == self.source.end(call)  # the parentheses are those of the call
            self.source.replace(start, start + 1, "([" if shared else "[")
            self.source.replace(end - 1, end, "])" if shared else "]")
        else:
            self.source.wrap(arg, "[item async for item in ", "]")

    def _rename_arguments(self, call: ast.Call) -> None:
        kinds = self.plan.of(self.source, call.func)
        paths = {kind.path for kind in kinds if isinstance(kind, Foreign)}
        if "absl.app.run" in paths and self._runs_async(call) and (root := self._root()):
            self.source.replace_node(call.func, f"{root}.app.run")
        joins = any(isinstance(k, Method) and k.name in ("join", "stop", "Stop") for k in kinds)
        made = isinstance(call.func, ast.Attribute) and call.func.attr in (
            "create_tasks",
            "create_threads",
        )
        ours = any(isinstance(kind, Real | Method) for kind in kinds)
        for keyword in call.keywords:
            name, at = keyword.arg or "", self.source.start(keyword)
            if joins and name in names.KEYWORDS:
                self.source.replace(at, at + len(name), names.KEYWORDS[name])
            elif (made and name == "daemon") or (
                ours and name == "aggregation_method" and is_sum(keyword.value)
            ):
                self._drop_argument(call, keyword)

    def _drop_argument(self, call: ast.Call, keyword: ast.keyword) -> None:
        given = sorted([*call.args, *call.keywords], key=self.source.start)
        at = given.index(keyword)
        if at:
            self.source.replace(self.source.end(given[at - 1]), self.source.end(keyword), "")
        else:
            after = self.source.start(given[1]) if len(given) > 1 else self.source.end(keyword)
            self.source.replace(self.source.start(keyword), after, "")

    def _runs_async(self, call: ast.Call) -> bool:
        given = self.plan.of(self.source, call.args[0]) if call.args else ()
        return any(isinstance(kind, Def) and self.plan.is_coroutine(kind) for kind in given)

    def _root(self) -> str:
        """Return the module's name for ``asyncmon.tf1``, or ""."""
        for (source, holder, name), kinds in self.plan.types.names.items():
            if source is self.source and holder is source.module and Real(tf) in kinds:
                return name
        return ""

    def _edit_attribute(self, node: ast.Attribute) -> None:
        source, kinds = self.source, self.plan.of(self.source, node.value)
        real = [kind.value for kind in kinds if isinstance(kind, Real)]
        end = source.end(node)
        if any(names.is_alias(value, node.attr) for value in real):
            source.replace(source.end(node.value), end, "")
        elif node.attr == "v1" and isinstance(node.value, ast.Attribute) and tf.compat in real:
            source.replace(source.end(node.value.value), end, "")
        elif node.attr in names.RENAMED and self._is_ours(node):
            source.replace(end - len(node.attr), end, names.RENAMED[node.attr])

    def _is_ours(self, node: ast.Attribute) -> bool:
        kinds = self.plan.of(self.source, node.value)
        if not kinds:
            return not node.attr.startswith("__")
        new = names.RENAMED[node.attr]
        return any(
            isinstance(k, Real) or (isinstance(k, Instance) and names.method(k.name, new) is not None)
            for k in kinds
        )

    # -- blocks

    def _edit_block(self, node: ast.For | ast.With | ast.FunctionDef) -> None:
        source = self.source
        at = source.starts[node.lineno - 1] + node.col_offset  # after the decorators
        if isinstance(node, ast.For):
            if node in self.plan.loops and node not in self.removed:
                source.insert(at, "async ")
        elif isinstance(node, ast.With):
            if node in self.plan.withs:
                self._edit_with(node, at)
        elif node in self.plan.functions:
            if node.name in ENTERING:
                name = source.code.index(b"__", at)
                source.insert(name + 2, "a")
            source.insert(at, "async ")
            for decorator in node.decorator_list if decorators(node) & MANAGERS else ():
                if dotted(decorator).rpartition(".")[2] == "contextmanager":
                    self.needed.add("contextlib")
                    source.replace_node(decorator, "contextlib.asynccontextmanager")
            if node.name == "__init__" and self._needs_new(node):
                indent = source.indent(node)
                lines = [indent + line if line else "" for line in _NEW]
                text = source.newline.join(lines).replace("    ", source.unit).lstrip()
                source.insert(source.start(node), f"{text}{source.newline}{indent}", first=True)

    def _edit_with(self, node: ast.With, at: int) -> None:
        source, items = self.source, node.items
        flags = [self.plan.is_entered(source, item.context_expr) for item in items]
        if all(flags):
            source.insert(at, "async ")
            return
        groups: list[tuple[bool, list[ast.withitem]]] = []
        for flag, item in zip(flags, items, strict=True):
            if not groups or groups[-1][0] != flag:
                groups.append((flag, []))
            groups[-1][1].append(item)
        indent, newline = source.indent(node), source.newline
        first = node.body[0]
        colon = source.code.index(b":", source.end(items[-1]))
        inline = first.lineno == node.lineno
        body_start = source.start(first) if inline else source.starts[bisect(source.starts, colon)]
        comment = "" if inline else source.code[colon + 1 : body_start].decode()

        def made() -> str:
            text = source.render(body_start, source.end(node))
            text = indent + source.unit + text if inline else text
            for _ in groups[1:]:
                text = indented(text, source.unit)
            heads = []
            for depth, (flag, some) in enumerate(groups):
                listed = ", ".join(source.new(item) for item in some)
                pad = indent + source.unit * depth if depth else ""
                heads.append(f"{pad}{'async ' if flag else ''}with {listed}:")
            ending = comment if comment.strip() else newline
            return newline.join(heads) + ending + text

        source.replace(at, source.end(node), made)

    def _needs_new(self, init: ast.FunctionDef) -> bool:
        owner = self.source.owner(init)
        assert owner is not None, "it is a method"
        of, types = Def(self.source, owner), self.plan.types
        if types.method(of, "__new__") is not None:
            return False
        above = types.method(of, "__init__", above=True)
        return above is None or above.node not in self.plan.functions

    # -- statements

    def _remove(self, node: ast.AST) -> None:
        source = self.source
        if any(above in self.removed for above in source.above(node)):
            return
        outer = source.parent[node]
        blocks: Sequence[list[ast.AST]] = [v for _, v in ast.iter_fields(outer) if isinstance(v, list)]
        (block,) = [one for one in blocks if node in one]
        empty = all(one in self.removed for one in block) and block[0] is node
        if empty and not isinstance(outer, ast.Module):
            source.replace_node(node, "pass")
        elif source.is_alone(node):
            end = source.starts[node.end_lineno]  # type: ignore[attr-defined]  # of a statement
            source.replace(source.line_start(source.start(node)), end, "")
        else:
            after = source.code[source.end(node) :]
            gap = (
                len(after) - len(after.lstrip(b" \t;")) if after.lstrip(b" \t").startswith(b";") else 0
            )
            source.replace(source.start(node), source.end(node) + gap, "" if gap else "pass")

    def _import(self) -> None:
        source = self.source
        missing = [name for name in sorted(self.needed) if not self._has(name)]
        if not missing:
            return
        body = source.module.body
        at = 0
        while at < len(body) and (_is_docstring(body[at]) or _is_future(body[at])):
            at += 1
        position = source.start(body[at]) if at < len(body) else len(source.code)
        text = "".join(f"import {name}{source.newline}" for name in missing)
        if (
            at < len(body)
            and self.entry.moved
            and body[at] is (self.entry.guard or self.entry.moved[0])
        ):
            position = self.entry._comments_above(source.line_start(position))
        source.insert(position, text, first=True)

    def _has(self, name: str) -> bool:
        return any(
            isinstance(node, ast.Import)
            and isinstance(self.source.parent[node], ast.Module)
            and node not in self.entry.moved
            and any(alias.name == name and alias.asname is None for alias in node.names)
            for node in self.source.nodes
        )


def is_sum(value: ast.expr) -> bool:
    """Return whether a value is a way to add gradients; there is one way here."""
    return ".AggregationMethod." in f".{dotted(value)}"


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _same(text: str, node: ast.AST) -> bool:
    """Return whether a text is that of an expression: positions in f-strings are wrong at times."""
    try:
        return ast.dump(ast.parse(f"({text}\n)", mode="eval").body) == ast.dump(node)
    except SyntaxError:
        return False
