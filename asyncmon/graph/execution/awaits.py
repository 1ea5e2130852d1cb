"""The stages of a plan: awaited nodes and their ancestors, each started as early as possible."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, NoReturn, Self

import numpy as np

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import AwaitedOpDef, RandomOpDef
from asyncmon.graph.core.walk import ancestors, descendants, predecessors
from asyncmon.graph.execution.analysis import Access
from asyncmon.graph.execution.program import AwaitedStep, Instruction, Registers, execute
from asyncmon.graph.execution.run import Run
from asyncmon.system.cancellation import completed
from asyncmon.system.cost import CostModel

BEFORE_LOCK, UNDER_LOCK, COMPUTE = range(3)
"""When a node runs: before the session's lock is taken, under the lock, or after all awaits."""


def side_by_side(ops: Iterable[Operation], fed: Collection[Tensor]) -> frozenset[Operation]:
    """Return the calls of the user's functions that do not depend on each other, if there are several.

    Each is awaited in a thread of its own, so that one call may wait for another one.
    """
    calls = [op for op in ops if op.type == "PyFunc"]
    if len(calls) < 2:
        return frozenset()
    before = partial(predecessors, fed=fed)
    found: defaultdict[int, list[Operation]] = defaultdict(list)
    depths: dict[Operation, int] = {}
    for op in ancestors(calls, before):
        depth = max([depths[x] for x in before(op)], default=0)
        if op.type == "PyFunc":
            found[depth].append(op)
            depth += 1
        depths[op] = depth
    return frozenset(op for level in found.values() if len(level) > 1 for op in level)


def stages_of(
    ops: Sequence[Operation],
    fed: Collection[Tensor],
    access: Mapping[Operation, Access],
    threaded: Collection[Operation] = (),
) -> dict[Operation, int]:
    """Return the stages of awaited nodes and their ancestors. Other nodes are in ``COMPUTE``."""
    if not threaded and not any(op.op_def.awaits for op in ops):
        return {}
    before = partial(predecessors, fed=fed)
    stateful = {op for op in ops if op in access or isinstance(op.op_def, RandomOpDef)}
    after_state = descendants(ops, stateful, before)
    if not after_state.isdisjoint(threaded):
        after_state.update(threaded)  # together
    waits = [op for op in ops if op.op_def.awaits or op in threaded]
    found: dict[Operation, int] = {}
    # Nodes that do not depend on the state run before the lock is taken, so that they block no run.
    for stage, wanted in ((UNDER_LOCK, True), (BEFORE_LOCK, False)):
        awaited = [op for op in waits if (op in after_state) is wanted]
        found.update(dict.fromkeys(ancestors(awaited, before), stage))
    return found


@dataclass(slots=True, eq=False)
class Node:
    """One node of a stage: instructions, or a coroutine function to await."""

    op: Operation
    code: list[Instruction]
    weight: float  # elements computed by the code
    awaited: AwaitedStep | None = None
    nowait: bool = False  # it may be started without a task
    needs: int = 0
    successors: list[Node] = field(default_factory=list)


Tasks = dict[asyncio.Future[None], Node]


class Stage:
    """Nodes with their dependencies; ``size`` is their number."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.size = len(nodes)
        self._nodes = nodes
        self._computes = any(node.code for node in nodes)
        self._needs = {node: node.needs for node in nodes}
        self._cost = CostModel(sum(node.weight for node in nodes))

    @classmethod
    def of(cls, nodes: Mapping[Operation, Node]) -> Self | None:
        """Return the stage of these nodes, in their order; None if there are none."""
        inside: dict[Operation, Node] = {}
        for op, node in nodes.items():
            before = [inside[x] for x in dict.fromkeys(predecessors(op)) if x in inside]
            if not node.code and node.awaited is None and not before:
                continue  # a constant, say
            node.needs = len(before)
            node.nowait = isinstance(op.op_def, AwaitedOpDef) and op.op_def.nowait
            for other in before:
                other.successors.append(node)
            inside[op] = node
        return cls(list(inside.values())) if inside else None

    def start(self, run: Run, registers: Registers, tasks: Tasks) -> int:
        """Run nodes until one suspends or may hold the loop too long; return how many completed.

        ``tasks`` gets the task of the node that suspended.
        """
        if not self._computes:
            return self._start(run, registers, tasks)
        if run.trace is not None or not self._cost.is_short(run.limit, run.fed):
            return 0
        start = perf_counter()
        done = self._start_quietly(run, registers, tasks)
        if done == self.size:
            self._cost.observe(perf_counter() - start, run.limit, run.fed)
        return done

    def _start(self, run: Run, registers: Registers, tasks: Tasks) -> int:
        for done, node in enumerate(self._nodes):
            if node.awaited is None:
                execute(node.code, registers, run)
            elif not (node.nowait and _start(node, run, registers, tasks)):
                return done
        return self.size

    _start_quietly = np.errstate(all="ignore")(_start)

    async def run(self, run: Run, registers: Registers, done: int | None = None) -> None:
        """Run all nodes, awaiting them concurrently.

        On an error or a cancellation the others are cancelled and joined.

        Args:
            run: the run.
            registers: its registers.
            done: the result of a :meth:`start` with ``run.waiting`` as tasks; None: it was not called.
        """
        tasks: Tasks = {}
        if done is not None:
            tasks.update(run.waiting)  # no other stage of the run has begun
        else:
            done = self.start(run, registers, tasks) if run.limit else 0
        if done == self.size:
            return
        needs = self._needs.copy()
        for node in self._nodes[:done]:
            for successor in node.successors:
                needs[successor] -= 1
        ready = deque([node for node in self._nodes[done + len(tasks) :] if not needs[node]])
        try:
            while ready or tasks:
                code: list[Instruction] = []
                later: list[Node] = []  # may depend on the results of the code
                while ready:
                    node = ready.popleft()
                    if node.awaited is None:
                        code += node.code
                    elif code:
                        later.append(node)
                        continue
                    elif not _start(node, run, registers, tasks):
                        continue
                    _release(node, needs, ready)
                if code:
                    await run.compute(self._cost, code, registers, run)
                    ready.extend(later)
                elif tasks:
                    for node in await _first(run, tasks):
                        _release(node, needs, ready)
        finally:
            if tasks:
                await _cancel_all(run, tasks)


def _release(node: Node, needs: dict[Node, int], ready: deque[Node]) -> None:
    for successor in node.successors:
        needs[successor] -= 1
        if not needs[successor]:
            ready.append(successor)


# A task refers to its error, and the error to the frames of its traceback. If one of these frames
# refers to the task, all arrays of the run stay until the garbage collector runs.


def _start(node: Node, run: Run, registers: Registers, tasks: Tasks) -> bool:
    """Start awaiting a node. Return whether it is done, which saves a task and a loop iteration."""
    assert node.awaited is not None, "others are computed"
    call = node.awaited(run, registers)
    if node.nowait:
        try:
            call = _Started(call, call.send(None))
        except StopIteration:
            return True
    task = asyncio.ensure_future(call)
    tasks[task] = run.waiting[task] = node
    return False


async def _first(run: Run, tasks: Tasks) -> list[Node]:
    """Wait until some tasks are done, and return their nodes. Raise their error or that of the run."""
    await run.wait_first(tasks)
    for task in tasks:
        try:
            if task.done():
                task.result()  # the node's own error is more specific than that of the run
        finally:
            del task
    run.check()
    done = [task for task in tasks if task.done()]
    for task in done:
        del run.waiting[task]
    return [tasks.pop(task) for task in done]


class _Started(Coroutine[Any, Any, None]):
    """A coroutine that has suspended, and the future that it awaits, as the coroutine of a task.

    It gets a cancellation before the first step of the task, too, where another one would not start.
    """

    def __init__(self, call: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._call = call
        self._first = [waits_for]

    def __await__(self) -> NoReturn:
        raise AssertionError("a task runs it, by send and throw")

    def send(self, value: Any) -> Any:
        return self._first.pop() if self._first else self._call.send(value)

    def throw(self, *error: Any) -> Any:
        self._first.clear()
        try:
            return self._call.throw(*error)
        finally:
            del error  # its traceback refers to this frame

    def close(self) -> None:
        self._call.close()


async def _cancel_all(run: Run, tasks: Tasks) -> None:
    """Cancel tasks and join them, also while the caller is cancelled, then drop them."""
    for task in tasks:
        task.cancel()
    try:
        await completed(asyncio.gather(*tasks, return_exceptions=True))
    finally:
        for task in tasks:
            run.waiting.pop(task, None)
        tasks.clear()
