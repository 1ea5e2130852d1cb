"""The part of a plan that waits: awaited nodes and what leads to them, each as soon as it can."""

from __future__ import annotations

import asyncio
import types
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from asyncmon.graph.core.op import AwaitedOpDef, ControlOpDef, OpDef, RandomOpDef
from asyncmon.graph.core.walk import ancestors, descendants, predecessors
from asyncmon.graph.execution.pace import Pace
from asyncmon.graph.execution.plan import execute, raise_located

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Coroutine,
        Generator,
        Mapping,
        Sequence,
    )

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.core.op import OpRecord
    from asyncmon.graph.execution.ordering import Access
    from asyncmon.graph.execution.plan import Instruction
    from asyncmon.graph.execution.run_state import Run

__all__ = ["Groups", "Node", "Stage"]


class Groups:
    """When a node runs: before the state is looked at, while awaited nodes depend on it, or at last.

    What is awaited and does not depend on the state is awaited before the session's lock is taken, so
    that other runs go on meanwhile.
    """

    PRELUDE, MIDDLE, LAST = range(3)

    def __init__(
        self, ops: Sequence[Operation], given: Collection[Tensor], access: Mapping[Operation, Access]
    ) -> None:
        self._group: dict[Operation, int] = {}
        if not any(op.op_def.awaits for op in ops):
            return
        before = partial(predecessors, fed=given)
        touching = {op for op in ops if op in access or isinstance(op.op_def, RandomOpDef)}
        on_state = descendants(ops, touching, before)
        for group, wanted in ((self.MIDDLE, True), (self.PRELUDE, False)):
            awaited = [op for op in ops if op.op_def.awaits and (op in on_state) is wanted]
            self._group.update(dict.fromkeys(ancestors(awaited, before), group))

    def of(self, op: Operation) -> int:
        """Return the group of a node."""
        return self._group.get(op, self.LAST)


@dataclass(slots=True)
class Node:
    """One node of a stage: instructions, or a coroutine function to await."""

    code: list[Instruction]
    awaited: Callable[..., Coroutine[Any, Any, None]] | None
    outputs: tuple[int, ...] = ()  # registers that an awaited one sets
    op: Operation | None = None
    needs: int = 0
    feeds: list[Node] = field(default_factory=list)


class Stage:
    """Nodes with what each waits for.

    Attributes:
        pace: how long its nodes compute between awaits.
        prompt: whether its nodes can be run at once, without a task, as long as none has to wait.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self.pace = Pace()
        self.prompt = all(node.op is not None and _may_be_tried(node.op.op_def) for node in nodes)

    @classmethod
    def of(cls, ops: Sequence[Operation], nodes: Mapping[Operation, Node]) -> Self | None:
        """Return the stage of these operations, in their order; None where there are none."""
        inside = {op: nodes[op] for op in ops}
        for op, node in inside.items():
            node.op = op
            for before in dict.fromkeys(predecessors(op)):
                if before in inside:
                    node.needs += 1
                    inside[before].feeds.append(node)
        return cls(list(inside.values())) if inside else None

    async def run(self, run: Run, registers: list[Any], compute: Any) -> None:
        """Run all nodes. Those that wait do so together.

        Args:
            run: aborts end the waiting.
            registers: of the plan.
            compute: awaited as ``compute(stage, code, registers, run)`` with instructions that do not
                wait themselves.

        When one fails, or this is cancelled, the others are cancelled and waited for.
        """
        needs = {id(node): node.needs for node in self._nodes}
        ready = deque(node for node in self._nodes if not node.needs)
        tasks: dict[asyncio.Future[None], Node] = {}
        try:
            while ready or tasks:
                code: list[Instruction] = []
                later: list[Node] = []  # may wait for what the code computes
                while ready:
                    node = ready.popleft()
                    if node.awaited is None:
                        code += node.code
                    elif code:
                        later.append(node)
                        continue
                    elif not _begin(node, run, registers, tasks):
                        continue
                    _release(node, needs, ready)
                if code:
                    await compute(self, code, registers, run)
                    ready.extend(later)
                    continue
                if tasks:
                    for node in await _first(run, tasks):
                        _release(node, needs, ready)
        finally:
            await _cancel_all(run, tasks)

    def run_now(self, run: Run, registers: list[Any]) -> bool:
        """Run the nodes of a prompt stage; return false if one would have to wait: the run aborts."""
        for node in self._nodes:
            if node.awaited is None:
                execute(node.code, registers, run)
                continue
            call = node.awaited(run, registers)
            try:
                call.send(None)
            except StopIteration:
                continue
            except Exception as error:
                raise_located(error, node.op)
            call.close()
            return False
        return True


def _release(node: Node, needs: dict[int, int], ready: deque[Node]) -> None:
    for after in node.feeds:
        needs[id(after)] -= 1
        if not needs[id(after)]:
            ready.append(after)


def _may_be_tried(op_def: OpRecord) -> bool:
    """Return whether nobody notices if a node is run again, after a try that came to nothing."""
    match op_def:
        case AwaitedOpDef():
            return op_def.nowait
        case OpDef():
            return (op_def.kernel is None or not op_def.stateful) and not op_def.foreign
    return not isinstance(op_def, ControlOpDef)


# A task refers to its error, and that to the frames that it came through. So none of them may refer to
# the task by then: all arrays of the run would wait for the garbage collector.


def _begin(node: Node, run: Run, registers: list[Any], tasks: dict[asyncio.Future[None], Node]) -> bool:
    """Start to await a node; return whether it is done already, which saves a task and a turn."""
    call = _call(node, run, registers)
    if node.op is not None and _may_be_tried(node.op.op_def):
        try:
            call = _go_on(call, [call.send(None)])
        except StopIteration:
            return True
    task = asyncio.ensure_future(call)
    tasks[task] = run.waiting[task] = node
    return False


async def _first(run: Run, tasks: dict[asyncio.Future[None], Node]) -> list[Node]:
    """Wait until some tasks are done, and return their nodes; raise what failed, or ended the run."""
    await asyncio.wait(
        tasks if run.interrupt is None else (*tasks, run.interrupt),
        return_when=asyncio.FIRST_COMPLETED,
    )
    for task in tasks:
        try:
            if task.done():
                task.result()  # what failed by itself says more than the end of the run
        finally:
            del task
    if run.error is not None:
        raise run.error
    done = [task for task in tasks if task.done()]
    for task in done:
        del run.waiting[task]
    return [tasks.pop(task) for task in done]


async def _go_on(call: Coroutine[Any, Any, None], waits_for: list[Any]) -> None:
    await _resumed(call, waits_for.pop())


@types.coroutine
def _resumed(call: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Go on with a call that waits for something: hand that on, and what comes of it back."""
    try:
        while True:
            try:
                value = yield waits_for
            except BaseException as error:
                waits_for = None  # a future, perhaps, that refers to the error
                waits_for = call.throw(error)
            else:
                waits_for = call.send(value)
    except StopIteration:
        return


async def _call(node: Node, run: Run, registers: list[Any]) -> None:
    assert node.awaited is not None
    before = 0.0 if run.trace is None else perf_counter()
    try:
        await node.awaited(run, registers)
    except Exception as error:
        raise_located(error, node.op)
    if run.trace is not None and node.op is not None:
        run.note(node.op, before, [registers[i] for i in node.outputs])


async def _cancel_all(run: Run, tasks: dict[asyncio.Future[None], Node]) -> None:
    """Cancel what still waits and see it end, even when this is cancelled meanwhile; then forget it."""
    for task in tasks:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        run.waiting.pop(task, None)
        if not task.cancelled():
            task.exception()
    tasks.clear()
    try:
        if cancelled is not None:
            raise cancelled
    finally:
        del cancelled
