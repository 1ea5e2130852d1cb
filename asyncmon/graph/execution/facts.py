"""Static facts about the tensors of a plan: shapes, values of constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef, Spec, VariableOpDef
from asyncmon.graph.core.rules import text as shape_text
from asyncmon.graph.core.shape import is_known, merge, num_elements
from asyncmon.graph.execution.values import Values

_LARGEST = 1 << 16  # elements: a larger constant is not folded
_SHAPE = 1 << 6  # elements: a larger value is not used as a shape


class Facts(dict["Tensor", Spec]):
    """Specs of tensors; by default those of the graph.

    Attributes:
        disproved: the tensors whose specs are weaker than in the graph.
    """

    __slots__ = ("disproved",)

    def __init__(
        self, specs: Mapping[Tensor, Spec], disproved: frozenset[Tensor] = frozenset()
    ) -> None:
        super().__init__(specs)
        self.disproved = disproved

    def __missing__(self, tensor: Tensor) -> Spec:
        return tensor.spec

    def disprove(self, ops: Sequence[Operation], fed: Collection[Tensor]) -> None:
        """Weaken the specs that the graph derives from constants for which other values are fed.

        Args:
            ops: the operations of a plan, in order.
            fed: fed tensors; those with weaker specs are keys already.
        """
        asserted = ops[0].graph.asserted if ops else ()
        for op in ops if self or asserted else ():
            if isinstance(op.op_def, VariableOpDef):  # no node could check a set_shape on a variable
                for variable in op.inputs[: op.op_def.refs] or op.outputs:
                    if variable in asserted and variable not in fed:
                        self[variable] = Spec(variable.dtype, variable.op.attrs["shape"])
            if not any(x in self for x in op.inputs):
                continue
            if isinstance(op.op_def, ControlOpDef):
                found: Sequence[Spec] = [Spec(x.dtype, None) for x in op.outputs]
            else:
                found = infer(op, [self[x] for x in op.inputs])
            for tensor, spec in zip(op.outputs, found, strict=True):
                known, valued = tensor.spec, spec.value is not None
                same = valued == (known.value is not None) and spec.shape == known.shape
                if tensor not in fed and not (same and spec.known_dims() == known.known_dims()):
                    self[tensor] = spec
        self.disproved = frozenset(self) if self else self.disproved

    def note_value(self, tensor: Tensor, value: Any) -> None:
        """Record the value of a folded tensor for rules that use it as a shape."""
        if tensor.spec.value is None and (tensor.dtype.is_integer or not is_known(tensor.spec.shape)):
            array = np.asarray(value)
            is_shape = array.ndim < 2 and array.size < _SHAPE and array.dtype != object
            self[tensor] = Spec(tensor.dtype, array.shape, array if is_shape else None)


def infer(op: Operation, inputs: Sequence[Spec]) -> Sequence[Spec]:
    """Return the specs of a node's outputs according to its rule.

    Raises:
        InvalidArgumentError: the rule refuses the inputs; the error names the node.
    """
    try:
        found = (op.op_def.run_rule or op.op_def.infer)(*inputs, **op.attrs)
    except (ValueError, TypeError) as error:
        shapes = ", ".join(shape_text(spec.shape) for spec in inputs)
        raise refused(op, f"{error} with input shapes: {shapes}.") from error
    return (found,) if isinstance(found, Spec) else found


def refused(op: Operation, text: str) -> InvalidArgumentError:
    """Return the error for shapes that a node does not take."""
    error = InvalidArgumentError(f"{text} [at node {op.name!r} ({op.type})]", op=op)
    error.__dict__["_asyncmon_located"] = True
    return error


# --- constants --------------------------------------------------------------------------------------


def fold(
    op: Operation,
    inputs: Sequence[int],
    constants: Mapping[int, Any],
    facts: Facts,
    largest: int = _LARGEST,
) -> Sequence[Any] | None:
    """Return the outputs of a stateless node, or None if they depend on a run or are too large."""
    if len(op.outputs) == 1:
        spec = facts[op.outputs[0]]
        if spec.value is not None and not op.inputs:
            return (spec.value if spec.value.ndim or spec.value.dtype == object else spec.value[()],)
        if spec.dims is not None and None not in spec.dims:  # a known shape, of an unknown tensor
            return (np.array(spec.dims, spec.dtype.numpy).reshape(spec.shape or ()),)
    if op.op_def.kernel is None or not all(map(constants.__contains__, inputs)):
        return None
    specs: Sequence[Spec] = [facts[x] for x in op.outputs]
    try:
        if any(x in facts for x in op.inputs):
            specs = infer(op, [facts[x] for x in op.inputs])
        sizes = [num_elements(spec.shape) for spec in specs]
        if any(size is None or size > largest for size in sizes):
            return None
        with np.errstate(all="ignore"):
            values = kernel_of(op)(*[constants[i] for i in inputs], **op.attrs)
        if len(op.outputs) == 1:
            values = (values,)
        for tensor, value in zip(op.outputs, values, strict=True):
            merge(np.shape(value), facts[tensor].shape)
    except Exception:  # an error is left to the run, at its node
        return None
    return tuple(values)


def kernel_of(op: Operation) -> Any:
    """Return the kernel of a node, with strings returned as arrays, also single ones."""
    kernel: Any = op.op_def.kernel
    for x in op.outputs:  # no generator: called for each node
        if x.spec.dtype is dtypes.string:
            break
    else:
        return kernel

    def call(*arrays: Any, **attrs: Any) -> Any:
        found = kernel(*arrays, **attrs)
        if len(op.outputs) == 1:
            return dtypes.as_objects(found)
        texts = [x.spec.dtype is dtypes.string for x in op.outputs]
        return [dtypes.as_objects(v) if t else v for v, t in zip(found, texts, strict=True)]

    return call


# --- subgraphs --------------------------------------------------------------------------------------


class OuterFacts(NamedTuple):
    """The facts of the outer plan about the parameters of a subgraph.

    Attributes:
        variables: the parameters read from the state, with the names of the variables.
        constants: the constant parameters.
        weaker: the parameters whose specs are weaker than in the subgraph.
    """

    variables: Mapping[Tensor, str]
    constants: Mapping[Tensor, Any]
    weaker: Mapping[Tensor, Spec]

    @classmethod
    def none(cls, fed: Collection[Tensor]) -> Self:
        """Return the facts about fed tensors without an outer plan."""
        valued = [x for x in fed if x.spec.value is not None or x.spec.dims]
        return cls({}, {}, {x: Spec(x.dtype, x.spec.shape) for x in valued})

    @classmethod
    def of(
        cls,
        op: Operation,
        branch: Any,
        taken: Sequence[Tensor],
        values: Values,
        facts: Facts,
        fed: Collection[Tensor],
    ) -> Self:
        """Return the facts of a node's plan about the parameters of one of its subgraphs.

        ``taken`` are the tensors captured by the subgraph, ``fed`` those fed to the plan.
        """
        variables, constants, weaker = {}, {}, {}
        own = len(branch.parameters) - len(taken)
        for parameter in branch.parameters[:own]:
            if not facts.disproved.isdisjoint(op.inputs):
                weaker[parameter] = Spec(parameter.dtype, None)
            elif parameter in branch.asserted:
                weaker[parameter] = Spec(parameter.dtype, parameter.op.attrs["shape"])
        for parameter, tensor in zip(branch.parameters[own:], taken, strict=True):
            if tensor in facts.disproved or parameter in branch.asserted:
                weaker[parameter] = facts[tensor]
            if parameter in branch.variables:
                if tensor not in fed:
                    variables[parameter] = branch.variables[parameter]
            elif values.of[tensor] in values.constants:
                constants[parameter] = values.constants[values.of[tensor]]
        return cls(variables, constants, weaker)


def split_inputs(op: Operation, items: Sequence[Any]) -> list[Sequence[Any]]:
    """Split a list parallel to an op's inputs: its own inputs, then the captures of each branch."""
    counts = [len(branch.captured) for branch in op.attrs["branches"]]
    ends = list(accumulate(counts, initial=len(items) - sum(counts)))
    return [items[: ends[0]], *[items[start:end] for start, end in pairwise(ends)]]
