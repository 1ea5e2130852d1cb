"""Replace threads that run a session by tasks: ``threading.Thread`` by ``asyncio.create_task``."""

from __future__ import annotations

import libcst as cst

from asyncmon.tf1.port.calls import argument
from asyncmon.tf1.port.kinds import Foreign
from asyncmon.tf1.port.plan import Planner

_TAKERS = frozenset({"join", "stop", "Stop", "register_thread", "register_task"})


class Threads:
    """Finds the threads of a file, and returns the tasks in their place."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.flow = planner.flow
        self.tree = planner.tree
        self.created: set[cst.CSTNode] = set()
        self.joined: set[cst.CSTNode] = set()
        self.waited: set[cst.CSTNode] = set()
        """Joins of threads that stay threads, in code that runs on the event loop."""
        self.alive: set[cst.CSTNode] = set()
        self.dropped: set[cst.CSTNode] = set()
        calls = planner.calls
        made = [call for call in calls if self._path(call) == "threading.Thread"]
        moved = any(map(self._is_async, made)) or any(map(self._takes_threads, calls))
        for call in made if moved else ():
            if argument(call, 1, "target") is None or any(arg.star for arg in call.args):
                planner.note(call, "a thread without a target that is seen here: make it a task")
            else:
                self.created.add(call)
                if isinstance(self.tree.holder(call), cst.Module):
                    planner.plan.sites.add(call)
        for call in calls:
            self._use(call, moved)
        for node in self.tree.nodes:
            if isinstance(node, cst.Assign) and self._sets_daemon(node, moved):
                self.dropped.add(node)
        for node in self.tree.nodes:
            if isinstance(node, cst.For) and node.orelse is None and self._is_dropped(node):
                self.dropped.add(node)

    def _path(self, call: cst.Call) -> str:
        paths = [kind.path for kind in self.flow.kinds(call.func) if isinstance(kind, Foreign)]
        return paths[0] if paths else ""

    def _is_async(self, call: cst.Call) -> bool:
        target = argument(call, 1, "target")
        return target is not None and any(map(self.planner.is_async, self.flow.kinds(target)))

    def _takes_threads(self, call: cst.Call) -> bool:
        """Return whether threads are passed to a coordinator, which expects tasks."""
        name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if name not in _TAKERS:
            return False
        for arg in call.args:
            for kind in self.flow.kinds(arg.value):
                inner = getattr(kind, "of", ())
                flat = [kind, *(inner if isinstance(inner, frozenset) else ())]
                if not all(getattr(one, "has_start", True) for one in flat):
                    return True
        return False

    def _use(self, call: cst.Call, moved: bool) -> None:
        if not isinstance(call.func, cst.Attribute):
            return
        thread = self.planner.is_thread(call.func.value)
        if thread is None:
            return
        name = call.func.attr.value
        if not (moved or thread.has_start):
            if name == "join" and self.planner.is_on_loop(call) and self.planner.reach(call):
                self.waited.add(call)
            return
        statement = self.tree.parent(call)
        if (name == "start" and not thread.has_start) or name == "setDaemon":
            if isinstance(statement, cst.Expr):
                self.dropped.add(statement)
            else:
                self.planner.note(call, "a task is started when it is made: take out this `start`")
        elif name == "join" and not isinstance(self.tree.parent(call), cst.Await):
            if self.planner.reach(call):
                self.joined.add(call)
        elif name in ("is_alive", "isAlive"):
            self.alive.add(call)

    def _sets_daemon(self, node: cst.Assign, moved: bool) -> bool:
        target = node.targets[0].target
        if not isinstance(target, cst.Attribute) or target.attr.value != "daemon":
            return False
        thread = self.planner.is_thread(target.value)
        return thread is not None and (moved or thread.has_start)

    def _is_dropped(self, loop: cst.For) -> bool:
        return all(
            isinstance(line, cst.SimpleStatementLine)
            and all(small in self.dropped for small in line.body)
            for line in loop.body.body
        )

    # -- the new text

    def task(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return the call that starts a task in place of a thread."""
        target = argument(updated, 1, "target")
        assert target is not None, "only threads with a target are moved"
        args = _spread(argument(updated, 3, "args"), "*") + _spread(
            argument(updated, 4, "kwargs"), "**"
        )
        if self._is_async(original):
            called = _called(target, args)
        else:
            func = cst.parse_expression("asyncio.to_thread")
            called = cst.Call(func=func, args=[cst.Arg(target), *args])
        given = [cst.Arg(called)]
        name = argument(updated, 2, "name")
        if name is not None:
            given.append(_keyword("name", name))
        return cst.Call(func=cst.parse_expression("asyncio.create_task"), args=given)

    def join(self, call: cst.Call) -> cst.BaseExpression:
        """Return the expression that waits for a task."""
        assert isinstance(call.func, cst.Attribute), "it is thread.join()"
        timeout = argument(call, 0, "timeout")
        if timeout is None:
            return call.func.value
        tasks = cst.List([cst.Element(call.func.value)])
        return cst.Call(
            func=cst.parse_expression("asyncio.wait"),
            args=[cst.Arg(tasks), _keyword("timeout", timeout)],
        )

    @staticmethod
    def is_alive(call: cst.Call) -> cst.BaseExpression:
        """Return the expression for a thread's ``is_alive()``."""
        assert isinstance(call.func, cst.Attribute), "it is thread.is_alive()"
        done = call.with_changes(func=call.func.with_changes(attr=cst.Name("done")))
        return cst.UnaryOperation(
            operator=cst.Not(), expression=done, lpar=[cst.LeftParen()], rpar=[cst.RightParen()]
        )


def _called(target: cst.BaseExpression, args: list[cst.Arg]) -> cst.BaseExpression:
    """Return a call of a thread's target, without a lambda that has no parameters."""
    if isinstance(target, cst.Lambda) and not args and not _has_parameters(target):
        return target.body
    if not isinstance(target, cst.Name | cst.Attribute | cst.Call | cst.Subscript) and not target.lpar:
        target = target.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.Call(func=target, args=args)


def _has_parameters(function: cst.Lambda) -> bool:
    given = function.params
    starred = isinstance(given.star_arg, cst.Param) or given.star_kwarg is not None
    return starred or bool(given.params or given.posonly_params or given.kwonly_params)


def _keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value, keyword=cst.Name(name), equal=equal)


def _spread(node: cst.BaseExpression | None, star: str) -> list[cst.Arg]:
    """Return arguments of a call for the ``args`` or ``kwargs`` of a thread."""
    if node is None:
        return []
    if star == "*" and isinstance(node, cst.Tuple | cst.List):
        plain = [item for item in node.elements if isinstance(item, cst.Element)]
        if len(plain) == len(node.elements):
            return [cst.Arg(item.value) for item in plain]
    return [cst.Arg(node, star=star)]  # type: ignore[arg-type]  # one of libcst's words
