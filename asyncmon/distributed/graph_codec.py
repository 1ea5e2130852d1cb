"""A graph as plain data, and back: sent by a session to the process that runs it.

The data has the operations with their inputs, attributes and output specs, and the names of saved
variables and of the global step. Python functions stay in the client: an operation that calls one is
sent with the number of that operation in a list of the client. A decoded graph can be run, not
differentiated.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from asyncmon.distributed.wire import MALFORMED, Decoder, Encoder, is_of_engine
from asyncmon.errors import InvalidArgumentError, NotFoundError
from asyncmon.graph.control.subgraph import SubGraph
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpRecord, RandomOpDef, table
from asyncmon.graph.variables.global_step import step_counter
from asyncmon.system.wings import wings

CALLS = frozenset({"PyFunc", "PurePyFunc", "AsyncPyFunc"})
"""Ops that call a function of the client."""

Call = Callable[..., Any]

_TOGETHER = 100  # operations in a buffer: about 20 kB


# --- writing --------------------------------------------------------------------------------------
def graph_data(
    graph: Graph, start: int, functions: list[Operation], encoder: Encoder
) -> dict[str, Any]:
    """Return the operations of a graph from one number on, as plain data.

    Args:
        graph: the graph.
        start: the number of operations that the other side has.
        functions: collects the operations that call functions.
        encoder: collects the arrays.

    Raises:
        TypeError: an operation has an attribute that cannot be sent.
    """
    step, added = step_counter(graph), graph.get_operations()[start:]
    # In buffers of their own, some in each: reading a buffer keeps Python's lock, so that a large one
    # would hold the event loop from any thread.
    parts = [added[first : first + _TOGETHER] for first in range(0, len(added), _TOGETHER)]
    return {
        "start": start,
        "operations": [
            encoder.document([_operation(op, functions, encoder) for op in part]) for part in parts
        ],
        "saved": [v.op.id for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)],
        "step": None if step is None else [step.op.id, step.op.type == "VariableV2"],
        "random": graph.random_ops,
    }


def _operation(op: Operation, functions: list[Operation], encoder: Encoder) -> list[Any]:
    return [
        op.type,
        getattr(op.op_def.infer, "__module__", ""),  # registers the op
        op.name,
        [[x.op.id, x.value_index] for x in op.inputs],
        [x.id for x in op.control_inputs],
        {name: _attribute(op, name, value, functions, encoder) for name, value in op.attrs.items()},
        op.rng_key,
        op.device,
        [[x.spec.dtype.name, x.spec.shape] for x in op.outputs],
        [x.value_index for x in op.outputs if x in op.graph.asserted],
    ]


def _attribute(
    op: Operation, name: str, value: Any, functions: list[Operation], encoder: Encoder
) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], SubGraph):
        return ["graphs", *[_subgraph(graph, functions, encoder) for graph in value]]
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        inner = op.attrs["branches"][-1]
        if all(x.graph is inner for x in value):
            return ["inner", *[[x.op.id, x.value_index] for x in value]]
    if callable(value) and not isinstance(value, type):
        if op.type in CALLS:
            functions.append(op)
            return ["function", len(functions) - 1]
        if name == "grad_fn":  # used while the graph is built only
            return None
    try:
        return encoder.encode(value)
    except TypeError as error:
        raise TypeError(f"Operation {op.name!r} ({op.type}) has attr {name!r}: {error}") from None


def _subgraph(graph: SubGraph, functions: list[Operation], encoder: Encoder) -> dict[str, Any]:
    return {
        "operations": [_operation(op, functions, encoder) for op in graph.get_operations()],
        "parameters": [x.op.id for x in graph.parameters],
        "variables": [[x.op.id, name] for x, name in graph.variables.items()],
        "targets": [[x.op.id, x.value_index] for x in graph.targets],
        "captured": [[x.op.id, x.value_index] for x in graph.captured],
    }


# --- reading --------------------------------------------------------------------------------------
class GraphReader:
    """Builds a graph from the parts returned by :func:`graph_data`.

    Args:
        call: awaited with the number of a function and arrays in the place of each function.

    Attributes:
        operations: the operations of the graph, by number.
    """

    def __init__(self, call: Call) -> None:
        self.graph = Graph()
        self._call = call
        self.operations: list[Operation] = []

    def add(self, data: dict[str, Any], decoder: Decoder) -> None:
        """Add operations. May be called in any thread, for one part at a time.

        Raises:
            InvalidArgumentError: the data is malformed.
            NotFoundError: an op is not registered here.
        """
        graph = self.graph
        try:
            if data["start"] != graph.version:
                raise ValueError(f"{graph.version} operations, and a part from {data['start']} on")
            operations = self.operations
            for number in data["operations"]:
                for record in decoder.document(number):
                    operations.append(self._operation(graph, operations, record, decoder))
            graph.get_collection_ref(GraphKeys.GLOBAL_VARIABLES)[:] = [
                operations[i].outputs[0] for i in data["saved"]
            ]
            if data["step"] is not None:
                graph.get_collection_ref(GraphKeys.GLOBAL_STEP)[:] = [
                    operations[data["step"][0]].outputs[0]
                ]
            graph.random_ops = int(data["random"])
        except MALFORMED as error:
            raise InvalidArgumentError(f"The data of a graph is malformed: {error!r}.") from error

    def _operation(
        self, graph: Graph, operations: list[Operation], record: list[Any], decoder: Decoder
    ) -> Operation:
        type_, module, name, inputs, control, attrs, rng_key, device, outputs, asserted = record
        read: dict[str, Any] = {}
        for key, value in attrs.items():
            read[key] = self._attribute(graph, operations, value, read, decoder)
        op_def = _record(_awaited(type_, read), module)
        if isinstance(op_def, RandomOpDef):
            read["seed"] = None
        tensors = [operations[i].outputs[k] for i, k in inputs]
        op = Graph.add_op(graph, op_def.name, tensors, read, f"{name}/")
        if op.name != name:
            raise ValueError(f"two operations are named {name!r}")
        op.control = tuple([operations[i] for i in control])
        op.device = str(device)
        op.rng_key = None if rng_key is None else tuple(rng_key)
        if [x.spec.dtype.name for x in op.outputs] != [dtype for dtype, _ in outputs]:
            raise ValueError(f"operation {name!r} has outputs {op.outputs!r}, not {outputs!r}")
        for tensor, (_, shape) in zip(op.outputs, outputs, strict=True):
            known = None if shape is None else tuple(shape)
            if known != tensor.spec.shape:
                tensor.spec = replace(tensor.spec, shape=known)
        graph.asserted.update(op.outputs[i] for i in asserted)
        return op

    def _attribute(
        self,
        graph: Graph,
        operations: list[Operation],
        value: Any,
        read: dict[str, Any],
        decoder: Decoder,
    ) -> Any:
        match value:
            case ["graphs", *parts]:
                return tuple([self._subgraph(graph, operations, part, decoder) for part in parts])
            case ["inner", *places]:
                inner = read["branches"][-1].get_operations()
                return tuple([inner[i].outputs[k] for i, k in places])
            case ["function", int() as number]:
                return _caller(self._call, number)
        return decoder.decode(value)

    def _subgraph(
        self, outer: Graph, around: list[Operation], data: dict[str, Any], decoder: Decoder
    ) -> SubGraph:
        graph = SubGraph(outer)
        operations: list[Operation] = []
        for record in data["operations"]:
            operations.append(self._operation(graph, operations, record, decoder))
        graph.parameters = [operations[i].outputs[0] for i in data["parameters"]]
        graph.variables = {operations[i].outputs[0]: str(name) for i, name in data["variables"]}
        graph.targets = [operations[i].outputs[k] for i, k in data["targets"]]
        graph.captured = [around[i].outputs[k] for i, k in data["captured"]]
        return graph


def _caller(call: Call, number: int) -> Call:
    async def function(*arrays: Any) -> Any:
        return await call(number, *arrays)

    return function


def _awaited(type_: str, attrs: dict[str, Any]) -> str:
    """Return an op that awaits the functions of the client in place of the original op."""
    if type_ in CALLS:
        return "AsyncPyFunc"
    inside = [op for graph in attrs.get("branches", ()) for op in graph.get_operations()]
    if any(op.op_def.awaits for op in inside) and not type_.startswith("Async"):
        return f"Async{type_}"
    return type_


def _record(type_: str, module: str) -> OpRecord:
    if type_ not in table and is_of_engine(module):
        importlib.import_module(module)
    if type_ not in table:  # of a family: the module of its rule does not register it
        for wing in wings():
            importlib.import_module(f"asyncmon.{wing.name}")
    found = table.get(type_)
    if found is None:
        raise NotFoundError(
            f"Op type {type_!r} is not registered in this process. Let it import the module that does "
            f"that, {module!r}: `--import` of a server."
        )
    return found
