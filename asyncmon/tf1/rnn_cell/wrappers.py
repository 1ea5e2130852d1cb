"""Cells made of other cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import md5
from operator import attrgetter
from typing import Any

from asyncmon import graph as tf
from asyncmon.graph.core.nest import flatten, pack_like
from asyncmon.tf1.rnn_cell.cells import LSTMStateTuple, RNNCell, dims_of
from asyncmon.tf1.structures import map_structure

__all__ = ["DropoutWrapper", "MultiRNNCell", "ResidualWrapper"]


class MultiRNNCell(RNNCell):
    """A stack of cells: the output of each is the input of the next. TF1: same name.

    The variable scopes are ``multi_rnn_cell/cell_0``, ``.../cell_1``, and so on. The state is a tuple
    of the cells' states, or their concatenation if ``state_is_tuple`` is false.

    Raises:
        TypeError: ``cells`` is no list.
        ValueError: the list is empty; ``state_is_tuple`` is false, and a cell's state is a tuple.
    """

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True) -> None:
        super().__init__()
        if not isinstance(cells, list | tuple):
            raise TypeError(f"cells must be a list or tuple, but saw: {cells!r}.")
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        self._cells = list(cells)
        self._state_is_tuple = state_is_tuple
        sizes = [cell.state_size for cell in cells]
        if not state_is_tuple and any(isinstance(x, list | tuple | dict) for x in sizes):
            raise ValueError(
                "Some cells return tuples of states, but the flag state_is_tuple is not set. "
                f"State sizes are: {sizes}"
            )

    @property
    def state_size(self) -> Any:
        """The sizes of the cells' states: a tuple, or their sum."""
        sizes = tuple(cell.state_size for cell in self._cells)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        """The output size of the last cell."""
        return self._cells[-1].output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the zero states of the cells: see :meth:`RNNCell.zero_state`."""
        with tf.name_scope(f"{type(self).__name__}ZeroState"):
            if self._state_is_tuple:
                return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)
        return super().zero_state(batch_size, dtype)

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the output of the last cell, and the new states of all cells."""
        if self._state_is_tuple and len(state) != len(self._cells):
            raise ValueError(
                f"Expected state to be a tuple of length {len(self._cells)}, but received: {state!r}"
            )
        sizes = [cell.state_size for cell in self._cells]
        states = state if self._state_is_tuple else tf.split(tf.convert_to_tensor(state), sizes, 1)
        after = []
        for i, (cell, own) in enumerate(zip(self._cells, states, strict=True)):
            with tf.variable_scope(f"cell_{i}"):
                inputs, new = cell(inputs, own)
            after.append(new)
        return inputs, tuple(after) if self._state_is_tuple else tf.concat(after, 1)


class _Wrapper(RNNCell):
    """The base class of cells that change what one other cell takes or returns."""

    def __init__(self, cell: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not callable(cell) or not hasattr(cell, "state_size"):
            raise TypeError(f"The parameter cell is not a RNNCell: {cell!r}.")
        self._cell = cell

    wrapped_cell = property(attrgetter("_cell"), doc="The wrapped cell.")
    state_size = property(attrgetter("_cell.state_size"), doc="That of the wrapped cell.")
    output_size = property(attrgetter("_cell.output_size"), doc="That of the wrapped cell.")
    trainable_variables = property(attrgetter("_cell.trainable_variables"), doc="Those of the cell.")
    non_trainable_variables = property(
        attrgetter("_cell.non_trainable_variables"), doc="Those of the cell."
    )
    trainable_weights, non_trainable_weights = trainable_variables, non_trainable_variables

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the zero state of the wrapped cell."""
        with tf.name_scope(f"{type(self).__name__}ZeroState"):
            return self._cell.zero_state(batch_size, dtype)

    def __call__(  # type: ignore[override]  # a cell always has a state
        self, inputs: Any, state: Any, scope: Any = None, **kwargs: Any
    ) -> Any:
        """Run the wrapped cell, in its own variable scope."""
        if scope is not None:
            kwargs["scope"] = scope
        return self.call(inputs, state, **kwargs)


class DropoutWrapper(_Wrapper):
    """Dropout of a cell's inputs, outputs and state. TF1: same name.

    Args:
        input_keep_prob: the probability to keep an element of the inputs; a float or a scalar tensor.
        output_keep_prob: likewise for the outputs.
        state_keep_prob: likewise for the new state, without the memory of an LSTM.
        variational_recurrent: drop the same elements at each step of a run.
        input_size: the size of the inputs; required for ``variational_recurrent`` and
            ``input_keep_prob``.
        dtype: of inputs, state and outputs; required for ``variational_recurrent``.
        seed: the seed from which those of inputs, states and outputs are derived.
        dropout_state_filter_visitor: called with a part of the state; returns whether to drop elements
            of it, as a bool or a structure of bools.

    Raises:
        TypeError: ``cell`` is no cell.
        ValueError: a probability is not in [0, 1], or an argument required for
            ``variational_recurrent`` is missing.
    """

    def __init__(
        self,
        cell: Any,
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: Any = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cell, dtype=dtype, **kwargs)
        if dropout_state_filter_visitor is not None and not callable(dropout_state_filter_visitor):
            raise TypeError("dropout_state_filter_visitor must be callable")
        self._filter = dropout_state_filter_visitor or _but_memory
        self._seed = seed
        self._keep = {
            "input": _probability("input_keep_prob", input_keep_prob),
            "state": _probability("state_keep_prob", state_keep_prob),
            "output": _probability("output_keep_prob", output_keep_prob),
        }
        self._noise: dict[str, list[Any]] = {}
        if not variational_recurrent:
            return
        if dtype is None:
            raise ValueError("When variational_recurrent=True, dtype must be provided")
        if input_size is None and self._drops("input"):
            raise ValueError(
                "When variational_recurrent=True and input_keep_prob < 1.0 or is unknown, "
                "input_size must be provided"
            )
        sizes = {"input": input_size, "state": cell.state_size, "output": cell.output_size}
        for part, size in sizes.items():
            if size is not None:
                self._noise[part] = [
                    tf.random_uniform(
                        [1, *dims_of(one)], dtype=tf.as_dtype(dtype), seed=self._seed_of(part, i)
                    )
                    for i, one in enumerate(flatten(size))
                ]

    def _drops(self, part: str) -> bool:
        keep = self._keep[part]
        return not isinstance(keep, float) or keep < 1

    def _seed_of(self, part: str, index: int) -> int | None:
        if self._seed is None:
            return None
        text = f"{self._seed}{part}_{index}"
        return int(md5(text.encode(), usedforsecurity=False).hexdigest()[:8], 16) & 0x7FFFFFFF

    def call(self, inputs: Any, state: Any, **kwargs: Any) -> Any:
        """Run the wrapped cell on the inputs with dropout, and apply dropout to its results."""
        output, after = self._cell(self._dropped("input", inputs), state, **kwargs)
        return self._dropped("output", output), self._dropped("state", after, self._filter)

    def _dropped(self, part: str, values: Any, choose: Callable[[Any], Any] = lambda _: True) -> Any:
        """Apply dropout to the chosen leaves of a structure."""
        if not self._drops(part):
            return values
        pairs = zip(flatten(values), _chosen(choose, values), strict=True)
        left = [self._drop(part, i, x) if yes else x for i, (x, yes) in enumerate(pairs)]
        return pack_like(values, left)

    def _drop(self, part: str, index: int, value: Any) -> tf.Tensor:
        keep = self._keep[part]
        if part not in self._noise:
            return tf.nn.dropout(value, keep_prob=keep, seed=self._seed_of(part, index))
        kept: tf.Tensor = value / keep * tf.floor(self._noise[part][index] + keep)
        return kept


def _chosen(choose: Callable[[Any], Any], value: Any) -> list[Any]:
    """Return for each leaf whether a filter chooses it. The filter is called for chosen parts, too."""
    wanted = choose(value)
    if isinstance(wanted, list | tuple | dict):
        return flatten(wanted)
    if not wanted or not isinstance(value, list | tuple | dict):
        return [bool(wanted)] * len(flatten(value))
    parts = [value[key] for key in sorted(value)] if isinstance(value, dict) else value
    return [yes for part in parts for yes in _chosen(choose, part)]


def _but_memory(state: Any) -> Any:
    return LSTMStateTuple(False, True) if isinstance(state, LSTMStateTuple) else True


def _probability(name: str, value: Any) -> Any:
    if tf.is_tensor_like(value):
        return value
    number = float(value)
    if not 0 <= number <= 1:
        raise ValueError(f"Parameter {name} must be between 0 and 1: {number}")
    return number


class ResidualWrapper(_Wrapper):
    """Adds a cell's inputs to its outputs. TF1: same name.

    ``residual_fn(inputs, outputs)`` returns the result; by default the sum of two equal structures.
    """

    def __init__(self, cell: Any, residual_fn: Callable[..., Any] | None = None, **kwargs: Any) -> None:
        super().__init__(cell, **kwargs)
        self._combine = residual_fn or (lambda x, y: map_structure(tf.add, x, y))

    def call(self, inputs: Any, state: Any, **kwargs: Any) -> Any:
        """Return the combined outputs, and the cell's new state."""
        outputs, after = self._cell(inputs, state, **kwargs)
        return self._combine(inputs, outputs), after
