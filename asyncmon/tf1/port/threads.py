"""Replace threads that run a session by tasks: ``threading.Thread`` by ``asyncio.create_task``."""

from __future__ import annotations

import ast

from asyncmon.tf1.port.kinds import Foreign, Thread
from asyncmon.tf1.port.plan import Plan
from asyncmon.tf1.port.source import Source, argument, last_name

_TAKERS = frozenset({"join", "stop", "Stop", "register_thread", "register_task"})


class Threads:
    """Finds the threads of a file, and returns the tasks in their place."""

    def __init__(self, source: Source, plan: Plan) -> None:
        self.source = source
        self.plan = plan
        self.created: set[ast.AST] = set()
        self.joined: set[ast.AST] = set()
        self.waited: set[ast.AST] = set()
        """Joins of threads that stay threads, in code that runs on the event loop."""
        self.alive: set[ast.AST] = set()
        self.dropped: set[ast.AST] = set()
        made = [call for call in source.calls if self._is_thread(call)]
        self.moved = any(map(self._is_async, made)) or any(map(self._takes_threads, source.calls))
        for call in made if self.moved else ():
            starred = any(isinstance(arg, ast.Starred) for arg in call.args)
            if argument(call, 1, "target") is None or starred:
                text = "a thread without a target that is seen here: make it a task"
                plan.note(source, call, text)
            else:
                self.created.add(call)
                if isinstance(source.holder[call], ast.Module):
                    plan.sites.add(call)
        for call in source.calls:
            self._use(call)
        for node in source.nodes:
            if isinstance(node, ast.Assign) and self._sets_daemon(node):
                self.dropped.add(node)
        for node in source.nodes:
            if isinstance(node, ast.For) and not node.orelse and self.dropped.issuperset(node.body):
                self.dropped.add(node)

    def _is_thread(self, call: ast.Call) -> bool:
        kinds = self.plan.of(self.source, call.func)
        return any(isinstance(k, Foreign) and k.path == "threading.Thread" for k in kinds)

    def _is_async(self, call: ast.Call) -> bool:
        target = argument(call, 1, "target")
        kinds = () if target is None else self.plan.of(self.source, target)
        return any(map(self.plan.is_async, kinds))

    def _takes_threads(self, call: ast.Call) -> bool:
        """Return whether threads are passed to a coordinator, which expects tasks."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _TAKERS:
            return False
        return Thread() in self.plan.given(self.source, call)

    def _use(self, call: ast.Call) -> None:
        if not isinstance(call.func, ast.Attribute):
            return
        thread = self.plan.thread(self.source, call.func.value)
        if thread is None:
            return
        name, statement = call.func.attr, self.source.parent[call]
        if not (self.moved or thread.has_start):
            on_loop = name == "join" and is_on_loop(self.plan, self.source, call)
            told = self.plan.is_told(self.source, call)
            if on_loop and not told and self.plan.reach(self.source, call):
                self.waited.add(call)
        elif (name == "start" and not thread.has_start) or name == "setDaemon":
            if isinstance(statement, ast.Expr):
                self.dropped.add(statement)
            else:
                text = "a task is started when it is made: take out this `start`"
                self.plan.note(self.source, call, text)
        elif name == "join" and not isinstance(statement, ast.Await):
            if self.plan.reach(self.source, call):
                self.joined.add(call)
        elif name in ("is_alive", "isAlive"):
            self.alive.add(call)

    def _sets_daemon(self, node: ast.Assign) -> bool:
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "daemon":
            return False
        thread = self.plan.thread(self.source, target.value)
        return thread is not None and (self.moved or thread.has_start)

    # -- the new text

    def task(self, call: ast.Call) -> str:
        """Return the call that starts a task in place of a thread."""
        new, target = self.source.new, argument(call, 1, "target")
        assert target is not None, "only threads with a target are moved"
        args = self._spread(argument(call, 3, "args"), "*") + self._spread(
            argument(call, 4, "kwargs"), "**"
        )
        if not self._is_async(call):
            called = f"asyncio.to_thread({', '.join([new(target), *args])})"
        elif isinstance(target, ast.Lambda) and not args and not ast.unparse(target.args):
            called = new(target.body)
        else:
            plain = isinstance(target, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            called = f"{new(target) if plain else f'({new(target)})'}({', '.join(args)})"
        name = argument(call, 2, "name")
        return f"asyncio.create_task({called}{'' if name is None else f', name={new(name)}'})"

    def join(self, call: ast.Call) -> str:
        """Return the expression to await instead of a thread's ``join``."""
        assert isinstance(call.func, ast.Attribute), "it is thread.join()"
        task, timeout = self.source.new(call.func.value), argument(call, 0, "timeout")
        return (
            task if timeout is None else f"asyncio.wait([{task}], timeout={self.source.new(timeout)})"
        )

    def _spread(self, node: ast.expr | None, star: str) -> list[str]:
        """Return arguments of a call for the ``args`` or ``kwargs`` of a thread."""
        if node is None:
            return []
        if star == "*" and isinstance(node, ast.Tuple | ast.List):
            return [self.source.new(item) for item in node.elts]
        return [f"{star}{self.source.new(node)}"]


def is_on_loop(plan: Plan, source: Source, node: ast.AST) -> bool:
    """Return whether code runs on the event loop: in an async function, or called by one."""
    holder = source.holder[node]
    if isinstance(holder, ast.Module):
        return bool(plan.sites & set(source.nodes))
    return holder in _called_on_loop(plan)


def _called_on_loop(plan: Plan) -> set[ast.AST]:
    key = plan._size()
    if plan.loop_functions[0] != key:
        found: set[ast.AST] = {*plan.functions, *plan.lambdas}
        callees: dict[ast.AST, set[ast.AST]] = {}
        modules: list[ast.AST] = []
        for source in plan.types.sources:
            modules += [source.module] if plan.sites & set(source.nodes) else []
            for call in source.calls:
                nodes = {one.node for one in plan.types.targets(source, call.func)}
                callees.setdefault(source.holder[call], set()).update(nodes)
        pending = [*found, *modules]
        while pending:
            fresh = callees.get(pending.pop(), set()) - found
            found |= fresh
            pending += fresh
        plan.loop_functions = key, found
    return plan.loop_functions[1]


def is_lock(plan: Plan, source: Source, node: ast.AST) -> bool:
    """Return whether an object is a lock of threads or processes."""
    paths = [kind.path for kind in plan.of(source, node) if isinstance(kind, Foreign)]
    if any(path.startswith(("threading.", "multiprocessing.")) for path in paths):
        return True
    name = last_name(node).lower()
    return name.endswith(("lock", "mutex", "semaphore", "condition")) and not any(
        path.startswith("asyncio.") for path in paths
    )
