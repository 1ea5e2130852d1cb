"""The gradient of a loop: a ``Scan`` in the reverse order, over values stacked by the iterations.

The gradient of the body is a subgraph. The values of the body that it uses are stacked by the loop and
are elements of the scan; values that are the same in all iterations are captured.

The gradient of a captured tensor, such as weights, is a sum over iterations. If its terms are products
of matrices or sums over rows, their operands are stacked, and one product or sum of the stacks computes
the total. Other terms are accumulated in a carried value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from asyncmon.graph.control.subgraph import SubGraph, subgraph_op
from asyncmon.graph.core.build import (
    control_dependencies,
    convert_to_tensor,
    create_op,
    get_default_graph,
)
from asyncmon.graph.core.gradients import add_up, gradients
from asyncmon.graph.core.graph import BuildContext, building, entered
from asyncmon.graph.core.indexed_slices import IndexedSlices, to_dense
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import Shape, is_known
from asyncmon.graph.core.walk import ancestors
from asyncmon.graph.execution.analysis import Access
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.create import zeros, zeros_like
from asyncmon.graph.ops.products import half_product, product, product_gradients
from asyncmon.graph.ops.shape_ops import broadcast_like, like, sum_to_shape
from asyncmon.graph.ops.shape_ops import shape as shape_of

_OF_SHAPES = frozenset({"Shape", "Size", "Rank"})


def saved_shape(n: int | None, shape: Shape) -> Shape:
    """Return the shape of a stack for a gradient; unknown if the shape of its elements may vary."""
    return (n, *shape) if shape is not None and is_known(shape) else None


class Body:
    """The body of a loop, and the tensors of the outer graph for those inside."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.graph: SubGraph = op.attrs["branches"][-1]
        self.counted = len(op.attrs["branches"]) == 1
        self.count = op.attrs["count"]
        self.captured = self.count + op.attrs["elements"]
        """The index of the first captured parameter."""
        self.parameters = list(self.graph.parameters)
        self._number = {x: i for i, x in enumerate(self.parameters)}
        writes = [filter(None, map(Access.of, x.get_operations())) for x in op.attrs["branches"]]
        self._written = {name for accesses in writes for access in accesses for name in access.writes}
        self._steady: set[Operation] = set()
        for node in self.graph.get_operations():
            if self._runs_steadily(node):
                self._steady.add(node)
        self._outside: dict[Tensor, Tensor] = {}

    def _runs_steadily(self, op: Operation) -> bool:
        """Return whether a node has the same value in all iterations."""
        if op.outputs and op.outputs[0] in self._number:
            written = self.graph.variables.get(op.outputs[0]) in self._written
            return self._number[op.outputs[0]] >= self.captured and not written
        if op.type == "ReadVariable":
            name: str = op.inputs[0].op.attrs["variable"]
            return name not in self._written
        pure = isinstance(op.op_def, OpDef) and not op.op_def.stateful and op.op_def.kernel is not None
        return pure and all(x.op in self._steady for x in op.inputs)

    def at(self, number: int) -> int:
        """Return the index of the loop's input for a parameter."""
        shift = len(self.op.inputs) - len(self.parameters)
        return number + (shift if number >= self.captured else self.counted)

    def input(self, number: int) -> Tensor:
        """Return the loop's input for a parameter, in the current graph."""
        return convert_to_tensor(self.op.inputs[self.at(number)])

    def is_steady(self, tensor: Tensor) -> bool:
        """Return whether a tensor is the same in all iterations."""
        return tensor.op in self._steady

    def variable(self, tensor: Tensor) -> str | None:
        """Return the name of the variable that a tensor is the value of in all iterations, or None."""
        if tensor.op.type == "ReadVariable":
            name: str = tensor.op.inputs[0].op.attrs["variable"]
            return None if name in self._written else name
        return self.graph.variables.get(tensor)

    def outside(self, tensor: Tensor) -> Tensor | None:
        """Return an equal tensor of the outer graph for a steady one, None for others."""
        if not self.is_steady(tensor):
            return None
        if tensor not in self._outside:
            self._outside[tensor] = self._moved(tensor)
        return self._outside[tensor]

    def _moved(self, tensor: Tensor) -> Tensor:
        if tensor in self._number:
            return self.input(self._number[tensor])
        op = tensor.op
        if op.type == "ReadVariable":
            return self.input(self._number[self.graph.capture(self.graph.variable(op.inputs[0]))])
        inputs = [self.outside(x) for x in op.inputs]
        found = get_default_graph().add_op(op.type, [x for x in inputs if x is not None], op.attrs)
        return found.outputs[tensor.value_index]

    def stack(self, tensor: Tensor) -> Tensor:
        """Return the stack of a tensor's values; add an output to the loop if needed."""
        op, number = self.op, self._number.get(tensor, -1)
        if self.count <= number < self.captured:
            return self.input(number)
        stacks = op.attrs["stacks"]
        if tensor not in stacks:
            op.attrs["stacks"] = stacks = (*stacks, tensor)
            n = (op.inputs[0].spec.known_dims() or (None,))[0] if self.counted else None
            spec = Spec(tensor.dtype, saved_shape(n, tensor.spec.shape))
            op.outputs = (*op.outputs, Tensor(op, len(op.outputs), spec))
        return convert_to_tensor(op.outputs[stacks.index(tensor) - len(stacks)])


class _Back(SubGraph):
    """The graph of a body's gradient. While it is built, its outer graph is the body."""

    def add_op(
        self,
        type: str,
        inputs: Sequence[Tensor],
        attrs: Mapping[str, Any] = {},  # as in the class above
        name: str | None = None,
    ) -> Operation:
        """Add a node. An op on the shape of a tensor of the body captures only the shape."""
        source = self.captures.get(inputs[0]) if len(inputs) == 1 else None
        if source is not None and source.graph is self.outer:
            if type in _OF_SHAPES:
                return self._of_shape(self.outer.add_op(type, (source,), attrs, name))
            if type == "ZerosLike" and is_known(source.spec.shape):
                return zeros(source.spec.shape, source.dtype).op
        return super().add_op(type, inputs, attrs, name)

    def _of_shape(self, op: Operation) -> Operation:
        spec = op.outputs[0].spec
        dims = spec.known_dims()
        if dims is None or None in dims:
            return super().add_op("Identity", (self.capture(op.outputs[0]),))
        return convert_to_tensor(spec.dtype.numpy.type(dims).reshape(spec.shape or ())).op


def gradient(op: Operation, *grads: Tensor | None) -> list[Any]:
    """Return the gradients of a loop's inputs, computed by a scan over its iterations."""
    body = Body(op)
    parameters, stacks = body.parameters, op.attrs["stacks"]
    floating = [i for i, x in enumerate(parameters) if x.dtype.is_floating]
    carried = [i for i in floating if i < body.count]
    ends = grads[len(grads) - len(stacks) :]
    given = {k: grad for k, grad in enumerate(ends) if grad is not None}
    back = _Back(body.graph)
    context = building.get()
    with entered(BuildContext(back, variable_scope=context and context.variable_scope)):
        flowing = [back.parameter(parameters[i], parameters[i].op.attrs["shape"]) for i in carried]
        arriving = [back.parameter(stacks[k], stacks[k].spec.shape) for k in given]
        ys = [*(body.graph.targets[i] for i in carried), *(stacks[k] for k in given)]
        found = _inside(body, ys, [*flowing, *arriving], floating)
        nexts = [to_dense(found[i]) if i in found else zeros_like(parameters[i]) for i in carried]
        of_elements = {i: to_dense(x) for i, x in found.items() if body.count <= i < body.captured}
        sums = [_Sum(back, body, i, x) for i, x in found.items() if i >= body.captured]
    assert parameters == body.graph.parameters, "gradients add no captures to a body"
    first = [zeros_like(op.outputs[i]) if grads[i] is None else grads[i] for i in carried]
    for total in sums:
        if total.carried is not None:
            flowing.append(total.carried)
            nexts.append(total.next)
            first.append(zeros_like(body.input(total.number)))
    scan = _Scan(body, back)
    scan.outside.update(zip(arriving, given.values(), strict=True))
    scan.build(flowing, nexts, first, list(of_elements.values()), sums)
    result: list[Any] = [None] * len(op.inputs)
    for i, grad in zip(carried, scan.ends.values(), strict=False):
        result[body.at(i)] = grad
    for i, x in of_elements.items():
        result[body.at(i)] = scan.outside[x]
    for total in sums:
        result[body.at(total.number)] = total.outside(scan)
    return result


def _inside(
    body: Body, ys: Sequence[Tensor], grads: Sequence[Tensor], numbers: Sequence[int]
) -> dict[int, Any]:
    """Return the gradients of a body's parameters that are not None, by index."""
    xs = [body.parameters[i] for i in numbers]
    refs = [body.graph.refs.get(body.graph.variables.get(x, "")) for x in xs]  # the inputs of reads
    listed = [(i, x) for i, x, ref in zip(numbers, xs, refs, strict=True)]
    listed += [(i, ref) for i, ref in zip(numbers, refs, strict=True) if ref is not None]
    flows: dict[int, list[Any]] = {}
    for (i, _), grad in zip(listed, gradients(ys, [x for _, x in listed], grads), strict=True):
        if grad is not None:
            flows.setdefault(i, []).append(grad)
    return {i: add_up(parts) for i, parts in flows.items()}


class _Sum:
    """The gradient of a captured parameter: a sum over iterations.

    Attributes:
        number: the index of the parameter.
        carried: the carried value that accumulates terms, or None.
        next: ``carried`` plus the terms of an iteration.
        stacked: the operands of the other terms.
    """

    def __init__(self, back: SubGraph, body: Body, number: int, grad: Any) -> None:
        self.number = number
        self.carried: Tensor | None = None
        self.next: Tensor
        self.stacked: list[Tensor] = []
        self._body = body
        self._terms: list[tuple[Sequence[Tensor], Callable[..., Any]]] = []
        left = self._split(grad)
        if left:
            like = body.parameters[number]
            self.carried = back.parameter(like, like.spec.shape)
            self.next = add_up([self.carried, *left])

    def _split(self, grad: Any) -> list[Tensor]:
        """Record the terms that are computed from stacks; return the others."""
        if isinstance(grad, IndexedSlices):
            if grad.dense_shape is None:
                return [to_dense(grad)]
            return self._of_stacks((grad.values, grad.indices), self._slices)
        op = grad.op
        match op.type:
            case "AddN" | "AddV2" | "Identity" if all(
                x.spec.shape == grad.spec.shape for x in op.inputs
            ):
                return [x for term in op.inputs for x in self._split(term)]
            case "MatMul" if all(len(x.spec.shape or ()) == 2 and self._varies(x) for x in op.inputs):
                attrs = {**op.attrs, "shape": grad.spec.shape}
                return self._of_stacks(
                    op.inputs, lambda a, b: create_op("StackedProduct", (a, b), attrs)
                )
            case "SumToShape" if self._varies(op.inputs[0]):
                return self._of_stacks(op.inputs[:1], self._total)
            case "BiasAddGrad" if not op.attrs.get("second") and self._varies(op.inputs[0]):
                return self._of_stacks(op.inputs, self._total)
        return [grad]

    def _varies(self, tensor: Tensor) -> bool:
        source = tensor.graph.captures.get(tensor)
        return tensor.op.type != "Const" if source is None else not self._body.is_steady(source)

    def _of_stacks(self, operands: Sequence[Tensor], make: Callable[..., Any]) -> list[Tensor]:
        self.stacked += operands
        self._terms.append((operands, make))
        return []

    def _total(self, stack: Tensor) -> Tensor:
        return like("StackedSum", (stack,), self._body.input(self.number))

    def _slices(self, values: Tensor, indices: Tensor) -> IndexedSlices:
        rows, at = (create_op("StackedConcat", (stack,)) for stack in (values, indices))
        return IndexedSlices(rows, at, shape_of(self._body.input(self.number)))

    def outside(self, scan: _Scan) -> Any:
        """Return the sum over all iterations."""
        terms = [make(*[scan.outside[x] for x in operands]) for operands, make in self._terms]
        return add_up(terms if self.carried is None else [*terms, scan.ends[self.carried]])


class _Scan:
    """The scan that runs the gradient of a body.

    Attributes:
        outside: the stacks of its elements and outputs.
        ends: the final values of carried tensors, in their order.
    """

    def __init__(self, body: Body, back: _Back) -> None:
        self.body, self.back = body, back
        self.outside: dict[Tensor, Tensor] = {}
        self.ends: dict[Tensor, Tensor] = {}

    def build(
        self,
        carried: Sequence[Tensor],
        nexts: Sequence[Tensor],
        first: Sequence[Any],
        of_elements: Sequence[Tensor],
        sums: Sequence[_Sum],
    ) -> None:
        """Add the scan to the current graph."""
        body, back, op = self.body, self.back, self.body.op
        operands = {x for total in sums for x in total.stacked}
        sources = {x: source for x, source in back.captures.items() if source.graph is body.graph}
        for x, source in sources.items():
            if x in operands:
                self.outside[x] = body.stack(source)
        stacks = tuple(dict.fromkeys([*of_elements, *(x for x in operands if x not in self.outside)]))
        needed = set(ancestors([x.op for x in (*nexts, *stacks)]))
        elements = [x for x in self.outside if x.op in needed]
        captured: list[tuple[Tensor, Tensor]] = []
        for x, source in sources.items():
            del back.captures[x]
            if x.op not in needed or x in self.outside:
                continue
            steady = body.outside(source)
            if steady is None:
                self.outside[x] = body.stack(source)
                elements.append(x)
            else:
                captured.append((x, steady))
                if (name := body.variable(source)) is not None:
                    back.variables[x] = name
        back.move(get_default_graph(), captured)
        back.parameters = [*carried, *elements, *(x for x, _ in captured)]
        back.targets = list(nexts)
        trips = body.op.inputs[0] if body.counted else op.outputs[body.count]
        with control_dependencies(op.control_inputs):  # reads the same values of variables as the loop
            outputs = subgraph_op(
                "Scan",
                [trips, *map(convert_to_tensor, first), *(self.outside[x] for x in elements)],
                (back,),
                count=len(carried),
                elements=len(elements),
                stacks=stacks,
                returned=len(of_elements),
                reverse=not op.attrs["reverse"],
            )
        self.ends = dict(zip(carried, outputs, strict=False))
        self.outside.update(zip(stacks, outputs[len(carried) :], strict=True))


# --- sums over stacks ---------------------------------------------------------------------------------
# A stack is an array or, if the shapes of its elements differ, an array of arrays.
def _joined_rows(stack: Array, axis: int) -> Any:
    """Join the matrices of a stack below (axis 0) or beside (axis 1) each other."""
    if stack.dtype == object or not len(stack):
        return np.concatenate(list(stack), axis) if len(stack) else None
    if axis:
        return stack.swapaxes(0, 1).reshape(stack.shape[1], -1)
    return stack.reshape(-1, *stack.shape[2:])


def _stacked_product(
    a: Array, b: Array, out: Array | None = None, *, transpose_a: bool, transpose_b: bool, shape: Shape
) -> Any:
    if not len(a):
        found = np.empty([d or 0 for d in shape or ()], a.dtype) if out is None else out
        found.fill(0)
        return found
    left, right = _joined_rows(a, int(not transpose_a)), _joined_rows(b, int(transpose_b))
    left, right = left.T if transpose_a else left, right.T if transpose_b else right
    return half_product(left, right) if left.dtype.char == "e" else product(left, right, out)


def _stacked_flops(a: Spec, b: Spec, result: Spec, *, shape: Shape, **_attrs: Any) -> int:
    (n, rows, columns), (_, *others) = a.shape or (0, 0, 0), b.shape or (0, 0, 0)
    return (n or 0) * (rows or 0) * (columns or 0) * (max([d or 0 for d in others]))


def _stacked_sum(stack: Array, shape: Array) -> Any:
    if stack.dtype == object:
        return sum([sum_to_shape(x, shape) for x in stack])
    if len(shape) == 1 and stack.ndim > 2 and stack.shape[-1] == shape[0]:
        return np.add.reduce(stack.reshape(-1, stack.shape[-1]), axis=0, dtype=stack.dtype)
    return sum_to_shape(stack, shape)


def _stacked_concat(stack: Array) -> Any:
    found = _joined_rows(stack, 0)
    return np.zeros((0, *stack.shape[2:]), stack.dtype) if found is None else found


register(OpDef("StackedProduct", _stacked_product, lambda a, b, *, shape, **_: Spec(a.dtype, shape),
    product_gradients, out=True, flops=_stacked_flops))  # fmt: skip
register(OpDef("StackedSum", _stacked_sum, lambda stack, shape: Spec(stack.dtype, shape.known_dims()),
    lambda op, grad: [broadcast_like(grad, op.inputs[0]), None], aliases=True))  # fmt: skip
register(OpDef("StackedConcat", _stacked_concat,
    lambda stack: Spec(stack.dtype, None if stack.shape is None else (None, *stack.shape[2:])),
    lambda op, grad: [like("Reshape", (grad,), op.inputs[0])], aliases=True))  # fmt: skip
