"""Accumulators in a graph: the mean of the gradients of several runs.

TF1: ``tf.ConditionalAccumulator``, ``tf.SparseConditionalAccumulator``.

Their gradients belong to a session. Gradients that a run applies count from its commit on. Gradients
that a run takes are restored if it fails. A run that takes gradients waits *before* the run lock, so
that other runs can apply theirs.

Example::

    sums = ConditionalAccumulator(float32, shape=[10])
    apply, mean = sums.apply_grad(grad, local_step=step), sums.take_grad(4)
    ...
    await sess.run(apply)        # dropped where its step is before the accumulator's
    await sess.run(mean)         # waits for 4 gradients
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import (
    colocate_with,
    control_dependencies,
    convert_to_tensor,
    create_op,
    create_operation,
)
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.graph import current_container
from asyncmon.graph.core.indexed_slices import IndexedSlices
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import WAITS, OpDef, Spec, register
from asyncmon.graph.core.shape import Shape, TensorShape, as_shape
from asyncmon.graph.execution.run import Run
from asyncmon.graph.queues.gradient_sums import LARGE, Accumulator, Entry, GradientSum, shape_mismatch
from asyncmon.graph.queues.ops import awaited, gives, resource_name
from asyncmon.system.files import in_thread

_DTYPES = (dtypes.float16, dtypes.float32, dtypes.float64)


@dataclass(frozen=True)
class AccumulatorSpec:
    """The data shared by the ops of one accumulator. Each session makes its own accumulator from it."""

    kind: str
    name: str
    dtype: DType
    shape: Shape
    reduction_type: str
    shared_name: str | None = None
    container: str = ""

    def __repr__(self) -> str:
        return f"{self.kind} {self.name!r}"

    def state(self, run: Run) -> Accumulator:
        """Return the accumulator of the session that a run belongs to.

        InvalidArgumentError if a different one has the same ``shared_name``.
        """
        key = ("accumulator", self.container, self.shared_name) if self.shared_name else self.name
        found = run.resource(key, lambda: Accumulator(self))
        for what in ("kind", "dtype", "shape", "reduction_type"):
            other, own = getattr(found.spec, what), getattr(self, what)
            if other != own:
                shared = f"Shared accumulator {self.shared_name!r}"
                raise InvalidArgumentError(f"{shared} has {what} {other}, but {self!r} has {own}.")
        return found

    def checked(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a shape merged with the known one; -1 is unknown.

        InvalidArgumentError if it is not that of the gradients.
        """
        found, known = TensorShape([None if n < 0 else n for n in shape]), TensorShape(self.shape)
        if not found.is_compatible_with(known):
            raise shape_mismatch(self.shape or (), shape)
        return tuple(-1 if n is None else n for n in known.merge_with(found).as_list())


class SparseGradient(NamedTuple):
    """Rows of a tensor: ascending int64 indices, the values, the tensor's shape; -1 is unknown."""

    indices: Tensor
    values: Tensor
    shape: Tensor


class ConditionalAccumulatorBase:
    """The base class of accumulators. TF1: same name.

    ``accumulator_ref`` is the tensor that stands for the accumulator.
    """

    _kind: ClassVar[str]

    def __init__(
        self, dtype: Any, shape: Any, shared_name: str | None, name: str, reduction_type: str
    ) -> None:
        self.dtype = dtypes.as_dtype(dtype)
        if self.dtype not in _DTYPES:
            raise TypeError(
                f"{self._kind} takes float16, float32 or float64 gradients, got {self.dtype.name}."
            )
        if reduction_type not in ("MEAN", "SUM"):
            raise ValueError(f'reduction_type must be "MEAN" or "SUM", got {reduction_type!r}.')
        with control_dependencies(None):
            self.accumulator_ref: Tensor = create_op(f"Resource{self._kind}", (), None, name)
        self.name = self.accumulator_ref.op.name
        self._base = self.name.rsplit("/", 1)[-1]
        own = resource_name(self.accumulator_ref)
        self._spec = AccumulatorSpec(
            self._kind,
            own,
            self.dtype,
            as_shape(shape),
            reduction_type,
            shared_name,
            current_container(),
        )

    def __repr__(self) -> str:
        return f"<{self._spec!r}>"

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """Return an int32 scalar: the number of gradients."""
        name = name or f"{self._base}_NumAccumulated"
        return self._op("ResourceAccumulatorNumAccumulated", name).outputs[0]

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Operation:
        """Return an operation that sets the accumulator's step, an integer or a tensor.

        Present gradients stay.
        """
        return self._op("ResourceAccumulatorSetGlobalStep", name, _int64(new_global_step))

    def _op(self, kind: str, name: str | None, *inputs: Any) -> Operation:
        attrs = {"accumulator": self._spec}
        with colocate_with(self.accumulator_ref):
            return create_operation(kind, [self.accumulator_ref, *inputs], attrs, name or kind)


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """The mean of gradients that are not stale. TF1: ``tf.ConditionalAccumulator``.

    Args:
        dtype: float16, float32 or float64.
        shape: of the gradients, as far as it is known.
        shared_name: accumulators of this name are one in each session. In the run:
            InvalidArgumentError where they differ.
        reduction_type: ``"MEAN"``, or ``"SUM"``.

    Raises:
        TypeError: another dtype.
        ValueError: another reduction.
    """

    _kind = "ConditionalAccumulator"

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        super().__init__(dtype, shape, shared_name, name, reduction_type)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Operation:
        """Return an operation that adds a gradient. It does not wait.

        The gradient is dropped if ``local_step``, an integer or a tensor, is before the accumulator's
        step. In the run: InvalidArgumentError if the shape is not that of the others.
        """
        grad = convert_to_tensor(grad, self.dtype)
        return self._op("ResourceAccumulatorApplyGradient", name, _int64(local_step), grad)

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """Return the mean of all gradients. The run waits until they are ``num_required``.

        This removes all gradients and adds 1 to the accumulator's step. In the run:
        InvalidArgumentError if the number, an integer or a tensor, is not positive.
        """
        return self._op("ResourceAccumulatorTakeGradient", name, num_required).outputs[0]


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """The mean of gradients of some rows. TF1: ``tf.SparseConditionalAccumulator``.

    Each row is the mean of the gradients that have it. Arguments as for
    :class:`ConditionalAccumulator`; the shape is that of the dense tensor, or ().
    """

    _kind = "SparseConditionalAccumulator"

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        super().__init__(dtype, shape or None, shared_name, name, reduction_type)

    def apply_grad(
        self,
        grad_indices: Any,
        grad_values: Any,
        grad_shape: Any = None,
        local_step: Any = 0,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that adds a gradient. It does not wait. Equal rows are added up.

        ``grad_shape`` is that of the dense tensor. See :meth:`ConditionalAccumulator.apply_grad`.
        """
        shape = np.zeros(0, np.int64) if grad_shape is None else grad_shape
        inputs = [_int64(grad_indices), convert_to_tensor(grad_values, self.dtype), _int64(shape)]
        return self._op("SparseAccumulatorApplyGradient", name, _int64(local_step), *inputs)

    def apply_indexed_slices_grad(
        self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None
    ) -> Operation:
        """Return an operation that adds slices, see :meth:`apply_grad`."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def take_grad(self, num_required: Any, name: str | None = None) -> SparseGradient:
        """Return indices, rows and shape. See :meth:`ConditionalAccumulator.take_grad`."""
        outputs = self._op("SparseAccumulatorTakeGradient", name, num_required).outputs
        return SparseGradient(*outputs)

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """Return what :meth:`take_grad` does, as slices."""
        indices, values, shape = self.take_grad(num_required, name)
        return IndexedSlices(values, indices, shape)


def _int64(value: Any) -> Tensor:
    tensor = convert_to_tensor(value)
    is_int64 = tensor.spec.dtype is dtypes.int64
    return tensor if is_int64 else create_op("Cast", (tensor,), {"dtype": dtypes.int64}, None)


# --- kernels: return results, or else a coroutine that waits ---------------------------------------
def _try_apply(run: Run, op: Operation, _handle: Any, step: Any, *gradient: Any) -> Any:
    spec: AccumulatorSpec = op.attrs["accumulator"]
    if any(array.nbytes > LARGE for array in gradient):
        return WAITS
    state = spec.state(run)
    state.apply(run, int(step), _gradient(spec, *gradient))
    return None


async def _apply(run: Run, op: Operation, _handle: Any, step: Any, *gradient: Any) -> None:
    spec: AccumulatorSpec = op.attrs["accumulator"]
    state = spec.state(run)
    await state.add_up()
    state.apply(run, int(step), await in_thread(_gradient, spec, *gradient))


def _gradient(spec: AccumulatorSpec, *gradient: Any) -> GradientSum:
    """Return a checked copy of the gradient."""
    if spec.kind == "ConditionalAccumulator":
        (values,) = gradient
        spec.checked(values.shape)
        return GradientSum(np.array(values))
    indices, values, shape = gradient
    if np.ndim(indices) != 1:
        text = "Input indices should be vector but received shape"
        raise InvalidArgumentError(f"{text}: {list(np.shape(indices))}")
    if not np.ndim(values) or len(values) != len(indices):
        rows = f"got values of shape {list(np.shape(values))}"
        raise InvalidArgumentError(f"{len(indices)} indices need as many rows, {rows}.")
    spec.checked((-1, *values.shape[1:]))
    dense = spec.checked(tuple(map(int, shape)) or (-1, *values.shape[1:]))
    if len(indices) and (indices.min() < 0 or indices.max() >= dense[0] >= 0):
        raise InvalidArgumentError(f"Indices must be from 0 to {dense[0] - 1}, got {indices}.")
    return GradientSum.of_rows(indices, values, dense)


def _try_take(run: Run, op: Operation, _handle: Any, count: Any) -> Any:
    state = op.attrs["accumulator"].state(run)
    taken = state.take_nowait(run, int(count))
    if taken is None:
        return WAITS
    if taken.is_large:
        state.settle(taken, committed=False)
        return WAITS
    return _result(op, _kept(run, state, taken))


async def _take(run: Run, op: Operation, _handle: Any, count: Any) -> Any:
    state = op.attrs["accumulator"].state(run)
    taken = _kept(run, state, await state.take(run, int(count)))
    return await in_thread(_result, op, taken) if taken.is_large else _result(op, taken)


def _kept(run: Run, state: Accumulator, taken: Entry) -> Entry:
    run.on_commit(partial(state.settle, taken, committed=True))
    run.on_abort(partial(state.settle, taken, committed=False))
    return taken


def _result(op: Operation, taken: Entry) -> Any:
    total, spec = taken.total(), op.attrs["accumulator"]
    values = total.mean() if spec.reduction_type == "MEAN" else total.values.copy()
    if spec.kind == "ConditionalAccumulator":
        return values
    return total.indices.copy(), values, np.array(total.shape, np.int64)


# --- shape rules ----------------------------------------------------------------------------------
def _scalars_rule(_handle: Spec, number: Spec, **attrs: Any) -> tuple[Spec, ...]:
    if not number.dtype.is_integer or number.shape not in (None, ()):
        raise ValueError(f"Steps and numbers of gradients are integer scalars, got {number}.")
    return ()


def _apply_rule(
    handle: Spec, step: Spec, *gradient: Spec, accumulator: AccumulatorSpec
) -> tuple[Spec, ...]:
    if accumulator.kind == "ConditionalAccumulator":
        found, known = gradient[0].shape, accumulator.shape
    else:
        found, known = _inner(gradient[1].shape), _inner(accumulator.shape)
    TensorShape(found).assert_is_compatible_with(TensorShape(known))
    return _scalars_rule(handle, step)


def _inner(shape: Shape) -> Shape:
    return None if shape is None else shape[1:]


def _take_rule(handle: Spec, count: Spec, *, accumulator: AccumulatorSpec) -> Spec | tuple[Spec, ...]:
    _scalars_rule(handle, count)
    shape = accumulator.shape
    if accumulator.kind == "ConditionalAccumulator":
        return Spec(accumulator.dtype, shape)
    rows = None if shape is None else (None, *shape[1:])
    dense = Spec(dtypes.int64, (None if shape is None else len(shape),))
    return Spec(dtypes.int64, (None,)), Spec(accumulator.dtype, rows), dense


_STRING, _COUNT = gives(Spec(dtypes.string, ())), gives(Spec(dtypes.int32, ()))
for _kind in ("ConditionalAccumulator", "SparseConditionalAccumulator"):
    # The value of an accumulator's own node only ties its ops together.
    register(OpDef(f"Resource{_kind}", lambda: np.array(b"accumulator", object), _STRING))
for _kind in ("Resource", "Sparse"):
    awaited(f"{_kind}AccumulatorApplyGradient", _try_apply, _apply_rule, _apply)
    awaited(f"{_kind}AccumulatorTakeGradient", _try_take, _take_rule, _take)
awaited("ResourceAccumulatorNumAccumulated", lambda run, op, _:
    np.int32(op.attrs["accumulator"].state(run).count(run)), _COUNT, changes=False)  # fmt: skip
awaited("ResourceAccumulatorSetGlobalStep", lambda run, op, _, step: run.on_commit(partial(
    op.attrs["accumulator"].state(run).set_step, int(step))), _scalars_rule)  # fmt: skip
