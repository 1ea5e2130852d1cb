"""Recurrent networks: a cell run over time. TF1: ``tf.nn.dynamic_rnn`` and its kin.

Of TF1's arguments, ``parallel_iterations`` and ``swap_memory`` have no meaning here: steps run one
after another, in one memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph import (
    Assert,
    Tensor,
    VariableScope,
    cast,
    concat,
    control_dependencies,
    convert_to_tensor,
    equal,
    expand_dims,
    identity,
    int32,
    maximum,
    minimum,
    reduce_all,
    reduce_max,
    reverse,
    shape,
    stack,
    transpose,
    unstack,
    variable_scope,
    where,
    zeros,
    zeros_like,
)
from asyncmon.graph import range as numbers
from asyncmon.graph.control.scan import scan_loop
from asyncmon.graph.core import nest
from asyncmon.graph.core.nest import map_structure
from asyncmon.graph.ops.sequences import reverse_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

Scope = str | VariableScope | None


def dynamic_rnn(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Scope = None,
) -> tuple[Any, Any]:
    """Run a cell over the steps of sequences, in a loop of the graph. TF1: ``tf.nn.dynamic_rnn``.

    Args:
        cell: a cell of :mod:`asyncmon.tf1.rnn_cell`, or what can be called as one.
        inputs: of shape ``[batch, time, ...]``, or a structure of such tensors. The last dimension is
            known.
        sequence_length: int vector ``[batch]``. Beyond a sequence's length its outputs are zeros, and
            its state stays as it was.
        initial_state: the state before the first step; by default zeros of ``dtype``.
        dtype: of the state, where ``initial_state`` is not given.
        parallel_iterations: see the module.
        swap_memory: likewise.
        time_major: inputs and outputs are of shape ``[time, batch, ...]``, and are not transposed.
        scope: the variable scope; "rnn" by default.

    Returns:
        The outputs, of shape ``[batch, time, output_size]``, and the state after the last step.

    Raises:
        TypeError: ``cell`` is none.
        ValueError: there is neither a state nor a dtype; the size of the inputs is not known; lengths
            that are no vector.
        InvalidArgumentError: in the run: another number of lengths than sequences.
    """
    check_cell(cell)
    with variable_scope(scope or "rnn") as entered:
        del entered
        steps = map_structure(convert_to_tensor, inputs)
        if not time_major:
            steps = map_structure(swap_batch_and_time, steps)
        for x in nest.flatten(steps):
            if x.shape.ndims is None or x.shape.ndims < 2:
                raise ValueError(f"Inputs of an RNN are of rank 2 or more: batch and time. Got {x!r}.")
            if x.shape.ndims > 2 and x.shape[-1].value is None:
                raise ValueError(
                    "Input size (depth of inputs) must be accessible via shape inference, but saw "
                    f"value None: {x!r}"
                )
        batch = _batch_size(nest.flatten(steps))
        state = _initial_state(cell, initial_state, batch, dtype)
        lengths = None if sequence_length is None else _lengths(sequence_length, batch)
        outputs, last = _loop(cell, steps, state, lengths, batch)
        if not time_major:
            outputs = map_structure(swap_batch_and_time, outputs)
    return outputs, last


def _loop(cell: Any, steps: Any, state: Any, lengths: Any, batch: Any) -> tuple[Any, Any]:
    """Return the outputs by time, and the last state."""
    if lengths is None:

        def step(state: Any, x: Any) -> Any:
            output, after = cell(x, state)
            return _like(state, after), output

        last, outputs = scan_loop(step, state, steps, name="while")
        return outputs, last
    flat = nest.flatten(steps)
    time = flat[0].shape[0].value
    every = shape(flat[0])[0] if time is None else time
    bound = minimum(every, maximum(1, reduce_max(lengths)))  # later steps have nothing to do
    running = expand_dims(numbers(bound), 1) < expand_dims(lengths, 0)

    def masked(state: Any, element: Any) -> Any:
        now, x = element
        output, after = cell(x, state)
        return (
            map_structure(lambda new, old: _chosen(now, new, old), _like(state, after), state),
            map_structure(lambda y: _chosen(now, y, zeros_like(y)), output),
        )

    taken = map_structure(lambda x: x[:bound], steps)
    last, outputs = scan_loop(masked, state, (running, taken), bound, name="while")

    def padded(x: Tensor) -> Tensor:
        left = stack([every - bound, *unstack(shape(x))[1:]])
        whole = concat([x, zeros(left, x.dtype)], 0)
        whole.set_shape([time, *x.shape[1:].as_list()])
        return whole

    return map_structure(padded, outputs), last


def _like(state: Any, after: Any) -> Any:
    if not nest.same_structure(state, after):
        raise ValueError(f"The cell takes a state {state!r}, but returns another structure: {after!r}.")
    return nest.pack_like(state, nest.flatten(after))


def _chosen(running: Any, new: Any, old: Any) -> Tensor:
    """Return the rows of sequences that still run from ``new``, the others from ``old``."""
    value = convert_to_tensor(new)
    if value.shape.ndims == 0:
        return value
    found = where(running, value, old)
    found.set_shape(value.shape)
    return found


def check_cell(cell: Any) -> None:
    """Refuse what is no cell with a TypeError."""
    lacks = [name for name in ("output_size", "state_size") if not hasattr(type(cell), name)]
    lacks = [name for name in lacks if name not in getattr(cell, "__dict__", {})]
    if not callable(cell):
        lacks.append("__call__")
    if lacks:
        raise TypeError(
            f"The argument 'cell' ({cell!r}) is not an RNNCell: it has no {', '.join(lacks)}."
        )


def swap_batch_and_time(x: Tensor) -> Tensor:
    """Return a tensor with its first two dimensions exchanged; one of a lower rank as it is."""
    rank = x.shape.ndims
    if rank is None:
        raise ValueError(f"The rank of inputs must be known, got {x!r}.")
    return x if rank < 2 else transpose(x, [1, 0, *range(2, rank)])


def _batch_size(steps: Sequence[Tensor]) -> Any:
    sizes = [x.shape.as_list()[1] for x in steps]
    known = next((size for size in sizes if size is not None), None)
    return shape(steps[0])[1] if known is None else known


def _initial_state(cell: Any, given: Any, batch: Any, dtype: Any) -> Any:
    if given is not None:
        return map_structure(convert_to_tensor, given)
    if dtype is None:
        raise ValueError("If there is no initial_state, you must give a dtype.")
    initial = getattr(cell, "get_initial_state", None)
    if initial is not None:
        return initial(inputs=None, batch_size=batch, dtype=dtype)
    return cell.zero_state(batch, dtype)


def _lengths(sequence_length: Any, batch: Any) -> Tensor:
    lengths = cast(convert_to_tensor(sequence_length), int32)
    if lengths.shape.ndims not in (None, 1):
        raise ValueError(
            f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.shape}"
        )
    known = lengths.shape[0].value if lengths.shape.ndims else None
    if isinstance(batch, int) and known == batch:
        return lengths
    expected, found = stack([batch]), shape(lengths)
    text = f"Expected shape for Tensor {lengths.name} is "
    check = Assert(reduce_all(equal(found, expected)), [text, expected, " but saw shape: ", found])
    with control_dependencies([check]):
        return identity(lengths, "CheckSeqLen")


def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Scope = None,
) -> tuple[Any, Any]:
    """Run one cell over sequences and another one over them reversed.

    TF1: ``tf.nn.bidirectional_dynamic_rnn``. The variables lie in "bidirectional_rnn/fw" and "/bw".
    Each sequence is reversed within its length. Arguments and errors as :func:`dynamic_rnn`.

    Returns:
        The outputs of both, in the order of time, and the last states of both.
    """
    check_cell(cell_fw)
    check_cell(cell_bw)
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as forward:
            there = dynamic_rnn(
                cell_fw, inputs, sequence_length, initial_state_fw, dtype,
                time_major=time_major, scope=forward,
            )  # fmt: skip
        with variable_scope("bw") as backward:

            def turned(x: Any) -> Tensor:
                return reverse_steps(convert_to_tensor(x), sequence_length, int(not time_major))

            outputs, state = dynamic_rnn(
                cell_bw, map_structure(turned, inputs), sequence_length, initial_state_bw, dtype,
                time_major=time_major, scope=backward,
            )  # fmt: skip
        back = map_structure(turned, outputs)
    return (there[0], back), (there[1], state)


def reverse_steps(x: Tensor, lengths: Any, axis: int) -> Tensor:
    """Return sequences in reversed order, each within its length; ``axis``, 0 or 1, is that of time."""
    if lengths is None:
        return reverse(x, [axis])
    return reverse_sequence(x, lengths, axis, 1 - axis)


def static_rnn(
    cell: Any,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Scope = None,
) -> tuple[list[Any], Any]:
    """Run a cell over a list of inputs, one step of the graph after another. TF1: ``tf.nn.static_rnn``.

    Args:
        cell: as for :func:`dynamic_rnn`, as are the others.
        inputs: a list of tensors ``[batch, size]``, or of structures of them, one a step.
        initial_state: the state before the first step.
        dtype: of the state, where ``initial_state`` is not given.
        sequence_length: int vector ``[batch]``.
        scope: the variable scope; "rnn" by default.

    Returns:
        A list of the outputs, and the state after the last step.

    Raises:
        TypeError: ``cell`` is none, or ``inputs`` no list.
        ValueError: ``inputs`` is empty; there is neither a state nor a dtype.
    """
    check_cell(cell)
    if not isinstance(inputs, list | tuple):
        raise TypeError(f"inputs must be a sequence, got {inputs!r}.")
    if not inputs:
        raise ValueError("inputs must not be empty")
    outputs = []
    with variable_scope(scope or "rnn") as entered:
        steps = [map_structure(convert_to_tensor, x) for x in inputs]
        first = nest.flatten(steps[0])[0]
        batch = shape(first)[0] if first.shape[0].value is None else first.shape[0].value
        state = _initial_state(cell, initial_state, batch, dtype)
        lengths = None if sequence_length is None else _lengths(sequence_length, batch)
        for time, x in enumerate(steps):
            if time:
                entered.reuse_variables()
            output, after = cell(x, state)
            if lengths is not None:
                now = time < lengths
                after = map_structure(lambda a, b, now=now: _chosen(now, a, b), after, state)
                output = map_structure(lambda y, now=now: _chosen(now, y, zeros_like(y)), output)
            outputs.append(output)
            state = after
    return outputs, state


def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Scope = None,
) -> tuple[list[Any], Any, Any]:
    """Run one cell over a list of inputs and another one over it reversed.

    TF1: ``tf.nn.static_bidirectional_rnn``. Arguments and errors as :func:`static_rnn`.

    Returns:
        A list of the outputs of both, side by side; the last state of either.
    """
    check_cell(cell_fw)
    check_cell(cell_bw)
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as forward:
            there, state_fw = static_rnn(
                cell_fw, inputs, initial_state_fw, dtype, sequence_length, forward
            )
        with variable_scope("bw") as backward:
            turned = _reversed(inputs, sequence_length)
            found, state_bw = static_rnn(
                cell_bw, turned, initial_state_bw, dtype, sequence_length, backward
            )
        back = _reversed(found, sequence_length)
        pairs = zip(there, back, strict=True)
        outputs = [map_structure(lambda a, b: concat([a, b], 1), *pair) for pair in pairs]
    return outputs, state_fw, state_bw


def _reversed(steps: Sequence[Any], lengths: Any) -> list[Any]:
    if lengths is None:
        return list(reversed(steps))
    columns = zip(*[nest.flatten(x) for x in steps], strict=True)
    turned = [unstack(reverse_steps(stack(column), lengths, 0), len(steps)) for column in columns]
    return [nest.pack_like(steps[0], row) for row in zip(*turned, strict=True)]
