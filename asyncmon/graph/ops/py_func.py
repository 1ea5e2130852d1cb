"""``py_func``: Python functions as nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from asyncmon.errors import (
    InvalidArgumentError,
    OpError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnimplementedError,
    UnknownError,
)
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import convert_to_tensor, create_operation
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import Operation
from asyncmon.graph.core.op import ZERO, AwaitedOpDef, OpDef, Spec, register
from asyncmon.graph.execution.run import Run
from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import text_of
from asyncmon.system.forgotten_await import note_use_of_coroutine
from asyncmon.system.functions import is_coroutine_function, qualified_name
from asyncmon.system.inside_step import inside_step


def py_func(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Call a Python function in each run. TF1: ``tf.py_func``.

    A plain function is called in the thread of the run: that of the event loop, or a worker for a long
    run. Independent stateful functions of a run are called concurrently in threads, except inside a
    branch or loop.

    An ``async def`` function is awaited on the event loop, concurrently with independent ones of the
    run. If its inputs do not depend on variables, it is awaited before the run takes the session's lock
    and does not delay other steps. Cancelling the run cancels it.

    Args:
        func: a function of arrays, which it may change, to an array or a sequence of them. Its error
            becomes the cause of an ``OpError``: ``OutOfRangeError`` for StopIteration, the end of the
            data; ``InvalidArgumentError`` for ValueError and TypeError; ``UnimplementedError`` for
            NotImplementedError; ``ResourceExhaustedError`` for MemoryError; ``UnknownError`` for any
            other. An ``OpError`` is not wrapped, nor is a group of such errors. Any other group counts
            as what all its errors are. In a step of a monitored session, the StopIteration is an error
            of the function, and no end of the data.
        inp: tensors.
        Tout: the dtype of the result, or a list of dtypes, which may be empty.
        stateful: false allows fewer calls, as equal inputs give equal results.

    Returns:
        A tensor of unknown shape, a list of them if ``Tout`` is a list, or the operation if that is
        empty.
    """
    if not callable(func):
        raise TypeError(f"func must be callable, got {func!r}.")
    listed = isinstance(Tout, list | tuple)
    types = tuple(dtypes.as_dtype(t) for t in (Tout if listed else [Tout]))
    is_async = is_coroutine_function(func)
    kind = "AsyncPyFunc" if is_async else "PyFunc" if stateful else "PurePyFunc"
    inputs = [convert_to_tensor(x) for x in inp]
    op = create_operation(kind, inputs, {"func": func, "Tout": types}, name or "PyFunc")
    if not types:
        return op
    return list(op.outputs) if listed else op.outputs[0]


def _rule(*inputs: Spec, func: Any, Tout: tuple[DType, ...]) -> tuple[Spec, ...]:
    return tuple(Spec(dtype, None) for dtype in Tout)


def _call(*arrays: Any, func: Callable[..., Any], Tout: tuple[DType, ...]) -> Any:
    try:
        result = func(*map(_own, arrays))
    except Exception as error:
        if is_only(error, (OpError,)):
            raise
        raise _op_error(func, error) from error
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"{qualified_name(func)} returned an awaitable; pass an `async def` itself.")
    return _outputs(func, result, Tout)


async def _await(run: Run | None, op: Operation, *arrays: Any) -> Any:
    func = op.attrs["func"]
    inside_step.set(run)  # this is the task of the node
    try:
        result = await func(*map(_own, arrays))
    except Exception as error:
        if is_only(error, (OpError,)):
            raise
        # Python turns a StopIteration of a coroutine into the cause of a RuntimeError
        ended = isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration)
        raise _op_error(func, StopIteration() if ended else error) from error
    return _outputs(func, result, op.attrs["Tout"])


async def called(op: Operation, arrays: Sequence[Any]) -> Any:
    """Call the function of an operation for a run in another process; a plain one in a thread."""
    if isinstance(op.op_def, AwaitedOpDef):
        return await _await(None, op, *arrays)
    call = partial(_call, *arrays, **op.attrs)
    return await _threads.call(call)


_threads = DaemonExecutor("py_func", 4)

_KINDS: tuple[tuple[type[Exception], type[OpError]], ...] = (
    (StopIteration, OutOfRangeError),
    (StopAsyncIteration, OutOfRangeError),
    (ValueError, InvalidArgumentError),
    (TypeError, InvalidArgumentError),
    (NotImplementedError, UnimplementedError),
    (MemoryError, ResourceExhaustedError),
)


def _op_error(func: Any, error: Exception) -> OpError:
    note_use_of_coroutine(error)
    kind = next((kind for cause, kind in _KINDS if is_only(error, (cause,))), UnknownError)
    if kind is OutOfRangeError:
        return kind(f"{qualified_name(func)} has no more data.")
    return kind(f"{qualified_name(func)} raised {type(error).__name__}: {text_of(error)}")


def _own(array: Any) -> Any:
    """Return a copy, which the user function may keep and change."""
    if isinstance(array, np.ndarray):
        return array.copy() if array.ndim else array[()]
    return array


def _outputs(func: Any, result: Any, types: tuple[DType, ...]) -> Any:
    if not types:
        return ()
    several = isinstance(result, list | tuple) and (len(types) > 1 or len(result) == 1)
    values = list(result) if several else [result]
    if len(values) != len(types):
        raise InvalidArgumentError(
            f"{qualified_name(func)} returns {len(values)} values, but expects to see "
            f"{len(types)} values."
        )
    arrays = [_array(func, i, *pair) for i, pair in enumerate(zip(values, types, strict=True))]
    return arrays[0] if len(arrays) == 1 else arrays


def _array(func: Any, i: int, value: Any, dtype: DType) -> Any:
    """Convert a result to a new array; Python numbers are cast, arrays must have the dtype."""
    if dtype is dtypes.string:
        try:
            return dtypes.as_strings(value)
        except TypeError as error:
            raise InvalidArgumentError(
                f"{i}-th value returned by {qualified_name(func)} is no string: {error}"
            ) from None
    array = np.array(value)
    if array.dtype == dtype.numpy:
        return array
    given = isinstance(value, np.ndarray | np.generic)
    if given or not np.can_cast(array.dtype, dtype.numpy, "same_kind"):
        raise InvalidArgumentError(
            f"{i}-th value returned by {qualified_name(func)} is {array.dtype}, but expects "
            f"{dtype.name}."
        )
    return array.astype(dtype.numpy)


register(OpDef("PyFunc", _call, _rule, ZERO, stateful=True, foreign=True))
register(OpDef("PurePyFunc", _call, _rule, ZERO, foreign=True))
register(AwaitedOpDef("AsyncPyFunc", _await, _rule, ZERO, foreign=True))
