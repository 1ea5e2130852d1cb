"""TF1: ``tf.contrib.rnn``: the cells and networks that moved to ``tf.nn``, and stacks of directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph import concat, variable_scope
from asyncmon.missing_names import missing_name
from asyncmon.tf1.rnn import bidirectional_dynamic_rnn
from asyncmon.tf1.rnn import static_bidirectional_rnn as static_bidirectional_rnn
from asyncmon.tf1.rnn import static_rnn as static_rnn
from asyncmon.tf1.rnn_cell import BasicLSTMCell as BasicLSTMCell
from asyncmon.tf1.rnn_cell import BasicRNNCell as BasicRNNCell
from asyncmon.tf1.rnn_cell import DeviceWrapper as DeviceWrapper
from asyncmon.tf1.rnn_cell import DropoutWrapper as DropoutWrapper
from asyncmon.tf1.rnn_cell import GRUCell as GRUCell
from asyncmon.tf1.rnn_cell import LayerRNNCell as LayerRNNCell
from asyncmon.tf1.rnn_cell import LSTMCell as LSTMCell
from asyncmon.tf1.rnn_cell import LSTMStateTuple as LSTMStateTuple
from asyncmon.tf1.rnn_cell import MultiRNNCell as MultiRNNCell
from asyncmon.tf1.rnn_cell import ResidualWrapper as ResidualWrapper
from asyncmon.tf1.rnn_cell import RNNCell as RNNCell

if TYPE_CHECKING:
    from collections.abc import Sequence


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, Any, Any]:
    """Run layers of both directions on top of each other. TF1: same name.

    The inputs of a layer are the outputs of both directions of the one below, side by side. Arguments
    are those of :func:`asyncmon.tf1.nn.bidirectional_dynamic_rnn`, with a list of cells, and of initial
    states, for each direction.

    Returns:
        The outputs of the last layer, side by side; a tuple of the layers' last states each way.

    Raises:
        ValueError: the lists are empty, or differ in length.
    """
    for cells in (cells_fw, cells_bw):
        if not isinstance(cells, list | tuple) or not cells:
            raise ValueError(f"A list of cells is needed for each direction, got {cells!r}.")
    if len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must have the same depth.")
    for states in (initial_states_fw, initial_states_bw):
        if states is not None and len(states) != len(cells_fw):
            raise ValueError(f"An initial state is needed for each of the cells, got {states!r}.")
    ends: list[tuple[Any, Any]] = []
    with variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (forward, backward) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            starts = [given and given[i] for given in (initial_states_fw, initial_states_bw)]
            with variable_scope(f"cell_{i}"):
                outputs, last = bidirectional_dynamic_rnn(
                    forward, backward, inputs, sequence_length, starts[0], starts[1], dtype,
                    time_major=time_major,
                )  # fmt: skip
            inputs = concat(outputs, 2)
            ends.append(last)
    return inputs, tuple(there for there, _ in ends), tuple(back for _, back in ends)


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "contrib.rnn.", globals())
