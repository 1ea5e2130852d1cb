"""The ops of loops, with carried values, stacks of elements, and stacked results.

Both repeat a body: ``While`` as long as a condition holds, ``Scan`` a given number of times::

    inputs:   [trips]  first carried values  stacks of elements  captured tensors
    body:     carried values, an element of each stack, captured tensors -> next carried values
    outputs:  last carried values  [trips]  stacks of values inside the body

``trips`` is an input of ``Scan`` and an output of ``While``. Attributes:

* ``branches``: the condition of a ``While``, then the body.
* ``count``, ``elements``: the numbers of carried values and of input stacks.
* ``stacks``: the tensors of the body that are stacked: the outputs of a scan, then the values that
  gradients use, added when gradients are built. A plan stacks only what its run needs.
* ``returned``: the number of them that are outputs of a scan.
* ``reverse``: iterations go from the last element to the first.

An iteration writes its elements of the stacks in place. If the shape of a value for a gradient changes
from iteration to iteration, its stack is an array of arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from sys import getrefcount
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.control.loop_gradient import gradient, saved_shape
from asyncmon.graph.control.subgraph import Repeated, SubGraph, only_computes, subgraph_op
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef, Spec, register
from asyncmon.graph.core.rules import common
from asyncmon.graph.core.shape import TensorShape, is_compatible, is_known
from asyncmon.graph.core.walk import ancestors
from asyncmon.graph.execution.plan import Plan
from asyncmon.graph.execution.records import Live
from asyncmon.graph.execution.run import Run

_CAPACITY = 16  # first length of a stack if the number of iterations is unknown
_RECYCLED = 2  # runs whose stacks a loop keeps for later runs
_OBJECT = np.dtype(object)


def _spec(
    *specs: Spec,
    branches: Sequence[SubGraph],
    count: int,
    elements: int,
    stacks: Sequence[Tensor],
    returned: int,
    reverse: bool,
) -> tuple[Spec, ...]:
    counted = len(branches) == 1
    n = (specs[0].known_dims() or (None,))[0] if counted else None
    parameters = branches[-1].parameters[: count + elements]
    for i, (parameter, spec) in enumerate(zip(parameters, specs[counted:], strict=False)):
        declared, shape = parameter.op.attrs["shape"], spec.shape
        if i >= count and shape is not None:
            n = shape[0] if n is None and shape else n
            shape = shape[1:] if is_known(declared) else None  # else it may be an array of arrays
        if not is_compatible(declared, shape):
            raise ValueError(
                f"A value of shape {TensorShape(spec.shape)} is given for {parameter.name}, which has "
                f"the shape invariant {TensorShape(declared)}"
            )
    found = [Spec(x.spec.dtype, x.spec.shape) for x in parameters[:count]]
    if not counted:
        found.append(Spec(dtypes.int32, ()))
    shapes = [x.spec.shape for x in stacks]
    whole = [None if shape is None else (n, *shape) for shape in shapes[:returned]]
    whole += [saved_shape(n, shape) for shape in shapes[returned:]]
    return (*found, *[Spec(x.dtype, shape) for x, shape in zip(stacks, whole, strict=True)])


class Loop:
    """The part of a loop that a run uses; the kernel of its control op."""

    def __init__(self, op: Operation, used: Collection[Tensor]) -> None:
        *test, step = op.attrs["branches"]
        count, elements, stacks = (op.attrs[name] for name in ("count", "elements", "stacks"))
        parameters = step.parameters
        self.counted = not test
        self.reverse = op.attrs["reverse"]
        self.outputs = len(op.outputs)
        self.first = self.outputs - len(stacks)  # gradients may add more
        self.made = [k for k in range(len(stacks)) if op.outputs[self.first + k] in used]
        self.empty = [Spec(stacks[k].dtype, stacks[k].spec.shape) for k in self.made]
        self.fixed = [k < op.attrs["returned"] for k in self.made]
        self.recycled: list[list[Any]] = []
        carried, needed = self._needed(op, used)
        self.carried = sorted(carried)
        self.taken = [i for i in range(count, count + elements) if i in needed]
        at = count + elements + self.counted
        self.captured = [
            range(at, at + len(test[0].captured)) if test else range(0),
            range(len(op.inputs) - len(step.captured), len(op.inputs)),
        ]
        own = [i + self.counted for i in (*self.carried, *self.taken)]
        inputs = [op.inputs[i] for i in (*range(self.counted), *own)]
        targets = [
            *[list(branch.targets) for branch in test],
            [*(step.targets[i] for i in self.carried), *(stacks[k] for k in self.made)],
        ]
        for branch, asked in zip((*test, step), targets, strict=True):
            inputs += branch.used_captures(asked)
        self.live = Live(
            self,
            targets=targets,
            parameters=[
                *[[*(x.parameters[i] for i in self.carried), *x.parameters[count:]] for x in test],
                [
                    *(parameters[i] for i in (*self.carried, *self.taken)),
                    *parameters[count + elements :],
                ],
            ],
            inputs=inputs,
        )

    def _needed(self, op: Operation, used: Collection[Tensor]) -> tuple[set[int], set[int]]:
        """Return the indices of the used carried values, and of all used parameters."""
        *test, step = op.attrs["branches"]
        count = op.attrs["count"]
        # A carried value that only its own next values depend on is left out, unless the body has side
        # effects, and so are unused elements.
        wanted = {i for i in range(count) if op.outputs[i] in used}
        if not all(only_computes(branch) for branch in op.attrs["branches"]):
            wanted = set(range(count))
        for branch in test:
            asked = set(ancestors([x.op for x in branch.targets]))
            wanted |= {i for i in range(count) if branch.parameters[i].op in asked}
        stacks = op.attrs["stacks"]
        needed: set[int] = set()
        numbers = {x.op: i for i, x in enumerate(step.parameters)}
        left = [stacks[k].op for k in self.made] + [step.targets[i].op for i in wanted]
        while left:
            needed |= {numbers[x] for x in ancestors(left) if x in numbers}
            more = {i for i in needed if i < count} - wanted
            left = [step.targets[i].op for i in more]
            wanted |= more
        return wanted, needed

    async def __call__(
        self, run: Run, op: Operation, plans: Sequence[Plan], arrays: list[Any], state: Any, base: int
    ) -> Any:
        """Run the loop. Return its outputs, with None for unused ones, and the state."""
        waits, counted, reverse = op.op_def.awaits, self.counted, self.reverse
        inputs = [[arrays[i] for i in numbers] for numbers in self.captured]
        test = None if counted else Repeated(plans[0], run, inputs[0])
        step = Repeated(plans[-1], run, inputs[1])
        values = [arrays[i + counted] for i in self.carried]
        given = [arrays[i + counted] for i in self.taken]
        trips = int(arrays[0]) if counted else 0
        has_objects = any(x.dtype == object for x in given)
        for x in given:
            if len(x) != trips:
                raise InvalidArgumentError(f"A loop of {trips} iterations is given {len(x)} elements")
        count, stacks = len(values), Stacks(trips, self.fixed, self.empty, self.recycled)
        i = 0
        while test is not None or i < trips:
            now = run.iteration(base, i + 1)
            if test is not None:
                found, state = (
                    await test.wait(values, state, now) if waits else test(values, state, now)
                )
                (holds,) = found
                if getattr(holds, "ndim", 0):
                    raise InvalidArgumentError(
                        f"A condition must be a scalar, but it has shape {holds.shape}"
                    )
                if not holds:
                    break
            at = trips - 1 - i if reverse else i
            if given:
                values = [*values, *[x[at] for x in given]]
                if has_objects:  # wrap single strings in arrays
                    values = [dtypes.as_objects(x) if type(x) is bytes else x for x in values]
            found, state = await step.wait(values, state, now) if waits else step(values, state, now)
            values = found[:count]
            if self.made:
                stacks.put(at, found[count:])
            i += 1
        outputs: list[Any] = [None] * self.outputs
        for j, value in zip(self.carried, values, strict=True):
            outputs[j] = value
        if not counted:
            outputs[self.first - 1] = np.int32(i)
        for k, stack in zip(self.made, stacks.arrays(i), strict=True):
            outputs[self.first + k] = stack
        return outputs, state


@dataclass(slots=True, eq=False)
class Stacks:
    """The arrays that iterations write their values into.

    Attributes:
        capacity: the number of iterations, 0 if unknown.
        fixed: for each stack, whether all its elements must have one shape.
        specs: the types of the elements.
        recycled: arrays of earlier runs, reused if nothing else refers to them. The first write to
            fresh memory costs page faults.
    """

    capacity: int
    fixed: Sequence[bool]
    specs: Sequence[Spec]
    recycled: list[list[Any]]
    _arrays: list[Any] = field(default_factory=list)

    def put(self, at: int, values: Sequence[Any]) -> None:
        """Write the values of iteration ``at``."""
        if not self._arrays:
            self._begin(values)
        if at >= self.capacity:
            self.capacity *= 2
            for k, array in enumerate(self._arrays):
                self._arrays[k] = np.empty((self.capacity, *array.shape[1:]), array.dtype)
                self._arrays[k][: len(array)] = array
        arrays = self._arrays
        for k, value in enumerate(values):
            array = arrays[k]
            shape = getattr(value, "shape", ())
            if array.shape[1:] != shape:
                array = self._loosen(k, at, value)
            array[at] = value[()] if not shape and isinstance(value, np.ndarray) else value

    def _begin(self, values: Sequence[Any]) -> None:
        try:
            old = self.recycled.pop()  # no check before: runs in other threads pop, too
        except IndexError:
            old = [None] * len(values)
        if not self.capacity:
            self.capacity = _CAPACITY if not old or old[0] is None else len(old[0])
        old.reverse()
        for value in values:
            shape = (self.capacity, *getattr(value, "shape", ()))
            dtype = getattr(value, "dtype", _OBJECT)
            array, references = _popped(old)
            if references > _ALONE or array.shape != shape or array.dtype != dtype:
                array = np.empty(shape, dtype)
            self._arrays.append(array)

    def _loosen(self, k: int, at: int, value: Any) -> Any:
        """Convert a stack to an array of arrays, for elements of different shapes."""
        array = self._arrays[k]
        if self.fixed[k]:
            raise InvalidArgumentError(
                f"The values that iterations stack must have one shape: iteration {at} returns one of "
                f"shape {np.shape(value)}, others are of shape {array.shape[1:]}"
            )
        if array.ndim > 1 or array.dtype != object:
            loose = np.empty(len(array), object)
            for i, item in enumerate(array):
                loose[i] = item
            array = self._arrays[k] = loose
        return array

    def arrays(self, trips: int) -> list[Any]:
        """Return the stacks after the last iteration."""
        if trips:
            if len(self.recycled) < _RECYCLED:
                self.recycled.append(list(self._arrays))
            return [array[:trips] for array in self._arrays]
        dims = [(0, *(d or 0 for d in spec.shape or ())) for spec in self.specs]
        return [np.zeros(shape, spec.dtype.numpy) for shape, spec in zip(dims, self.specs, strict=True)]


def _popped(arrays: list[Any]) -> tuple[Any, int]:
    """Pop the last array; return it and the number of references to it."""
    array = arrays.pop()
    return array, getrefcount(array)


# The number of references to an array without any other reference or view.
_ALONE = _popped([np.empty(0)])[1]


def _live(op: Operation, used: Collection[Tensor]) -> Live:
    return Loop(op, used).live


register(ControlOpDef("While", None, _spec, gradient, live=_live, loops=True))
register(ControlOpDef("AsyncWhile", None, _spec, gradient, live=_live, awaits=True))
register(ControlOpDef("Scan", None, _spec, gradient, live=_live, loops=True))
register(ControlOpDef("AsyncScan", None, _spec, gradient, live=_live, awaits=True))


def check_carried(parameters: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Check that the next values of a body have the dtypes and shapes of its first parameters.

    TypeError if a dtype changes. ValueError if a shape changes or becomes less specific.
    """
    for before, after in zip(parameters, targets, strict=False):
        shape = before.op.attrs["shape"]
        if before.dtype is not after.dtype:
            raise TypeError(
                f"Loop variable {before.name!r} enters the loop with type {before.dtype.name}, "
                f"but has type {after.dtype.name} after 1 iteration."
            )
        if common(shape, after.spec.shape) != shape:
            raise ValueError(
                f"The shape for {before.name} is not an invariant for the loop. It enters the loop "
                f"with shape {TensorShape(shape)}, but has shape {after.shape} after one iteration. "
                "Provide shape invariants using the `shape_invariants` argument, or set_shape()."
            )


def while_op(first: Sequence[Tensor], branches: tuple[SubGraph, SubGraph]) -> tuple[Tensor, ...]:
    """Return the final carried values of a loop with a condition and a body."""
    count = len(first)
    attrs = {"count": count, "elements": 0, "stacks": (), "returned": 0, "reverse": False}
    return subgraph_op("While", first, branches, **attrs)[:count]
