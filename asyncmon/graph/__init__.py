"""The embedded engine: a numpy dataflow graph with TF1's names, and the session that runs it.

::

    from asyncmon import graph as tf

    x = tf.placeholder(tf.float32, [None, 64])
    w = tf.get_variable("w", [64, 10])
    y = x @ w
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        value = await sess.run(y, {x: batch})

Ops are entries of a table (:mod:`asyncmon.graph.core.op` shows how to write one). A session compiles
fetches and feeds into a plan once and runs each step as a transaction
(:mod:`asyncmon.graph.session.session`). The folders, from the ground up: numerics, core, execution, ops
and queues, nn, control and variables, train and session, layers.
"""

import typing as _typing

# fmt: off
# isort: off
from asyncmon.graph import layers as layers, nn as nn, train as train
from asyncmon.graph.core.build import (
    add_to_collection, add_to_collections, colocate_with, container, control_dependencies,
    convert_to_tensor, create_op, create_operation, create_ops, device, get_collection,
    get_collection_ref, get_default_graph, name_scope, reset_default_graph, set_random_seed,
)
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.indexed_slices import IndexedSlices, IndexedSlicesValue
from asyncmon.graph.control.cond import cond
from asyncmon.graph.control.while_loop import while_loop
from asyncmon.graph.core.default_session import get_default_session
from asyncmon.graph.core.device_spec import DeviceSpec
from asyncmon.graph.core.dtypes import (
    DType, as_dtype, bool, complex64, complex128, double, float16, float32, float64, half, int8,
    int16, int32, int64, string, uint8, uint16, uint32, uint64,
)
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import AwaitedOpDef, OpDef, RandomOpDef, Spec, VariableOpDef, register
from asyncmon.graph.core.shape import Dimension, TensorShape
from asyncmon.graph.nn.clip import (
    clip_by_global_norm, clip_by_norm, clip_by_value, global_norm,
)
from asyncmon.graph.ops.basic import (
    cast, constant, group, identity, no_op, placeholder, placeholder_with_default, stop_gradient, tuple,
)
from asyncmon.graph.ops.checks import Assert, Print, check_numerics
from asyncmon.graph.ops.create import (
    eye, fill, linspace, one_hot, ones, ones_like, range, zeros, zeros_like,
)
from asyncmon.graph.ops.elementwise import (
    abs, add, add_n, ceil, conj, cos, div_no_nan, divide, equal, erf, erfc, exp, expm1, floor,
    floordiv, floormod, greater, greater_equal, is_finite, is_inf, is_nan, less, less_equal, log,
    log1p, logical_and, logical_not, logical_or, logical_xor, maximum, minimum, mod, multiply,
    negative, not_equal, pow, realdiv, reciprocal, rint, round, rsqrt, sigmoid, sign, sin, sqrt,
    square, squared_difference, subtract, tan, tanh, truediv, where,
)
from asyncmon.graph.ops.gather import (
    TopK, gather, gather_nd, scatter_nd, top_k, unsorted_segment_sum,
)
from asyncmon.graph.ops.index import boolean_mask, newaxis, pad, reverse, slice
from asyncmon.graph.ops.join import concat, split, stack, unstack
from asyncmon.graph.ops.products import einsum, matmul, tensordot
from asyncmon.graph.ops.py_func import py_func
from asyncmon.graph.ops.random_ops import (
    multinomial, random_normal, random_shuffle, random_uniform, truncated_normal,
)
from asyncmon.graph.ops.reduce import (
    argmax, argmin, cumprod, cumsum, reduce_all, reduce_any, reduce_logsumexp, reduce_max,
    reduce_mean, reduce_min, reduce_prod, reduce_sum,
)
from asyncmon.graph.ops.shape_ops import (
    broadcast_to, expand_dims, rank, reshape, shape, size, squeeze, tile, transpose,
)
from asyncmon.graph.ops.variable_ops import (
    assign, assign_add, assign_sub, is_variable_initialized, scatter_add, scatter_sub,
    scatter_update,
)
from asyncmon.graph.queues.queues import (
    FIFOQueue, QueueBase, RandomShuffleQueue,
)
from asyncmon.graph.session.session import Session
from asyncmon.graph.variables import initializers
from asyncmon.graph.variables.global_step import (
    assert_global_step, create_global_step, get_global_step, get_or_create_global_step, global_step,
)
from asyncmon.graph.variables.initializers import (
    constant_initializer, glorot_normal_initializer, glorot_uniform_initializer,
    identity_initializer, ones_initializer, orthogonal_initializer, random_normal_initializer,
    random_uniform_initializer, truncated_normal_initializer, variance_scaling_initializer,
    zeros_initializer,
)
from asyncmon.graph.variables.get_variable import (
    get_local_variable, get_variable,
)
from asyncmon.graph.variables.partitioned import (
    PartitionedVariable, fixed_size_partitioner, min_max_variable_partitioner,
    variable_axis_size_partitioner,
)
from asyncmon.graph.variables.scope import AUTO_REUSE, VariableScope, get_variable_scope, variable_scope
from asyncmon.graph.variables.variable import (
    Variable, global_variables, global_variables_initializer, local_variables,
    local_variables_initializer, model_variables, moving_average_variables,
    report_uninitialized_variables, trainable_variables, variables_initializer,
)
from asyncmon.protobuf.run_options import NodeStats, RunMetadata, RunOptions
from asyncmon.session_config import SessionConfig
from asyncmon.system.missing_names import missing_name as _missing_name
# isort: on

__all__ = [
    "AUTO_REUSE", "Assert", "AwaitedOpDef", "DType", "DeviceSpec", "Dimension", "FIFOQueue",
    "Graph", "GraphKeys", "IndexedSlices", "IndexedSlicesValue", "NodeStats",
    "OpDef", "Operation", "PartitionedVariable", "Print",
    "QueueBase", "RandomOpDef", "RandomShuffleQueue", "RunMetadata", "RunOptions", "Session",
    "SessionConfig", "Spec", "Tensor", "TensorShape", "TopK", "Variable", "VariableOpDef",
    "VariableScope", "abs", "add", "add_n", "add_to_collection", "add_to_collections", "argmax",
    "argmin", "as_dtype", "assert_global_step", "assign", "assign_add", "assign_sub", "bool",
    "boolean_mask", "broadcast_to", "cast", "ceil", "check_numerics", "clip_by_global_norm",
    "clip_by_norm", "clip_by_value", "colocate_with", "complex64", "complex128", "concat", "cond",
    "conj", "constant", "constant_initializer", "container", "control_dependencies",
    "convert_to_tensor", "cos", "create_global_step", "create_op", "create_operation", "create_ops",
    "cumprod", "cumsum", "device", "div_no_nan", "divide", "double", "einsum", "equal", "erf",
    "erfc", "exp", "expand_dims", "expm1", "eye", "fill", "fixed_size_partitioner", "float16",
    "float32", "float64", "floor", "floordiv", "floormod", "gather", "gather_nd", "get_collection",
    "get_collection_ref", "get_default_graph", "get_default_session", "get_global_step",
    "get_local_variable", "get_or_create_global_step", "get_variable", "get_variable_scope",
    "global_norm", "global_step", "global_variables", "global_variables_initializer",
    "glorot_normal_initializer", "glorot_uniform_initializer", "gradients", "greater",
    "greater_equal", "group", "half", "identity", "identity_initializer",
    "initializers", "int8", "int16", "int32", "int64", "is_finite", "is_inf", "is_nan",
    "is_tensor_like", "is_variable_initialized", "less", "less_equal", "linspace",
    "local_variables", "local_variables_initializer", "log", "log1p", "logical_and", "logical_not",
    "logical_or", "logical_xor", "matmul", "maximum", "min_max_variable_partitioner", "minimum",
    "mod", "model_variables", "moving_average_variables", "multinomial", "multiply", "name_scope",
    "negative", "newaxis", "no_op", "not_equal", "one_hot", "ones", "ones_initializer", "ones_like",
    "orthogonal_initializer", "pad", "placeholder", "placeholder_with_default", "pow", "py_func",
    "random_normal", "random_normal_initializer", "random_shuffle", "random_uniform",
    "random_uniform_initializer", "range", "rank", "realdiv", "reciprocal", "reduce_all",
    "reduce_any", "reduce_logsumexp", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod",
    "reduce_sum", "register", "report_uninitialized_variables", "reset_default_graph", "reshape",
    "reverse", "rint", "round", "rsqrt", "scatter_add", "scatter_nd", "scatter_sub",
    "scatter_update", "set_random_seed", "shape", "sigmoid", "sign", "sin", "size", "slice",
    "split", "sqrt", "square", "squared_difference", "squeeze", "stack", "stop_gradient", "string",
    "subtract", "tan", "tanh", "tensordot", "tile", "top_k", "trainable_variables", "transpose",
    "truediv", "truncated_normal", "truncated_normal_initializer", "tuple", "uint8", "uint16",
    "uint32", "uint64", "unsorted_segment_sum", "unstack", "variable_axis_size_partitioner",
    "variable_scope", "variables_initializer", "variance_scaling_initializer", "where",
    "while_loop", "zeros", "zeros_initializer", "zeros_like",
]
# fmt: on

if not _typing.TYPE_CHECKING:  # else a type checker would find every name here

    def __getattr__(name: str) -> _typing.Any:
        raise _missing_name(__name__, name, [""], __all__)


def __dir__() -> list[str]:
    return __all__
