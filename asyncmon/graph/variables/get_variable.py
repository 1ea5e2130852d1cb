"""Variables by name, and slots. TF1: ``tf.get_variable``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial, wraps
from inspect import signature
from typing import Any, Final

import numpy as np

from asyncmon.graph.core.build import (
    colocate_with,
    control_dependencies,
    convert_to_tensor,
    create_op,
    get_default_graph,
    name_scope,
)
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.dtypes import DType, as_dtype
from asyncmon.graph.core.graph import entered
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import TensorShape, as_shape, is_known
from asyncmon.graph.ops.basic import constant
from asyncmon.graph.ops.create import fill
from asyncmon.graph.variables.initializers import (
    Initializer,
    glorot_uniform_initializer,
    zeros_initializer,
)
from asyncmon.graph.variables.partitioned import (
    PartitionedVariable,
    PartitionInfo,
    partitions_of,
    parts_of,
)
from asyncmon.graph.variables.scope import (
    AUTO_REUSE,
    Reuse,
    build_context,
    get_variable_scope,
    joined,
)
from asyncmon.graph.variables.variable import Variable
from asyncmon.system.notebook import explained

WHOLE: Final = object()
"""For ``partitioner=``: one variable, for any partitioner of the scope."""


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Iterable[Any] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Callable[[Any], Any] | None = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """Return the variable of this name in the current scope, an existing or a new one. TF1: same name.

    The other arguments are those of :class:`Variable`.

    Args:
        name: the name inside the current scope.
        shape: the shape of a new variable; checked against that of an existing one, as is ``dtype``.
        dtype: the dtype; by default that of the scope, float32.
        initializer: a function ``initializer(shape, dtype=...)``, or a value or tensor, without
            ``shape``; by default Glorot uniform for floats, else zeros.
        regularizer: ``regularizer(variable)``, returns a loss for ``REGULARIZATION_LOSSES``, or None.
        partitioner: ``partitioner(shape, dtype)``, returns the number of parts for each dimension, such
            as :func:`fixed_size_partitioner`; by default that of the scope. The result is a
            :class:`PartitionedVariable`, except for scalars.
        custom_getter: ``custom_getter(getter, name, **arguments)``, returns the result instead. It gets
            the variable from ``getter(name, **arguments)``, with the full name.
        synchronization, aggregation: without effect: a variable has one copy.
    """
    scope = get_variable_scope()
    if partitioner is None:
        partitioner = scope.partitioner
    getter = scope.custom_getter if custom_getter is None else custom_getter
    get = find_or_create if getter is None else partial(getter, find_or_create)
    with entered(build_context()._replace(scope="")):  # also for the ops of a getter
        return get(
            joined(scope.name, name),
            shape=shape,
            dtype=dtype,
            initializer=scope.initializer if initializer is None else initializer,
            regularizer=scope.regularizer if regularizer is None else regularizer,
            reuse=scope.reuse,
            trainable=trainable,
            collections=collections,
            caching_device=caching_device,
            partitioner=None if partitioner is WHOLE else partitioner,
            validate_shape=validate_shape,
            use_resource=use_resource,
            constraint=scope.constraint if constraint is None else constraint,
        )


@wraps(get_variable, assigned=())
def get_local_variable(*args: Any, **kwargs: Any) -> Any:
    """Return a variable that is not trained and not saved. TF1: same name. See :func:`get_variable`."""
    arguments = signature(get_variable).bind(*args, **kwargs).arguments
    keys = [*(arguments.get("collections") or ()), GraphKeys.LOCAL_VARIABLES]
    return get_variable(**{**arguments, "trainable": False, "collections": keys})


def find_or_create(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: Reuse | None = None,
    partitioner: Any = None,
    partition_info: PartitionInfo | None = None,
    **settings: Any,
) -> Any:
    """Return the variable of a full name; the ``getter`` of custom getters."""
    if not name:
        raise ValueError("get_variable() needs a name, got an empty one.")
    scope = get_variable_scope()
    reuse = scope.reuse if reuse is None else reuse
    graph = get_default_graph().root
    wanted = None if dtype is None else as_dtype(dtype)
    variables: dict[str, Variable] = graph.extras.setdefault("get_variable", {})
    partitioned: dict[str, PartitionedVariable] = graph.extras.setdefault("partitioned", {})
    in_parts = partitioner is not None and not _is_scalar(shape, initializer)
    if name in partitioned and (in_parts or reuse is True):
        return _shared_parts(partitioned[name], name, reuse, shape, wanted, partitioner)
    if in_parts:
        with entered(build_context()._replace(graph=graph, scope="", control=())):
            made = partitioned[name] = _in_parts(
                name, shape, wanted or scope.dtype, initializer, partitioner,
                regularizer=regularizer, reuse=reuse, **settings,
            )  # fmt: skip
        return made
    if f"{name}/part_0" in variables:
        raise ValueError(
            "No partitioner was provided, but a partitioned version of the variable was found: "
            f"{name}/part_0. Perhaps a variable of the same name was already created with partitioning?"
        )
    if name in variables:
        return _shared(variables[name], name, reuse, shape, wanted)
    if reuse and reuse is not AUTO_REUSE:
        raise ValueError(
            f"Variable {name} does not exist, or was not created with get_variable(). "
            "Did you mean to set reuse=AUTO_REUSE in VarScope?"
        )
    initial, wanted = _initial_value(name, shape, wanted, initializer, scope.dtype, partition_info)
    with entered(build_context()._replace(graph=graph, scope="", control=())):
        variable = Variable(initial, name=name, dtype=wanted, expected_shape=shape, **settings)
        variables[name] = variable
        if regularizer is not None:
            with name_scope(f"{name}/Regularizer/"), colocate_with(variable):
                loss = regularizer(variable)
            if loss is not None:
                graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    return variable


def _shared(found: Variable, name: str, reuse: Reuse, shape: Any, dtype: DType | None) -> Variable:
    if not reuse:
        error = ValueError(
            f"Variable {name} already exists, disallowed. "
            "Did you mean to set reuse=True or reuse=AUTO_REUSE in VarScope?"
        )
        raise explained(error, name)
    if shape is not None and not found.shape.is_compatible_with(shape):
        raise ValueError(
            f"Trying to share variable {name}, but specified shape {TensorShape(as_shape(shape))} "
            f"and found shape {found.shape}."
        )
    if dtype is not None and dtype is not found.dtype:
        raise ValueError(
            f"Trying to share variable {name}, but specified dtype {dtype.name} "
            f"and found dtype {found.dtype.name}."
        )
    return found


def _initial_value(
    name: str,
    shape: Any,
    dtype: DType | None,
    initializer: Any,
    default: DType,
    partition_info: PartitionInfo | None,
) -> tuple[Any, DType | None]:
    """Return the initial value of a new variable, and its dtype if that is fixed."""
    if initializer is not None and not callable(initializer):
        if shape is not None:
            raise ValueError("If initializer is a constant, do not specify shape.")
        return initializer, dtype
    dtype = dtype or default
    dims = as_shape(shape)
    if initializer is None if dims is None else None in dims:
        but = f"but instead was {TensorShape(dims)}."
        raise ValueError(f"Shape of a new variable ({name}) must be fully defined, {but}")
    if initializer is None:
        initializer = glorot_uniform_initializer() if dtype.is_floating else zeros_initializer()
    elif isinstance(initializer, type):
        initializer = initializer()
    if dims is None:
        return initializer, dtype
    of_parts = isinstance(initializer, Initializer) or _takes(initializer, "partition_info")
    more = {"partition_info": partition_info} if of_parts else {}
    return partial(initializer, list(dims), dtype=dtype, **more), dtype


def _takes(fn: Callable[..., Any], argument: str) -> bool:
    try:
        return argument in signature(fn).parameters
    except (TypeError, ValueError):  # some builtins
        return False


# --- in parts ---------------------------------------------------------------------------------------
def _is_scalar(shape: Any, initializer: Any) -> bool:
    if shape is not None or initializer is None or callable(initializer):
        return as_shape(shape) == ()
    return (initializer.shape.ndims if is_tensor_like(initializer) else np.ndim(initializer)) == 0


def _in_parts(
    name: str, shape: Any, dtype: DType, initializer: Any, partitioner: Any, *, reuse: Any, **more: Any
) -> PartitionedVariable:
    """Create a variable in parts."""
    if reuse is True:
        raise ValueError(
            f"PartitionedVariable {name} does not exist, or was not created with tf.get_variable(). "
            "Did you mean to set reuse=False or reuse=tf.AUTO_REUSE in VarScope?"
        )
    found, whole = TensorShape(as_shape(shape)), None
    if initializer is not None and not callable(initializer):
        with name_scope(f"{name}/PartitionedInitializer"):
            whole = convert_to_tensor(initializer, None if is_tensor_like(initializer) else dtype)
        found, dtype = found.merge_with(whole.shape), whole.dtype
    partitions = partitions_of(partitioner, found, dtype)
    full, parts = [int(size or 0) for size in found.as_list()], []
    for i, (offset, size) in enumerate(parts_of(full, partitions)):
        label = f"{name}/part_{i}"
        info = PartitionInfo(full, offset)
        if whole is None:
            part = find_or_create(
                label, size, dtype, initializer, reuse=reuse, partition_info=info, **more
            )
        else:
            with name_scope(f"{label}/PartitionedInitializer"):
                initial = create_op("Slice", (whole, offset, size))
            part = find_or_create(label, None, dtype, initial, reuse=reuse, **more)
        part._set_save_slice_info(Variable.SaveSliceInfo(name, full, offset, size))
        parts.append(part)
    return PartitionedVariable(name, found, dtype, parts, partitions)


def _shared_parts(
    found: PartitionedVariable,
    name: str,
    reuse: Reuse,
    shape: Any,
    dtype: DType | None,
    partitioner: Any,
) -> PartitionedVariable:
    if not reuse:
        raise ValueError(
            f"Partitioned variable with name {name} already exists. Did you mean to set reuse=True or "
            "reuse=tf.AUTO_REUSE in VarScope?"
        )
    partitions, given_shape = found._get_partitions(), TensorShape(as_shape(shape))
    wanted, dtype = partitions, dtype or found.dtype
    if partitioner is not None:
        wanted = partitions_of(partitioner, found.shape, found.dtype)
    for what, given, existing in (
        ("shape", given_shape if given_shape.ndims is not None else found.shape, found.shape),
        ("dtype", dtype.name, found.dtype.name),
        ("partitions", wanted, partitions),
    ):
        if given != existing:
            raise ValueError(
                f"Trying to reuse partitioned variable {name}, but specified {what} {given} and found "
                f"{what} {existing}."
            )
    return found


def make_slot(primary: Any, initial_value: Any, name: str, shape: list[int] | None = None) -> Variable:
    """Create a variable ``primary/name`` for ``primary``, a variable or a tensor.

    It has the device of ``primary`` if that is a variable. ``initial_value`` is a tensor, or a
    number to fill the shape with. The shape is by default that of ``primary``.
    """
    outer = get_variable_scope().name
    full_name = f"{outer}/{primary.op.name}/{name}" if outer else f"{primary.op.name}/{name}"
    dims: Any = as_shape(primary.shape if shape is None else shape)
    is_number = isinstance(initial_value, int | float)

    def filled() -> Tensor:
        return fill(dims, constant(initial_value, primary.dtype))

    beside = colocate_with(primary) if isinstance(primary, Variable) else nullcontext()
    with primary.graph.name_scope(None), control_dependencies(None), beside:
        validated = not is_number or is_known(dims)
        if not validated:
            dims = create_op("Shape", (getattr(primary, "initialized_value", lambda: primary)(),))
        initial = filled if is_number else initial_value
        slot = Variable(initial, False, validate_shape=validated, name=full_name)
        info = primary._save_slice_info if isinstance(primary, Variable) else None
        if info is not None and shape is None:
            whole = slot.op.name.replace(primary.op.name, info.full_name, 1)
            places = info.full_shape, info.var_offset, info.var_shape
            slot._set_save_slice_info(Variable.SaveSliceInfo(whole, *places))
        return slot
