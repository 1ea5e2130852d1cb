"""Checks of the entries of the op table, for the core's ops and for a wing's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings

from asyncmon import graph as tf
from asyncmon.graph.core.op import NOT_DIFFERENTIABLE, ZERO, OpDef, OpRecord, RandomOpDef, table


@cache
def ops_of(module: str, without: str | None = None) -> dict[str, OpRecord]:
    """Return the ops that an import registers: not those of other imports, nor of tests.

    Args:
        module: the module to import.
        without: a module whose ops are left out.
    """
    code = f"import {module}\nfrom asyncmon.graph.core.op import table\nprint(*table)"
    names = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    others = ops_of(without) if without else {}
    return {name: table[name] for name in names.stdout.split() if name not in others}


def differentiable(ops: dict[str, OpRecord]) -> set[str]:
    """Return the names of ops that have a gradient."""
    none = (NOT_DIFFERENTIABLE, ZERO)
    return {name for name, record in ops.items() if record.gradient not in none}


# --- gradients ------------------------------------------------------------------------------------
def distinct(shape: tuple[int, ...], low: float, high: float, seed: int = 0) -> Any:
    """Values in a range, far enough from each other and from its ends for numeric differences."""
    count = int(np.prod(shape))
    steps = low + (np.arange(count) + 0.5) * (high - low) / max(count, 1)
    return np.random.default_rng(seed).permutation(steps).reshape(shape)


def check_gradient(ops: Any, function: Callable[..., Any], *arrays: Any, **options: Any) -> None:
    ops.differentiate(function, *arrays, order=2, known=False, max_elements=4, **options)


def several(test: Any) -> Any:
    """Few examples of each op: there are many ops."""
    return settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])(test)


def types_of(function: Callable[..., Any], *arrays: Any) -> set[str]:
    """Return the types of the ops that a check of two derivatives differentiates."""
    with tf.Graph().as_default() as graph:
        inputs = [tf.placeholder(a.dtype, a.shape) for a in arrays]
        results = function(*inputs)
        results = list(results) if isinstance(results, list | tuple) else [results]
        tf.gradients([y * y for y in results], inputs)
        return {op.type for op in graph.get_operations()}


# --- promises of entries --------------------------------------------------------------------------
def nodes_of(function: Any, arrays: Any) -> list[tuple[Any, list[Any], Any]]:
    """Build ops and gradients; return each pure node with its inputs' values and its result."""
    with tf.Graph().as_default() as graph:
        inputs = [tf.placeholder(a.dtype, a.shape) for a in arrays]
        results = function(*inputs)
        floats = [x for x in inputs if x.dtype.is_floating]
        listed = results if isinstance(results, list) else [results]
        if floats:
            grads = tf.gradients([y for y in listed if y.dtype.is_floating], floats)
            once = [tf.convert_to_tensor(g) for g in grads if g is not None]
            squares = [tf.reduce_sum(g * g) for g in once]
            with suppress(LookupError):  # not every gradient has one of its own
                tf.gradients(squares, floats)
        values: dict[Any, Any] = dict(zip(inputs, (_locked(a) for a in arrays), strict=True))
        nodes = []
        for op in graph.get_operations():
            computes = isinstance(op.op_def, OpDef | RandomOpDef) and op.op_def.kernel is not None
            if op.type == "Const" or not computes:
                if op.type == "Const":
                    values[op.outputs[0]] = op.attrs["value"]
                continue
            given = [values[x] for x in op.inputs if x in values]
            if len(given) < len(op.inputs):
                continue
            result = _compute(op, given)
            outs = result if len(op.outputs) > 1 else (result,)
            assert type(outs) is tuple
            assert len(outs) == len(op.outputs)
            for tensor, value in zip(op.outputs, outs, strict=True):
                assert tensor.shape.is_compatible_with(np.shape(value)), op
                assert np.asarray(value).dtype == tensor.dtype.as_numpy_dtype, op
                values[tensor] = _locked(value)
            nodes.append((op, given, outs))
        return nodes


def _locked(value: Any) -> Any:
    array = np.array(value)
    array.flags.writeable = False
    return array


def _compute(op: Any, given: list[Any], **extra: Any) -> Any:
    keywords = {**op.attrs, **extra}
    if isinstance(op.op_def, RandomOpDef):
        keywords["rng"] = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        return op.op_def.kernel(*given, **keywords)


def check_promises(function: Any, arrays: Any) -> None:
    """Check inputs, ``out=``, aliases, shapes and dtypes of the nodes that a function makes."""
    nodes = nodes_of(function, arrays)
    assert nodes
    for op, given, outs in nodes:
        specs = [x.spec for x in op.inputs]
        found = op.op_def.infer(*specs, **op.attrs)
        fresh = (found,) if isinstance(found, tf.Spec) else found
        assert not any(spec is x for spec in fresh for x in specs), f"{op} hands on an input's spec"
        pure = isinstance(op.op_def, OpDef)
        if not (pure and op.op_def.aliases):
            shared = [np.shares_memory(v, g) for v in outs for g in given]
            assert not any(shared), f"{op} gives back an input without saying so"
        if pure and (op.op_def.out or op.op_def.elementwise) and len(outs) == 1:
            target = np.full(np.shape(outs[0]), 7, np.asarray(outs[0]).dtype)
            back = _compute(op, given, out=target)
            assert back is target or (np.ndim(outs[0]) == 0 and back == target), op
            np.testing.assert_array_equal(target, outs[0], err_msg=str(op))
        if pure and op.op_def.elementwise:
            for i, value in enumerate(given):
                if value.shape == np.shape(outs[0]) and value.dtype == np.asarray(outs[0]).dtype:
                    target = value.copy()
                    _compute(op, [*given[:i], target, *given[i + 1 :]], out=target)
                    np.testing.assert_allclose(target, outs[0], rtol=1e-12, err_msg=str(op))
