"""The graph: named nodes in the order of their creation, scopes and collections. TF1: ``tf.Graph``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from sys import _getframe
from types import MappingProxyType
from typing import Any, NamedTuple

from asyncmon.graph.core.convert import to_operand, to_pair, to_ref
from asyncmon.graph.core.device_spec import apply_devices, with_colocation, with_device
from asyncmon.graph.core.node import NodeGraph, Operation, Tensor
from asyncmon.graph.core.op import RandomOpDef, Spec, table
from asyncmon.graph.core.rules import error_at
from asyncmon.protobuf.graph_def import GraphDef, graph_def_of
from asyncmon.system.error_text import own_files

_VALID_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_VALID_SCOPE = re.compile(r"[A-Za-z0-9_.\\/>-]*")
_TENSOR_NAMES = 'Tensor names must be of the form "<op_name>:<output_index>".'
_NO_ATTRS: Mapping[str, Any] = {}


class BuildContext(NamedTuple):
    """The graph and the scopes of the next node. A scope enters a changed copy."""

    graph: NodeGraph
    scope: str = ""
    control: tuple[Operation, ...] = ()
    devices: tuple[Any, ...] = ()
    variable_scope: Any = None
    container: str = ""


building: ContextVar[BuildContext | None] = ContextVar("asyncmon_building", default=None)


DEFAULT_CONTAINER = "localhost"
"""The name of the default container, besides the empty one."""


def current_container() -> str:
    """Return the container of the next variable or queue."""
    context = building.get()
    return "" if context is None else context.container


@contextmanager
def entered(context: BuildContext) -> Iterator[BuildContext]:
    """Set the current context inside ``with``."""
    before = building.get()
    building.set(context)
    try:
        yield context
    finally:
        building.set(before)  # not reset(token): an async generator may be closed in another context


class Graph:
    """A program made of operations. TF1: ``tf.Graph``.

    Example:
        >>> with Graph().as_default() as graph:
        ...     x = constant(1.0)
        >>> graph.get_tensor_by_name("Const:0") is x
        True
    """

    outer: Graph | None = None
    """The graph that this branch or loop body belongs to."""
    captures: Mapping[Tensor, Tensor] = MappingProxyType({})
    """The tensors of this subgraph that capture one of an outer graph, mapped to that."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}
        self._names: dict[str, int] = {}
        self._collections: dict[Any, list[Any]] = {}
        self._finalized = False
        self.seed: int | None = None
        self.random_ops = 0
        self.asserted: set[Tensor] = set()  # whose static shape set_shape() refined
        self.extras: dict[str, Any] = {}
        """Data of other modules of the engine about this graph, by module."""

    # Building.

    def add_op(
        self,
        type: str,
        inputs: Sequence[Tensor],
        attrs: Mapping[str, Any] = _NO_ATTRS,
        name: str | None = None,
    ) -> Operation:
        """Add a node whose inputs are tensors; ``create_op`` converts them first.

        Raises:
            RuntimeError: the graph is finalized.
            ValueError, TypeError: the inputs do not fit the op, or the name is not valid.
        """
        if self._finalized:
            self._check_not_finalized()
        op_def = table[type]
        specs = [tensor.spec for tensor in inputs]
        try:
            inferred = op_def.infer(*specs, **attrs)
        except (ValueError, TypeError) as error:
            raise error_at(error, name or type, type, specs) from error
        _, scope, control, devices, *_ = self._context()
        full_name = self._op_name(name or type, scope)
        number, values = len(self._operations), tuple(inputs)
        op = Operation(self, number, full_name, op_def, values, control, dict(attrs))
        if isinstance(inferred, Spec):
            inferred = (inferred,)
        op.outputs = tuple([Tensor(op, i, spec) for i, spec in enumerate(inferred)])
        if op_def.__class__ is RandomOpDef:  # isinstance() is slow for a no
            op.rng_key = self.root._rng_key(op.attrs.pop("seed", None))
        if op_def.refs:  # where the variable is
            op.device = values[0].op.device
        elif devices:
            apply_devices(devices, op)
        self._operations[full_name] = op
        try:
            frame: Any = _getframe(
                3
            )  # the first ones are of create() and of an operator or create_op()
        except ValueError:  # called directly
            frame = _getframe(1)
        while frame is not None:
            code = frame.f_code
            if not own_files[code.co_filename]:
                op.origin, op.offset = code, frame.f_lasti
                break
            frame = frame.f_back
        return op

    def create(
        self,
        type: str,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any] = _NO_ATTRS,
        name: str | None = None,
        *,
        pair: bool = False,
    ) -> Operation:
        """Convert the inputs and add a node, to this graph or to its branch that is being built.

        Arguments as for :func:`create_operation`; ``pair`` converts two operands together: a Python
        value takes the dtype of the other one.
        """
        graph, label = self._target(), name or type
        if pair:
            x, y = inputs
            return graph.add_op(type, to_pair(graph, x, y, label), attrs, name)
        refs = table[type].refs
        tensors = [
            to_ref(graph, value) if i < refs else to_operand(graph, value, label, i)
            for i, value in enumerate(inputs)
        ]
        return graph.add_op(type, tensors, attrs, name)

    def capture(self, tensor: Tensor) -> Tensor:
        """Capture a tensor of an outer graph, as branches and loop bodies do.

        ValueError if this is no branch or loop body, or not of that graph.
        """
        where = "" if tensor.graph.outer is None else ": it is inside another branch or loop body"
        raise ValueError(
            f"Tensor {tensor!r} must be from the same graph as the other inputs ({self!r}){where}."
        )

    def capture_ref(self, tensor: Tensor) -> Tensor:
        """Capture a variable itself, not its value, of the outermost graph."""
        return self.capture(tensor)

    @property
    def root(self) -> Graph:
        """The outermost graph, where variables live."""
        return self if self.outer is None else self.outer.root

    def _target(self) -> NodeGraph:
        """Return the branch of this graph that is being built, else the graph."""
        context = building.get()
        if context is None or context.graph is self:
            return self
        graph: NodeGraph | None = context.graph
        while graph is not None and graph is not self:
            graph = graph.outer
        if graph is not None:
            return context.graph
        if self.outer is not None:
            raise ValueError(
                "A tensor of a branch or loop body is used outside of it. Return it from the function "
                "that builds the body, and use the result of cond() or while_loop()."
            )
        return self

    def _rng_key(self, seed: int | None) -> tuple[int | None, int, int]:
        """Return TF1's pair of seeds (the first is None for the session's own) and the op's number."""
        self.random_ops += 1
        if seed is not None:
            return (87654321 if self.seed is None else self.seed, int(seed), self.random_ops)
        return (self.seed, self.random_ops, self.random_ops)

    # Names.

    def _op_name(self, name: str, scope: str) -> str:
        if name.endswith("/"):  # a scope's own name, taken as it is
            full_name = name[:-1]
            if full_name in self._operations:
                full_name = self.unique_name(full_name)
            self._names.setdefault(full_name.lower(), 1)
            return full_name
        if not (_VALID_SCOPE if scope else _VALID_NAME).fullmatch(name):
            raise ValueError(
                f"{name!r} is not a valid node name: expected letters, digits, and . _ / > - inside."
            )
        return self.unique_name(scope + name)

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """Return ``name``, or ``name_1``, ``name_2``, ... if it is taken. TF1: same name."""
        key = name.lower()
        count = self._names.get(key, 0)
        if not count:
            if mark_as_used:
                self._names[key] = 1
            return name
        while (new := f"{key}_{count}") in self._names:
            count += 1
        if mark_as_used:
            self._names |= {new: 1, key: count + 1}
        return f"{name}_{count}"

    def operand_name(self, label: str, operand: str | int) -> str:
        """Return the absolute name of a constant operand of the next op: ``add_1/y/``."""
        if isinstance(operand, int):
            operand = f"input_{operand}"
        if label.endswith("/"):
            return f"{label}{operand}/"
        name = self.unique_name(self._context().scope + label, mark_as_used=False)
        return f"{name}/{operand}/"

    # Scopes.

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Make this the default graph inside ``with``, for this task only."""
        with entered(self._context()):
            yield self

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Prefix the names of the ops built inside with a unique scope. TF1: same name.

        A name that ends in ``/`` re-enters an existing scope; None or "" is the top level.
        """
        context = self._context()
        if not name:
            scope = ""
        elif name.endswith("/"):
            scope = name
        else:
            if not (_VALID_SCOPE if context.scope else _VALID_NAME).fullmatch(name):
                raise ValueError(f"'{name}' is not a valid scope name")
            scope = self.unique_name(context.scope + name) + "/"
        with entered(context._replace(scope=scope)):
            yield scope

    def get_name_scope(self) -> str:
        """Return the current name scope without its trailing slash. TF1: same name."""
        return self._context().scope.removesuffix("/")

    @contextmanager
    def control_dependencies(self, control_inputs: Sequence[Any] | None) -> Iterator[None]:
        """Run the ops built inside after these; None clears outer dependencies. TF1: same name."""
        context = self._context()
        outer = () if control_inputs is None else context.control
        inner = [self._ordered_after(item) for item in control_inputs or ()]
        control = dict.fromkeys([*outer, *[op for op in inner if op is not None]])
        with entered(context._replace(control=tuple(control))):
            yield

    def _ordered_after(self, item: Any) -> Operation | None:
        """Return the operation to run first; None where a subgraph orders it another way."""
        op: Operation = self.as_graph_element(item).op
        return op

    @contextmanager
    def device(self, device_name_or_function: Any) -> Iterator[None]:
        """Place the ops built inside on a device. TF1: same name."""
        devices = with_device(self._context().devices, device_name_or_function)
        with entered(self._context()._replace(devices=devices)):
            yield

    @contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Place the ops built inside on the device of ``op``. TF1: same name."""
        devices = with_colocation(self._context().devices, op, ignore_existing)
        with entered(self._context()._replace(devices=devices)):
            yield

    @contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Put the variables and queues built inside into a container. TF1: same name.

        On a server, those of one name in two containers are different, and ``Session.reset`` clears
        single containers. ``""`` and ``"localhost"`` are the default container.
        """
        if not isinstance(container_name, str):
            raise TypeError(f"container_name must be a string, got {container_name!r}.")
        key = "" if container_name == DEFAULT_CONTAINER else container_name
        with entered(self._context()._replace(container=key)):
            yield container_name

    def _context(self) -> BuildContext:
        context = building.get()
        return context if context is not None and context.graph is self else BuildContext(self)

    # Looking up.

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Any:
        """Return the tensor or operation of an object or a name. TF1: same name.

        Raises:
            KeyError: a name that is not in the graph.
            ValueError: a name of the wrong kind, or an object of another graph.
            TypeError: an object that is neither.
        """
        if hasattr(obj, "_as_graph_element"):
            obj = obj._as_graph_element()
        allowed = {Tensor: allow_tensor, Operation: allow_operation}
        wanted = " or ".join([kind.__name__ for kind in allowed if allowed[kind]])
        if isinstance(obj, str):
            return self._named(obj, wanted)
        if not allowed.get(type(obj)):
            raise TypeError(f"Can not convert a {type(obj).__name__} into a {wanted}.")
        if obj.graph is not self:
            raise ValueError(f"{type(obj).__name__} {obj!r} is not an element of this graph.")
        return obj

    def _named(self, name: str, wanted: str) -> Tensor | Operation:
        if ":" not in name:
            op = self._operations.get(name)
            if "Operation" in wanted:
                if op is None:
                    raise KeyError(f"The name {name!r} refers to an Operation not in the graph.")
                return op
            what = "looks like an (invalid) Operation name" if op is None else "refers to an Operation"
            raise ValueError(f"The name {name!r} {what}, not a {wanted}. {_TENSOR_NAMES}")
        if "Tensor" not in wanted:
            raise ValueError(f"Name {name!r} appears to refer to a Tensor, not a {wanted}.")
        op_name, _, index = name.partition(":")
        if not index.isdecimal():
            what = "looks a like a Tensor name, but is not a valid one"
            raise ValueError(f"The name {name!r} {what}. {_TENSOR_NAMES}")
        op = self._operations.get(op_name)
        if op is None:
            raise KeyError(
                f"The name {name!r} refers to a Tensor which does not exist. "
                f"The operation, {op_name!r}, does not exist in the graph."
            )
        if int(index) >= len(op.outputs):
            raise KeyError(
                f"The name {name!r} refers to a Tensor which does not exist. "
                f"The operation, {op_name!r}, exists but only has {len(op.outputs)} outputs."
            )
        return op.outputs[int(index)]

    def get_tensor_by_name(self, name: str) -> Tensor:
        """Return the tensor named ``"op:index"``. TF1: same name, same errors."""
        if not isinstance(name, str):
            raise TypeError(f"Tensor names are strings (or similar), not {type(name).__name__}.")
        found: Tensor = self.as_graph_element(name, allow_operation=False)
        return found

    def get_operation_by_name(self, name: str) -> Operation:
        """Return the operation of this name. TF1: same name, same errors."""
        if not isinstance(name, str):
            raise TypeError(f"Operation names are strings (or similar), not {type(name).__name__}.")
        found: Operation = self.as_graph_element(name, allow_tensor=False)
        return found

    def get_operations(self) -> list[Operation]:
        """Return all operations in the order of their creation."""
        return list(self._operations.values())

    # Collections.

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Append to a collection. TF1: same name."""
        self._check_not_finalized()
        self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Append to several collections, each once. TF1: same name."""
        for name in dict.fromkeys((names,) if isinstance(names, str) else names):
            self.add_to_collection(name, value)

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """Return a copy of a collection, or its items whose name matches the regex ``scope``."""
        items = self._collections.get(name, [])
        if scope is None:
            return list(items)
        pattern = re.compile(scope)
        return [item for item in items if hasattr(item, "name") and pattern.match(item.name)]

    def get_collection_ref(self, name: Any) -> list[Any]:
        """Return the collection itself, which may be changed in place."""
        return self._collections.setdefault(name, [])

    def get_all_collection_keys(self) -> list[Any]:
        """Return the names of all collections."""
        return [name for name in self._collections if isinstance(name, str)]

    def clear_collection(self, name: Any) -> None:
        """Empty a collection."""
        self._check_not_finalized()
        self._collections.pop(name, None)

    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> GraphDef:
        """Return the graph as data, which TensorBoard shows. It cannot be imported. TF1: same name.

        ``from_version`` omits the nodes up to that :attr:`version`; ``add_shapes`` adds the shapes of
        outputs as an attribute.
        """
        return graph_def_of(self.get_operations()[from_version or 0 :], add_shapes=add_shapes)

    # Finalizing.

    @property
    def version(self) -> int:
        """The number of operations."""
        return len(self._operations)

    @property
    def finalized(self) -> bool:
        """True while the graph rejects new nodes."""
        return self._finalized

    def finalize(self) -> None:
        """Reject new nodes from now on. TF1: same name. A second call does nothing."""
        self._finalized = True

    def unfinalize(self) -> None:
        """Accept new nodes again. Compiled plans of sessions stay valid."""
        self._finalized = False

    def _check_not_finalized(self) -> None:
        if self._finalized:
            error = RuntimeError("Graph is finalized and cannot be modified.")
            error.add_note(
                "asyncmon: a session runs this graph. Build all operations before it is opened, or in "
                "begin() of a hook; in a loop, feed values to placeholders."
            )
            raise error

    def __repr__(self) -> str:
        return f"<Graph with {self.version} operations{', finalized' * self._finalized}>"
