"""Recurrent networks: a cell run over time. TF1: ``tf.nn.dynamic_rnn`` and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from asyncmon import graph as tf
from asyncmon.graph.core import nest
from asyncmon.tf1.ops.sequences import reverse_sequence
from asyncmon.tf1.scan_loop import scan_loop
from asyncmon.tf1.structures import map_structure

__all__ = ["bidirectional_dynamic_rnn", "dynamic_rnn", "static_bidirectional_rnn", "static_rnn"]

Scope = str | tf.VariableScope | None


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
    """Run a cell over sequences, in a loop of the graph. TF1: ``tf.nn.dynamic_rnn``.

    Args:
        cell: a cell of :mod:`asyncmon.tf1.rnn_cell`, or a callable with the same members.
        inputs: a tensor ``[batch, time, ...]`` with a known last size, or a structure of such tensors.
        sequence_length: int vector ``[batch]``. After the end of a sequence its outputs are zeros and
            its state does not change.
        initial_state: by default zeros of ``dtype``.
        dtype: of the state; required without ``initial_state``.
        parallel_iterations: no effect, as ``swap_memory``: steps run one after another.
        time_major: the shape of inputs and outputs is ``[time, batch, ...]``.
        scope: the variable scope; "rnn" by default.

    Returns:
        The outputs, of shape ``[batch, time, output_size]``, and the final state.

    Raises:
        TypeError: ``cell`` is no cell.
        ValueError: neither a state nor a dtype is given, the size of the inputs is unknown, or
            ``sequence_length`` is no vector. The run raises InvalidArgumentError if its size is not
            the number of sequences.
    """
    _check_cell(cell)
    with tf.variable_scope(scope or "rnn"):
        steps = map_structure(tf.convert_to_tensor, inputs)
        if not time_major:
            steps = map_structure(_swapped, steps)
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
            outputs = map_structure(_swapped, outputs)
    return outputs, last


def _loop(cell: Any, steps: Any, state: Any, lengths: Any, batch: Any) -> tuple[Any, Any]:
    """Return the outputs by time, and the final state."""
    if lengths is None:
        last, outputs = scan_loop(lambda *now: _step(cell, *now), state, steps, name="while")
        return outputs, last
    flat = nest.flatten(steps)
    time = flat[0].shape[0].value
    every = tf.shape(flat[0])[0] if time is None else time
    bound = tf.minimum(every, tf.maximum(1, tf.reduce_max(lengths)))  # later steps would change nothing
    running = tf.expand_dims(tf.range(bound), 1) < tf.expand_dims(lengths, 0)
    taken = map_structure(lambda x: x[:bound], steps)
    last, outputs = scan_loop(
        lambda state, now: _step(cell, state, now[1], now[0]), state, (running, taken), bound,
        name="while",
    )  # fmt: skip

    def padded(x: tf.Tensor) -> tf.Tensor:
        left = tf.stack([every - bound, *tf.unstack(tf.shape(x))[1:]])
        whole = tf.concat([x, tf.zeros(left, x.dtype)], 0)
        whole.set_shape([time, *x.shape[1:].as_list()])
        return whole

    return map_structure(padded, outputs), last


def _step(cell: Any, state: Any, x: Any, running: Any = None) -> tuple[Any, Any]:
    """Return state and output; for sequences that have ended, the old state and zeros."""
    output, after = cell(x, state)
    if not nest.same_structure(state, after):
        raise ValueError(f"The cell takes a state {state!r}, but returns another structure: {after!r}.")
    after = nest.pack_like(state, nest.flatten(after))
    if running is None:
        return after, output

    def chosen(new: Any, old: Any) -> tf.Tensor:
        value = tf.convert_to_tensor(new)
        if value.shape.ndims == 0:
            return value
        found = tf.where(running, value, old)
        found.set_shape(value.shape)
        return found

    return (
        map_structure(chosen, after, state),
        map_structure(lambda y: chosen(y, tf.zeros_like(y)), output),
    )


def _check_cell(cell: Any) -> None:
    """Raise TypeError for an object that is no cell."""
    own = getattr(cell, "__dict__", {})
    needed = ("output_size", "state_size", "__call__")
    if lacks := [name for name in needed if not hasattr(type(cell), name) and name not in own]:
        raise TypeError(
            f"The argument 'cell' ({cell!r}) is not an RNNCell: it has no {', '.join(lacks)}."
        )


def _swapped(x: tf.Tensor) -> tf.Tensor:
    """Return a tensor with its first two dimensions exchanged, if it has two."""
    rank = x.shape.ndims
    if rank is None:
        raise ValueError(f"The rank of inputs must be known, got {x!r}.")
    return x if rank < 2 else tf.transpose(x, [1, 0, *range(2, rank)])


def _batch_size(steps: Sequence[tf.Tensor]) -> Any:
    sizes = [x.shape.as_list()[1] for x in steps]
    known = next((size for size in sizes if size is not None), None)
    return tf.shape(steps[0])[1] if known is None else known


def _initial_state(cell: Any, given: Any, batch: Any, dtype: Any) -> Any:
    if given is not None:
        return map_structure(tf.convert_to_tensor, given)
    if dtype is None:
        raise ValueError("If there is no initial_state, you must give a dtype.")
    return cell.zero_state(batch, dtype)


def _lengths(sequence_length: Any, batch: Any) -> tf.Tensor:
    lengths = tf.cast(tf.convert_to_tensor(sequence_length), tf.int32)
    if lengths.shape.ndims not in (None, 1):
        raise ValueError(
            f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.shape}"
        )
    known = lengths.shape[0].value if lengths.shape.ndims else None
    if isinstance(batch, int) and known == batch:
        return lengths
    expected, found = tf.stack([batch]), tf.shape(lengths)
    text = f"Expected shape for Tensor {lengths.name} is "
    check = tf.Assert(
        tf.reduce_all(tf.equal(found, expected)), [text, expected, " but saw shape: ", found]
    )
    with tf.control_dependencies([check]):
        return tf.identity(lengths, "CheckSeqLen")


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
    """Run one cell over sequences and another one over the reversed sequences.

    TF1: ``tf.nn.bidirectional_dynamic_rnn``. The variable scopes are "bidirectional_rnn/fw" and "/bw".
    Each sequence is reversed within its length. Arguments and errors as in :func:`dynamic_rnn`.

    Returns:
        The outputs of both cells, in order of time, and their final states.
    """

    def turned(steps: Any) -> Any:
        return map_structure(backward, steps)

    def backward(x: Any) -> tf.Tensor:
        x, axis = tf.convert_to_tensor(x), int(not time_major)
        if sequence_length is None:
            return tf.reverse(x, [axis])
        return reverse_sequence(x, sequence_length, axis, 1 - axis)

    run = partial(dynamic_rnn, sequence_length=sequence_length, dtype=dtype, time_major=time_major)
    cells = (cell_fw, initial_state_fw), (cell_bw, initial_state_bw)
    there, back, states = _both_ways(run, cells, inputs, turned, scope)
    return (there, back), states


def _both_ways(run: Any, cells: Any, inputs: Any, turned: Any, scope: Scope) -> tuple[Any, Any, Any]:
    """Run one cell over the inputs and another one over the reversed inputs."""
    for cell, _ in cells:
        _check_cell(cell)
    found: list[Any] = []
    with tf.variable_scope(scope or "bidirectional_rnn"):
        for part, (cell, state) in zip(("fw", "bw"), cells, strict=True):
            with tf.variable_scope(part) as inside:
                steps = turned(inputs) if found else inputs
                found.append(run(cell, steps, initial_state=state, scope=inside))
    (there, first), (back, last) = found
    return there, turned(back), (first, last)


def static_rnn(
    cell: Any,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Scope = None,
) -> tuple[list[Any], Any]:
    """Run a cell over a list of inputs, unrolled in the graph. TF1: ``tf.nn.static_rnn``.

    Arguments and errors as in :func:`dynamic_rnn`, except ``inputs``: a list with a tensor
    ``[batch, size]``, or a structure of them, for each step. TypeError for another type, ValueError for
    an empty list.

    Returns:
        A list of the outputs, and the final state.
    """
    _check_cell(cell)
    if not isinstance(inputs, list | tuple):
        raise TypeError(f"inputs must be a sequence, got {inputs!r}.")
    if not inputs:
        raise ValueError("inputs must not be empty")
    outputs = []
    with tf.variable_scope(scope or "rnn") as entered:
        steps = [map_structure(tf.convert_to_tensor, x) for x in inputs]
        first = nest.flatten(steps[0])[0]
        batch = tf.shape(first)[0] if first.shape[0].value is None else first.shape[0].value
        state = _initial_state(cell, initial_state, batch, dtype)
        lengths = None if sequence_length is None else _lengths(sequence_length, batch)
        for time, x in enumerate(steps):
            if time:
                entered.reuse_variables()
            now = None if lengths is None else time < lengths
            state, output = _step(cell, state, x, now)
            outputs.append(output)
    return outputs, state


# fmt: off
def static_bidirectional_rnn(
    cell_fw: Any, cell_bw: Any, inputs: Any, initial_state_fw: Any = None,
    initial_state_bw: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Scope = None,
) -> tuple[list[Any], Any, Any]:
    """Run one cell over a list of inputs and another one over the reversed list. TF1: same name.

    Returns the outputs of both cells, joined along the last dimension, and their final states.
    Arguments and errors as in :func:`static_rnn` and :func:`bidirectional_dynamic_rnn`.
    """
    def turned(steps: Sequence[Any]) -> list[Any]:
        if sequence_length is None:
            return list(reversed(steps))
        parts = [
            tf.unstack(reverse_sequence(tf.stack(list(part)), sequence_length, 0, 1))
            for part in zip(*map(nest.flatten, steps), strict=True)
        ]
        return [nest.pack_like(steps[0], leaves) for leaves in zip(*parts, strict=True)]

    run = partial(static_rnn, dtype=dtype, sequence_length=sequence_length)
    cells = (cell_fw, initial_state_fw), (cell_bw, initial_state_bw)
    there, back, states = _both_ways(run, cells, inputs, turned, scope)
    pairs = zip(there, back, strict=True)
    joined = [map_structure(lambda *two: tf.concat(two, 1), x, y) for x, y in pairs]
    return joined, *states
# fmt: on
