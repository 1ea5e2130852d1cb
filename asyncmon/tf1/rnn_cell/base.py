"""What all cells of recurrent networks are."""

from __future__ import annotations

from typing import Any, NamedTuple

from asyncmon import graph as tf
from asyncmon.graph.core import nest
from asyncmon.graph.layers import Layer


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM: the memory ``c`` and the output ``h``. TF1: same name."""

    c: Any
    h: Any

    @property
    def dtype(self) -> Any:
        """That of the memory."""
        return self.c.dtype


class RNNCell(Layer):
    """One step of a recurrent network: ``output, new_state = cell(inputs, state)``. TF1: same name.

    A subclass has ``state_size``, ``output_size`` and ``call(inputs, state)``, which may use
    ``get_variable`` and layers: at the second call they share the variables of the first one. It may
    also replace ``__call__(inputs, state, scope=None)`` altogether.

    The arguments are those of :class:`asyncmon.graph.layers.Layer`.

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
        around = tf.get_variable_scope() if scope is None else scope
        with tf.variable_scope(around, custom_getter=self._noted) as entered:
            given = {} if scope is None else {"scope": entered}
            return super().__call__(inputs, state, **given, **kwargs)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the output and the new state, for inputs and a state. A subclass has its own."""
        raise NotImplementedError(f"{type(self).__name__} has neither call() nor __call__().")

    def _noted(self, getter: Any, *args: Any, **kwargs: Any) -> Any:
        variable = getter(*args, **kwargs)
        trained = any(variable is v for v in tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES))
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

        ``batch_size`` is an int, or an int scalar tensor; ``dtype`` may be a structure of dtypes.
        """
        with tf.name_scope(f"{type(self).__name__}ZeroState"):
            sizes = self.state_size
            listed, many = nest.flatten(sizes), isinstance(dtype, list | tuple | dict)
            kinds = nest.flatten(dtype) if many else [dtype] * len(listed)
            zeros = [_zeros(*pair, batch_size) for pair in zip(listed, kinds, strict=True)]
            return nest.pack_like(sizes, zeros)


class LayerRNNCell(RNNCell):
    """A cell whose variables are made in :meth:`build`. TF1: ``tf.contrib.rnn.LayerRNNCell``."""

    def __call__(  # type: ignore[override]  # a cell always has a state
        self, inputs: Any, state: Any, scope: Any = None, **kwargs: Any
    ) -> Any:
        """Run the cell: see :class:`RNNCell`."""
        return Layer.__call__(self, inputs, state, scope=scope, **kwargs)


def dims_of(size: Any) -> list[int]:
    """Return the dimensions of a size."""
    dims = tf.TensorShape(size if isinstance(size, tf.TensorShape) else [size]).as_list()
    return [int(d) for d in dims if d is not None]


def _zeros(size: Any, dtype: Any, batch_size: Any) -> tf.Tensor:
    dims = dims_of(size)
    if not tf.is_tensor(batch_size):
        return tf.zeros([int(batch_size), *dims], dtype)
    return tf.zeros(tf.stack([tf.cast(batch_size, tf.int32), *dims]), dtype)


def check_depth(inputs_shape: Any) -> int:
    """Return the last dimension of the inputs. ValueError where it is not known."""
    depth = tf.TensorShape(inputs_shape)[-1].value
    if depth is None:
        raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {inputs_shape}")
    return int(depth)
