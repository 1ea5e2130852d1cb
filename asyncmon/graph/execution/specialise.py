"""Shape checks: the rule of every node runs once for each combination of fed shapes.

A shape that depends on values is known during the run only. The rules of its consumers then run before
them, once for each combination of shapes.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef, OpDef, Spec, VariableOpDef
from asyncmon.graph.core.rules import text as shape_text
from asyncmon.graph.core.shape import Shape, is_known, merge
from asyncmon.graph.execution.facts import Facts, fold, infer, refused
from asyncmon.graph.execution.program import Instruction, Kind, Registers, inputs_of, outputs_of

_COMBINATIONS = 64  # of shapes cached by a check
_LARGEST = 1 << 10  # elements: a larger value is not cached for each fed shape


class ShapeRules:
    """The rules of a plan's nodes, run for each fed shape or else during the run.

    Args:
        ops: the operations of the plan, in order.
        given: fed and folded tensors.
        opened: the fed tensors of unknown shape.
        facts: the static facts.
        registers: the registers of tensors.
        refs: the registers of the variables that nodes read and write.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        given: Collection[Tensor],
        opened: Sequence[Tensor],
        facts: Facts,
        registers: Mapping[Tensor, int],
        refs: Mapping[Operation, Sequence[int]],
    ) -> None:
        self._given = given
        self._opened = opened
        self._facts = facts
        self._ops = list(_open_ops(ops, opened, facts))
        self._inputs = {
            op: (*refs.get(op, ()), *[registers[x] for x in op.inputs[op.op_def.refs :]])
            for op in self._ops
            if op.op_def.changes or not isinstance(op.op_def, VariableOpDef)
        }
        self._outputs = {x: registers[x] for op in self._ops for x in op.outputs if x in registers}

    def run(self, shapes: Sequence[Shape]) -> tuple[Facts, list[Operation], list[Tensor]]:
        """Run the rules.

        Args:
            shapes: the shapes of the fed tensors of unknown shape.

        Returns:
            The facts for these shapes; the nodes with an input whose shape is known during the run
            only; and the tensors whose shape is only known from ``set_shape``.

        Raises:
            InvalidArgumentError: a rule refuses a shape; the error names the node.
        """
        disproved = self._facts.disproved
        facts = Facts(self._facts, disproved)
        for tensor, shape in zip(self._opened, shapes, strict=True):
            facts[tensor] = Spec(tensor.dtype, shape)
        unknown, asserted = [], []
        for op in self._ops:
            if isinstance(op.op_def, ControlOpDef) and not disproved.isdisjoint(op.inputs):
                continue  # the specs of its subgraphs' parameters are not trusted
            written = op.op_def.refs if op.op_def.changes else 0  # variables, not their fed values
            inputs = [self._facts[x] for x in op.inputs[:written]]
            inputs += [facts[x] for x in op.inputs[written:]]
            if not all(is_known(spec.shape) for spec in inputs):
                unknown.append(op)
            for tensor, spec in zip(op.outputs, infer(op, inputs), strict=True):
                if tensor in self._given:
                    continue
                shape = spec.shape if tensor in disproved else _agreed(tensor, spec.shape)
                if shape != spec.shape:
                    asserted.append(tensor)
                    spec = Spec(spec.dtype, shape, spec.value, spec.dims)
                facts[tensor] = spec
        return facts, unknown, asserted

    def fold(
        self, code: Iterable[Instruction], constants: dict[int, Any], facts: Facts
    ) -> dict[int, Any]:
        """Return the values that are constant for these shapes, such as sizes, by register.

        They are read-only. ``facts`` is the result of :meth:`run`.
        """
        found: dict[int, Any] = {}
        opened, known = set(self._ops), ChainMap(found, constants)
        for instruction in code if opened else ():
            inputs, op = inputs_of(instruction), instruction[5]
            if op is None or not (op in opened or any(i in found for i in inputs)):
                continue
            if not isinstance(op.op_def, OpDef) or op.op_def.stateful:
                continue
            values = fold(op, inputs, known, facts, largest=_LARGEST)
            if values is not None:
                found.update(zip(outputs_of(instruction), map(_read_only, values), strict=True))
        return found

    def with_checks(
        self,
        code: Sequence[Instruction],
        unknown: Sequence[Operation],
        asserted: Sequence[Tensor],
        last: Sequence[Operation] = (),
    ) -> list[Instruction]:
        """Return code that runs the rules of ``unknown`` nodes before them, and checks tensors.

        ``asserted`` tensors must have the shape of their ``set_shape``. ``last`` nodes follow the code.
        """
        before = {op: self._before(op) for op in unknown if op in self._inputs}
        after: defaultdict[Operation | None, list[Tensor]] = defaultdict(list)
        for tensor in asserted:
            after[tensor.op].append(tensor)
        result = []
        for instruction in code:
            op = instruction[5]
            if op in before:
                result.append(before[op])
            result.append(instruction)
            if op in after:
                result.append(self._after(after[op]))
        return result + [before[op] for op in last if op in before]

    def _before(self, op: Operation) -> Instruction:
        """Return a function that runs a rule for the shapes of a node's last inputs."""
        inputs, specs = self._inputs[op], [self._facts[x] for x in op.inputs]
        first = len(specs) - len(inputs)
        accepted: set[tuple[Any, ...]] = set()

        def check(_run: Any, registers: Registers) -> None:
            shapes = tuple([getattr(registers[i], "shape", ()) for i in inputs])
            if shapes in accepted:
                return
            found = [
                spec if registers[i] is None else Spec(spec.dtype, shape, spec.value, spec.dims)
                for i, spec, shape in zip(inputs, specs[first:], shapes, strict=True)
            ]
            infer(op, [*specs[:first], *found])
            if len(accepted) >= _COMBINATIONS:
                accepted.clear()
            accepted.add(shapes)

        return int(Kind.GENERAL), check, inputs, None, None, None

    def _after(self, tensors: Sequence[Tensor]) -> Instruction:
        outputs = tuple([self._outputs[x] for x in tensors])

        def check(_run: Any, registers: Registers) -> None:
            for tensor, i in zip(tensors, outputs, strict=True):
                _agreed(tensor, getattr(registers[i], "shape", ()))

        return int(Kind.GENERAL), check, outputs, None, None, None


def _read_only(value: Any) -> Any:
    """Return a read-only value, which many runs may share."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def _open_ops(ops: Sequence[Operation], fed: Collection[Tensor], facts: Facts) -> Iterator[Operation]:
    """Yield the nodes whose facts depend on fed shapes or are weaker than in the graph."""
    asserted = ops[0].graph.asserted if ops else ()
    unknown = {
        x
        for op in ops
        for x in (*op.inputs[: op.op_def.refs], *op.outputs)
        if not is_known(facts.get(x, x.spec).shape)
    }
    opened = unknown.union(facts, fed)
    unknown.update(asserted)
    for op in ops:
        if not (opened.isdisjoint(op.inputs) and unknown.isdisjoint(op.outputs)):
            yield op
            opened.update([x for x in op.outputs if _may_be_a_shape(facts[x])])


def _may_be_a_shape(spec: Spec) -> bool:
    return spec.dtype.is_integer and spec.value is None and (spec.shape is None or len(spec.shape) < 2)


def _agreed(tensor: Tensor, shape: Shape) -> Shape:
    try:
        return merge(shape, tensor.spec.shape)
    except ValueError as error:
        found, said = shape_text(shape), shape_text(tensor.spec.shape)
        text = f"{tensor.name} has shape {found}, not {said}, which set_shape() says."
        raise refused(tensor.op, text) from error
