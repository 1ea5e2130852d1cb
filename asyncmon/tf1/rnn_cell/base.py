"""What all cells of recurrent networks are."""

from __future__ import annotations

from typing import Any, NamedTuple

from asyncmon.graph import (
    GraphKeys,
    Tensor,
    TensorShape,
    as_dtype,
    cast,
    convert_to_tensor,
    get_collection,
    get_variable_scope,
    int32,
    is_tensor,
    name_scope,
    shape,
    stack,
    variable_scope,
    zeros,
)
from asyncmon.graph.core import nest
from asyncmon.graph.layers import Layer


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM: the memory ``c`` and the output ``h``. TF1: same name."""

    c: Any
    h: Any

    @property
    def dtype(self) -> Any:
        """The dtype of both. TypeError where they differ."""
        if self.c.dtype != self.h.dtype:
            raise TypeError(f"Inconsistent internal state: {self.c.dtype} vs {self.h.dtype}")
        return self.c.dtype


class RNNCell(Layer):
    """One step of a recurrent network: ``output, new_state = cell(inputs, state)``. TF1: same name.

    A subclass has ``state_size``, ``output_size`` and ``call(inputs, state)``, which may use
    ``get_variable`` and layers: at the second call they share the variables of the first one. It may
    also replace ``__call__(inputs, state, scope=None)`` altogether.

    Args:
        trainable: whether optimizers find the variables.
        name: the variable scope; by default the name of the class, as "basic_lstm_cell".
        dtype: of the variables; by default that of the first inputs.
        **kwargs: as for :class:`asyncmon.graph.layers.Layer`.

    Example::

        class Decay(tf.nn.rnn_cell.RNNCell):
            state_size = output_size = 8

            def call(self, inputs, state):
                rate = tf.get_variable("rate", [8])
                new = state * tf.sigmoid(rate) + inputs
                return new, new
    """

    def __call__(  # type: ignore[override]  # a cell always has a state
        self, inputs: Any, state: Any, scope: Any = None, **kwargs: Any
    ) -> Any:
        """Run the cell on inputs of shape ``[batch, depth]`` and a state of ``state_size``.

        ``scope`` is a variable scope, or its name, that stands for the cell's own at the first call.

        Returns:
            The output, of shape ``[batch, output_size]``, and the new state.
        """
        around = get_variable_scope() if scope is None else scope
        with variable_scope(around, custom_getter=self._noted) as entered:
            given = {} if scope is None else {"scope": entered}
            return super().__call__(inputs, state, **given, **kwargs)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the output and the new state, for inputs and a state. A subclass has its own."""
        raise NotImplementedError(f"{type(self).__name__} has neither call() nor __call__().")

    def _noted(self, getter: Any, *args: Any, **kwargs: Any) -> Any:
        variable = getter(*args, **kwargs)
        trained = any(variable is v for v in get_collection(GraphKeys.TRAINABLE_VARIABLES))
        known = self._trained if trained else self._kept
        if not any(variable is v for v in known):
            known.append(variable)
        return variable

    @property
    def state_size(self) -> Any:
        """The size of the state: an int, a shape, or a structure of them."""
        raise NotImplementedError(f"{type(self).__name__} has no state_size.")

    @property
    def output_size(self) -> Any:
        """The size of the output: an int or a shape."""
        raise NotImplementedError(f"{type(self).__name__} has no output_size.")

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return a state of zeros, of shape ``[batch_size, size]`` for each size. TF1: same name.

        Args:
            batch_size: an int, or an int scalar tensor.
            dtype: of the state, or a structure of dtypes.
        """
        with name_scope(f"{type(self).__name__}ZeroState"):
            return zero_state(self.state_size, batch_size, dtype)

    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """Return :meth:`zero_state` for the batch and dtype of ``inputs``. TF1: same name.

        Raises:
            ValueError: ``batch_size`` or ``dtype`` is not what ``inputs`` says, or neither says it.
        """
        if inputs is not None:
            x = convert_to_tensor(inputs)
            known = x.shape[0].value
            if is_tensor(batch_size) or batch_size is None or known is None:
                batch_size = known or (shape(x)[0] if batch_size is None else batch_size)
            elif batch_size != known:
                raise ValueError(
                    f"batch size from input tensor is {known}, but batch_size={batch_size}"
                )
            if dtype is not None and as_dtype(dtype) is not x.dtype:
                raise ValueError(f"dtype from input tensor is {x.dtype.name}, but dtype={dtype}")
            dtype = x.dtype
        if batch_size is None or dtype is None:
            raise ValueError(
                "batch_size and dtype cannot be None while constructing initial state: "
                f"batch_size={batch_size}, dtype={dtype}"
            )
        return self.zero_state(batch_size, dtype)


class LayerRNNCell(RNNCell):
    """A cell whose variables are made in :meth:`build`. TF1: ``tf.contrib.rnn.LayerRNNCell``."""

    def __call__(  # type: ignore[override]  # a cell always has a state
        self, inputs: Any, state: Any, scope: Any = None, **kwargs: Any
    ) -> Any:
        """Run the cell: see :class:`RNNCell`."""
        return Layer.__call__(self, inputs, state, scope=scope, **kwargs)


def dims_of(size: Any) -> list[int]:
    """Return the dimensions of a size."""
    dims = TensorShape(size if isinstance(size, TensorShape) else [size]).as_list()
    return [int(d) for d in dims if d is not None]


def zero_state(sizes: Any, batch_size: Any, dtype: Any) -> Any:
    """Return zeros for a structure of sizes; ``dtype`` may be a structure, too."""
    listed = nest.flatten(sizes)
    kinds = nest.flatten(dtype) if isinstance(dtype, list | tuple | dict) else [dtype] * len(listed)
    return nest.pack_like(
        sizes, [_zeros(*pair, batch_size) for pair in zip(listed, kinds, strict=True)]
    )


def _zeros(size: Any, dtype: Any, batch_size: Any) -> Tensor:
    dims = dims_of(size)
    if not is_tensor(batch_size):
        return zeros([int(batch_size), *dims], dtype)
    return zeros(stack([cast(batch_size, int32), *dims]), dtype)


def check_depth(inputs_shape: TensorShape) -> int:
    """Return the last dimension of the inputs. ValueError where it is not known."""
    inputs_shape = TensorShape(inputs_shape)
    depth = inputs_shape[-1].value if inputs_shape.ndims else None
    if depth is None:
        raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {inputs_shape}")
    return int(depth)
