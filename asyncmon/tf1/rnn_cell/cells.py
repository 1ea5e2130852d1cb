"""The base class of cells, and the basic cell, LSTM and GRU.

Common arguments:

* ``num_units``: the size of the state and the output; for an LSTM, of the memory.
* ``activation``: tanh by default; a function, or its name in ``tf.nn``.
* ``reuse``: share the variables of an earlier cell of the same name.
* ``name``: the variable scope; by default the class's name, as ``basic_rnn_cell``.
* ``dtype``: of the variables; by default that of the inputs.
* ``**kwargs``: ``trainable``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from asyncmon import graph as tf
from asyncmon.graph.core import nest
from asyncmon.graph.layers import Layer

__all__ = [
    "BasicLSTMCell", "BasicRNNCell", "GRUCell", "LSTMCell", "LSTMStateTuple", "LayerRNNCell",
    "RNNCell",
]  # fmt: skip

_log = logging.getLogger(__name__)


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM: the memory ``c`` and the output ``h``. TF1: same name."""

    c: Any
    h: Any

    @property
    def dtype(self) -> Any:
        """The dtype of the memory."""
        return self.c.dtype


class RNNCell(Layer):
    """One step of a recurrent network: ``output, new_state = cell(inputs, state)``. TF1: same name.

    A subclass has ``state_size``, ``output_size`` and ``call(inputs, state)``, which may use
    ``get_variable`` and layers: later calls share the variables of the first one. It may also override
    ``__call__(inputs, state, scope=None)``.

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

        ``scope`` is a variable scope, or its name, to use at the first call instead of the cell's own.

        Returns:
            The output, of shape ``[batch, output_size]``, and the new state.
        """
        around = tf.get_variable_scope() if scope is None else scope
        with tf.variable_scope(around, custom_getter=self._noted) as entered:
            given = {} if scope is None else {"scope": entered}
            return super().__call__(inputs, state, **given, **kwargs)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the output and the new state. A subclass overrides it."""
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
        """Return a state of zeros, ``[batch_size, size]`` for each size. TF1: same name.

        ``batch_size`` is an int or an int scalar tensor; ``dtype`` may be a structure of dtypes.
        """
        with tf.name_scope(f"{type(self).__name__}ZeroState"):
            sizes = self.state_size
            listed, many = nest.flatten(sizes), isinstance(dtype, list | tuple | dict)
            kinds = nest.flatten(dtype) if many else [dtype] * len(listed)
            zeros = [_zeros(*pair, batch_size) for pair in zip(listed, kinds, strict=True)]
            return nest.pack_like(sizes, zeros)


class LayerRNNCell(RNNCell):
    """A cell that creates its variables in :meth:`build`. TF1: ``tf.contrib.rnn.LayerRNNCell``."""

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
    if not tf.is_tensor_like(batch_size):
        return tf.zeros([int(batch_size), *dims], dtype)
    return tf.zeros(tf.stack([tf.cast(batch_size, tf.int32), *dims]), dtype)


def _depth(inputs_shape: Any) -> int:
    """Return the last dimension of the inputs. ValueError if it is unknown."""
    depth = tf.TensorShape(inputs_shape)[-1].value
    if depth is None:
        raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {inputs_shape}")
    return int(depth)


def _activation(given: Any) -> Callable[[Any], tf.Tensor]:
    """Return an activation function, given as such or by its name in ``tf.nn``, or the default."""
    if isinstance(given, str):
        found = getattr(tf.nn, given, None)
        if found is None:
            raise ValueError(
                f"Unknown activation function: {given!r}. Use a function, or its tf.nn name."
            )
        return found  # type: ignore[no-any-return]  # a function of a tensor
    return given or tf.tanh


def _affine(x: Any, state: Any, kernel: Any, bias: Any) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(tf.concat([x, state], 1), kernel), bias)


class _Cell(LayerRNNCell):
    def __init__(
        self,
        num_units: int,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype, _reuse=reuse, **kwargs)
        self._num_units = num_units
        self._activation = _activation(activation)

    @property
    def state_size(self) -> Any:
        """``num_units``."""
        return self._num_units

    output_size = state_size


class BasicRNNCell(_Cell):
    """``output = new_state = activation([inputs, state] @ kernel + bias)``. TF1: same name."""

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create ``kernel`` and ``bias``."""
        rows = _depth(input_shape) + self._num_units
        self._kernel = self.add_variable("kernel", [rows, self._num_units])
        self._bias = self.add_variable("bias", [self._num_units], initializer=tf.zeros_initializer())
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the output and the new state, which are the same."""
        output = self._activation(_affine(inputs, state, self._kernel, self._bias))
        return output, output


class GRUCell(_Cell):
    """A gated recurrent unit. TF1: same name.

    ``r, u = sigmoid([inputs, state] @ gates/kernel + gates/bias)``,
    ``c = activation([inputs, r * state] @ candidate/kernel + candidate/bias)``,
    ``output = new_state = u * state + (1 - u) * c``.

    The initializers are for both kernels and for both biases. By default the bias of the gates is 1,
    that of the candidate 0.
    """

    def __init__(
        self,
        num_units: int,
        activation: Any = None,
        reuse: Any = None,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype, **kwargs)
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer
        self._weights: dict[str, tuple[Any, Any]] = {}

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the kernels and biases of the gates and the candidate."""
        units, start = self._num_units, self._bias_initializer
        rows = _depth(input_shape) + units
        for part, n, bias in (("gates", 2 * units, 1.0), ("candidate", units, 0.0)):
            kernel = self.add_variable(
                f"{part}/kernel", [rows, n], initializer=self._kernel_initializer
            )
            first = tf.constant_initializer(bias) if start is None else start
            self._weights[part] = kernel, self.add_variable(f"{part}/bias", [n], initializer=first)
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the output and the new state, which are the same."""
        reset, update = tf.split(tf.sigmoid(_affine(inputs, state, *self._weights["gates"])), 2, 1)
        candidate = self._activation(_affine(inputs, reset * state, *self._weights["candidate"]))
        output = update * state + (1 - update) * candidate
        return output, output


class LSTMCell(_Cell):
    """A long short-term memory, with peepholes, clipping and a projection. TF1: same name.

    ``i, j, f, o = split([inputs, h] @ kernel + bias)``,
    ``c = sigmoid(f + forget_bias) * c + sigmoid(i) * activation(j)``,
    ``h = sigmoid(o) * activation(c)``.

    Args:
        use_peepholes: add the memory times ``w_f_diag``, ``w_i_diag``, ``w_o_diag`` to the gates.
        cell_clip: clip the memory to this absolute value.
        initializer: of the kernels and the peepholes.
        num_proj: project the output to this size by ``projection/kernel``.
        proj_clip: clip the projection to this absolute value.
        num_unit_shards: the number of parts of the kernel, see :func:`fixed_size_partitioner`.
        num_proj_shards: the number of parts of the projection.
        forget_bias: added to the forget gate.
        state_is_tuple: the state is an :class:`LSTMStateTuple`, else memory and output concatenated.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int | None = None,
        num_proj_shards: int | None = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype, **kwargs)
        self._partitioner, self._proj_partitioner = (
            None if shards is None else tf.fixed_size_partitioner(shards)
            for shards in (num_unit_shards, num_proj_shards)
        )
        if not state_is_tuple:
            _log.warning("%s: a state that is no tuple is slower. Use state_is_tuple=True.", self.name)
        self._use_peepholes = use_peepholes
        self._cell_clip, self._proj_clip = cell_clip, proj_clip
        self._initializer = initializer
        self._num_proj = num_proj
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple

    @property
    def state_size(self) -> Any:
        """The sizes of memory and output: a pair, or their sum."""
        sizes = self._sizes()
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        """``num_proj`` with a projection, otherwise ``num_units``."""
        return self._num_proj or self._num_units

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create ``kernel`` and ``bias``, and the variables of peepholes and projection if used."""
        units, start = self._num_units, self._initializer
        rows = _depth(input_shape) + self.output_size
        self._kernel = self.add_variable(
            "kernel", [rows, 4 * units], initializer=start, partitioner=self._partitioner
        )
        self._bias = self.add_variable("bias", [4 * units], initializer=tf.zeros_initializer())
        if self._use_peepholes:
            self._diagonals = [
                self.add_variable(name, [units], initializer=start)
                for name in ("w_f_diag", "w_i_diag", "w_o_diag")
            ]
        if self._num_proj is not None:
            shape = [units, self._num_proj]
            self._projection = self.add_variable(
                "projection/kernel", shape, initializer=start, partitioner=self._proj_partitioner
            )
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the output and the new state."""
        if self._state_is_tuple:
            memory, before = state
        else:
            memory, before = tf.split(tf.convert_to_tensor(state), list(self._sizes()), 1)
        i, j, f, o = tf.split(_affine(inputs, before, self._kernel, self._bias), 4, 1)
        f = f + self._forget_bias
        if self._use_peepholes:
            of_f, of_i, of_o = self._diagonals
            f, i = f + of_f * memory, i + of_i * memory
        c = tf.sigmoid(f) * memory + tf.sigmoid(i) * self._activation(j)
        if self._cell_clip is not None:
            c = tf.clip_by_value(c, -self._cell_clip, self._cell_clip)
        if self._use_peepholes:
            o = o + of_o * c
        h = tf.sigmoid(o) * self._activation(c)
        if self._num_proj is not None:
            h = tf.matmul(h, self._projection)
            if self._proj_clip is not None:
                h = tf.clip_by_value(h, -self._proj_clip, self._proj_clip)
        return h, LSTMStateTuple(c, h) if self._state_is_tuple else tf.concat([c, h], 1)

    def _sizes(self) -> LSTMStateTuple:
        return LSTMStateTuple(self._num_units, self.output_size)


class BasicLSTMCell(LSTMCell):
    """An :class:`LSTMCell` without peepholes, clipping and projection. TF1: same name."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Any = None,
        reuse: Any = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        given = {"forget_bias": forget_bias, "state_is_tuple": state_is_tuple, "activation": activation}
        super().__init__(num_units, reuse=reuse, name=name, dtype=dtype, **given, **kwargs)
