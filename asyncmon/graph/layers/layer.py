"""The base class of layers, which create variables at the first call and share them between calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from inspect import Parameter, Signature, signature
from typing import Any

from asyncmon.graph.core import nest
from asyncmon.graph.core.build import (
    add_to_collection,
    convert_to_tensor,
    create_op,
    get_default_graph,
    name_scope,
)
from asyncmon.graph.core.convert import tensors_in
from asyncmon.graph.core.dtypes import DType, as_dtype, float32
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import TensorShape, num_elements
from asyncmon.graph.core.signatures import function_of
from asyncmon.graph.ops.basic import cast
from asyncmon.graph.ops.shape_ops import reshape
from asyncmon.graph.variables.get_variable import get_variable
from asyncmon.graph.variables.initializers import zeros_initializer
from asyncmon.graph.variables.partitioned import flat_variables
from asyncmon.graph.variables.scope import VariableScope, variable_scope

Maker = Callable[..., Any] | None
"""An initializer, a regularizer, a constraint or an activation."""

ZEROS = zeros_initializer()
UNBUILT: Any = None
"""A variable that does not exist, or not before the first call."""


class Layer:
    """A callable that creates its variables at the first call and shares them between calls.

    TF1: ``tf.layers.Layer``. The variables are in a variable scope with the layer's name, made unique.

    Args:
        trainable: whether optimizers update the variables.
        name: the name; by default that of the class, such as "max_pooling2d".
        dtype: the dtype of the variables; by default that of the first input.
        activity_regularizer: a function of the result. Its loss, divided by the batch size, is added
            to ``GraphKeys.REGULARIZATION_LOSSES``.
        _scope: the variable scope to use, instead of a unique one.
        _reuse: True or ``AUTO_REUSE`` to share the variables of an earlier layer.

    Example::

        class Scale(layers.Layer):
            def build(self, input_shape):
                self.factor = self.add_variable("factor", input_shape[1:])

            def call(self, inputs):
                return inputs * self.factor
    """

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        *,
        activity_regularizer: Maker = None,
        _scope: str | VariableScope | None = None,
        _reuse: Any = None,
    ) -> None:
        self._base_name = name or _snake_case(type(self).__name__)
        self.graph: Graph = get_default_graph().root
        if not name:
            counts: dict[str, int] = self.graph.extras.setdefault("layers", {})
            counts[self._base_name] = counts.get(self._base_name, 0) + 1
            name = f"{self._base_name}_{counts[self._base_name]}"
        self.name = name
        self.trainable = trainable
        self.dtype: DType | None = None if dtype is None else as_dtype(dtype)
        self.activity_regularizer = activity_regularizer
        self.built = False
        self.updates: list[Any] = []
        self._reuse = _reuse
        self._scope: VariableScope | None = None
        self._inside = False
        self._trained: list[Any] = []
        self._kept: list[Any] = []
        self._losses_of_variables: list[Any] = []
        self._losses_of_results: list[tuple[Any, Any]] = []
        if _scope is not None:
            self._capture(_scope)

    # Overridden by subclasses.

    def build(self, input_shape: TensorShape) -> None:
        """Create the variables. Called once, before the first :meth:`call`. TF1: same name.

        The layers of this library may be built explicitly before the first call, too.
        """

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the result for ``inputs``, here the inputs themselves. TF1: same name."""
        return inputs

    # Calling.

    def __call__(self, inputs: Any, *args: Any, scope: Any = None, **kwargs: Any) -> Any:
        """Return the result for a tensor, or a list or dict of tensors if the subclass accepts one.

        The other arguments are passed to :meth:`call`. ``scope`` replaces the layer's name in the first
        call. TF1: same name.
        """
        listed = isinstance(inputs, list | tuple) and any(True for _ in tensors_in(inputs))
        several = listed or isinstance(inputs, dict)
        x = inputs if several else convert_to_tensor(inputs)
        with self._entered(scope), self._building():
            if not self.built:
                if self.dtype is None:
                    self.dtype = next(tensors_in(nest.flatten(x))).dtype
                self.build(_shapes(x))
                self.built = True
            result = self.call(x, *args, **kwargs)
            if self.activity_regularizer is not None:
                self._regularize(x, result, self.activity_regularizer)
        return result

    @contextmanager
    def _building(self) -> Iterator[None]:
        """Mark the variable scope as entered."""
        before, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = before

    @contextmanager
    def _entered(self, scope: str | VariableScope | None) -> Iterator[None]:
        """Enter the variable scope; the first time, create it or use the given or reused one."""
        if self._scope is None and not isinstance(scope, VariableScope):
            given = self._base_name if scope is None and self._reuse else scope
            with variable_scope(given, self._base_name, reuse=self._reuse) as self._scope:
                yield
            return
        if self._scope is None:
            self._capture(scope)
        assert self._scope is not None, "set in _capture"
        reuse = True if self.built else self._reuse
        with (
            variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as current,
            name_scope(current.original_name_scope or None),
        ):
            yield

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer. TF1: same name."""
        return self(inputs, *args, **kwargs)

    def _capture(self, scope: str | VariableScope | None) -> None:
        """Set the variable scope of the layer."""
        with variable_scope(scope, self._base_name) as captured:
            self._scope = captured

    def _regularize(self, x: Any, results: Any, regularizer: Callable[..., Any]) -> None:
        with name_scope("ActivityRegularizer"):
            for result in tensors_in(results if isinstance(results, list | tuple) else [results]):
                loss = regularizer(result)
                rows = cast(create_op("Shape", (result,))[0], loss.dtype)
                self._losses_of_results.append((x, loss / rows))
                add_to_collection(GraphKeys.REGULARIZATION_LOSSES, self._losses_of_results[-1][1])

    # Variables, updates and losses.

    def add_weight(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Maker = None,
        trainable: bool | None = None,
        constraint: Maker = None,
        use_resource: bool | None = None,
        synchronization: Any = None,
        aggregation: Any = None,
        partitioner: Any = None,
    ) -> Any:
        """Create a variable in the layer's scope, or return the shared one.

        TF1: same name. Arguments as :func:`get_variable`; ``trainable`` is by default the layer's.
        ``synchronization`` and ``aggregation`` are without effect: there is one copy of a variable.
        """

        def collected(variable: Any) -> Any:
            assert regularizer is not None
            loss = regularizer(variable)
            if loss is not None:
                self._losses_of_variables.append(loss)
            return loss

        if self.dtype is None:  # built before the first call
            self.dtype = float32
        trained = self.trainable and trainable is not False
        kind = (self.dtype if dtype is None else dtype) or None
        regularizing = None if regularizer is None else collected
        with nullcontext() if self._inside else self._entered(None):
            variable = get_variable(
                name, shape, kind, initializer, regularizing, trained,
                partitioner=partitioner, use_resource=use_resource, constraint=constraint,
            )  # fmt: skip
        (self._trained if trainable is not False else self._kept).extend(flat_variables([variable]))
        return variable

    add_variable = add_weight

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Add operations to ``GraphKeys.UPDATE_OPS``. TF1: same name."""
        for update in updates if isinstance(updates, list | tuple) else [updates]:
            self.updates.append(update)
            add_to_collection(GraphKeys.UPDATE_OPS, update)

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Add losses, of variables or of the results for ``inputs``, to ``REGULARIZATION_LOSSES``.

        TF1: same name.
        """
        for loss in losses if isinstance(losses, list | tuple) else [losses]:
            if inputs is None:
                self._losses_of_variables.append(loss)
            else:
                self._losses_of_results.append((inputs, loss))
            add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

    @property
    def losses(self) -> list[Any]:
        """The losses of regularizers. TF1: same name."""
        return [loss for _, loss in self._losses_of_results] + self._losses_of_variables

    def get_losses_for(self, inputs: Any) -> list[Any]:
        """Return the losses of results for ``inputs``, a tensor or a list, or of variables for None.

        TF1: same name.
        """
        if inputs is None:
            return list(self._losses_of_variables)
        wanted = set(tensors_in(inputs))
        return [loss for x, loss in self._losses_of_results if not wanted.isdisjoint(tensors_in(x))]

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that optimizers update. TF1: same name."""
        return list(self._trained) if self.trainable else []

    @property
    def non_trainable_variables(self) -> list[Any]:
        """The other variables. TF1: same name."""
        return list(self._kept) if self.trainable else self._trained + self._kept

    @property
    def variables(self) -> list[Any]:
        """All variables. TF1: same name."""
        return self.trainable_variables + self.non_trainable_variables

    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables
    weights = variables

    @property
    def scope_name(self) -> str:
        """The name of the variable scope. ValueError if the layer was not called yet."""
        if self._scope is None:
            raise ValueError(f"No name available for layer scope because {self.name!r} was not called.")
        return self._scope.name

    def count_params(self) -> int:
        """Return the number of elements of all variables. TF1: same name."""
        if not self.built:
            raise ValueError(f"You tried to call `count_params` on {self.name}, which is not built.")
        return sum(num_elements(v.shape.dims) or 0 for v in self.variables)


def _snake_case(name: str) -> str:
    parts = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", parts).lower()


def _shapes(inputs: Any) -> Any:
    if isinstance(inputs, list | tuple):
        return [_shapes(x) for x in inputs]
    if isinstance(inputs, dict):
        return {key: _shapes(x) for key, x in inputs.items()}
    return convert_to_tensor(inputs).shape


_PLAIN = Parameter.POSITIONAL_OR_KEYWORD
_OF_CALLS = {
    "training": Parameter("training", _PLAIN, default=False),
    "reuse": Parameter("reuse", _PLAIN, default=None),
}


def layer_function(
    layer: type[Layer], name: str, arguments: str | None = None
) -> Callable[..., Tensor]:
    """Return a function ``name(inputs, ...)`` that calls a new layer once.

    Args:
        layer: the class.
        name: the name of the function.
        arguments: the arguments after ``inputs``: those of the layer, ``training`` of its call, and
            ``reuse``, to share the variables of an earlier layer of that name. By default those of the
            layer, then ``reuse``.
    """
    known = {**signature(layer).parameters, **_OF_CALLS}
    own = [n for n, p in known.items() if p.kind is _PLAIN and n not in _OF_CALLS]
    names = arguments.split() if arguments else [*own, "reuse"]
    shown = Signature([Parameter("inputs", _PLAIN), *[known[n] for n in names]])
    others = [p for p in known.values() if p.kind is Parameter.KEYWORD_ONLY]

    def compute(inputs: Any, **given: Any) -> Any:
        called = {key: given.pop(key) for key in ("training",) if key in given}
        if "reuse" in names:
            called["scope"], given["_reuse"] = given["name"], given.pop("reuse")
        return layer(**given)(inputs, **called)

    compute.__module__ = layer.__module__
    called = " ``training`` is that of its call." if "training" in names else ""
    shared = (
        "\n\n``reuse`` shares the variables of an earlier layer of this name: True or ``AUTO_REUSE``."
    )
    doc = (
        f"Apply a new :class:`{layer.__name__}` to ``inputs``. TF1: ``tf.layers.{name}``.\n\n"
        f"The other arguments are those of the class.{called}{shared * ('reuse' in names)}"
    )
    return function_of(name, doc, shown, compute, others)


# --- checks that layers share -------------------------------------------------------------------------


def check_rank(shape: TensorShape, wanted: int, layer: str, exact: bool = True) -> int:
    """Check and return the rank of an input's shape.

    ValueError if the rank is unknown, another one than ``wanted``, or lower.
    """
    rank = shape.ndims
    if rank is None or (rank != wanted if exact else rank < wanted):
        raise ValueError(
            f"Input 0 of layer {layer} is incompatible with the layer: "
            f"expected {'' if exact else 'min_'}ndim={wanted}, found ndim={rank}. Full shape: {shape}"
        )
    return rank


def layout_of(data_format: str) -> str:
    """Return "NHWC" or "NCHW" for "channels_last" or "channels_first". ValueError for another one."""
    layouts = {"channels_last": "NHWC", "channels_first": "NCHW"}
    if data_format not in layouts:
        raise ValueError(
            "The `data_format` argument must be one of 'channels_first', 'channels_last'. "
            f"Received: {data_format!r}"
        )
    return layouts[data_format]


def in_dtype(inputs: Any, dtype: Any) -> Tensor:
    """Return an input in the dtype of the layer."""
    x = convert_to_tensor(inputs)
    return x if x.dtype is dtype else cast(x, dtype)


def flag_of(training: Any) -> Tensor:
    """Return a flag that is fed as a scalar: one of unknown shape would hide the shape of a choice."""
    flag = convert_to_tensor(training)
    return flag if flag.shape.ndims is not None else reshape(flag, ())


def add_kernel(layer: Any, shape: list[int]) -> None:
    """Create the kernel of a layer that has the arguments of a kernel."""
    layer.kernel = layer.add_weight(
        "kernel", shape, None,
        layer.kernel_initializer, layer.kernel_regularizer, True, layer.kernel_constraint,
    )  # fmt: skip


def add_bias(layer: Any, size: int) -> None:
    """Create the bias, if any, of a layer that has the arguments of a bias. It is built then."""
    if layer.use_bias:
        layer.bias = layer.add_weight(
            "bias", [size], None,
            layer.bias_initializer, layer.bias_regularizer, True, layer.bias_constraint,
        )  # fmt: skip
    layer.built = True
