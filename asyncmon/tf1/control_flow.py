"""One of several functions, chosen in the run. TF1: ``tf.case``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from asyncmon import graph as tf
from asyncmon.graph.core import nest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """Return what the function of the first true predicate builds. TF1: ``tf.case``.

    Args:
        pred_fn_pairs: pairs of a bool scalar tensor and a function, in a list; or a dict of them, which
            is tried in the order of the predicates' names. All functions return one structure.
        default: the function where no predicate is true. Without it, that is an InvalidArgumentError of
            the run.
        exclusive: two true predicates are an InvalidArgumentError of the run.
        strict: keeps a list of one result a list.
        name: the scope of the new ops.

    TypeError for other pairs, ValueError where there is none or structures differ.
    """
    pairs = _pairs(pred_fn_pairs)
    if default is not None and not callable(default):
        raise TypeError(f"default must be callable, got {default!r}.")
    if not pairs:
        raise ValueError("case() needs at least one pair of a predicate and a function.")
    with tf.name_scope(name, "case", [pred for pred, _ in pairs]):
        preds = [pred for pred, _ in pairs]
        if default is None:
            default = partial(_checked, preds, pairs[-1][1])
            pairs = pairs[:-1]
        if exclusive:
            text = "More than one condition evaluated as True but exclusive=True. Conditions: "
            true = tf.reduce_sum(tf.cast(tf.stack(preds), tf.int32))
            with tf.control_dependencies(
                [tf.Assert(true < 2, [text + _names(preds), tf.stack(preds)])]
            ):
                preds = [tf.identity(pred) for pred in preds]
        build = partial(_unwrapped, default, strict=strict)
        for pred, (_, fn) in reversed(list(zip(preds, pairs, strict=False))):
            build = partial(tf.cond, pred, partial(_unwrapped, fn, strict=strict), build, strict=strict)
        return build()


def _checked(preds: Sequence[tf.Tensor], fn: Callable[[], Any]) -> Any:
    """Return what the last function builds, once it is sure that one predicate is true."""
    text = f"None of the conditions evaluated as True. Conditions: {_names(preds)}, Values:"
    with tf.control_dependencies([tf.Assert(tf.reduce_any(tf.stack(preds)), [text, tf.stack(preds)])]):
        return nest.map_structure(lambda x: x if isinstance(x, tf.Operation) else tf.identity(x), fn())


def _unwrapped(fn: Callable[[], Any], *, strict: bool) -> Any:
    result = fn()
    single = isinstance(result, list | tuple) and len(result) == 1
    return result[0] if single and not strict else result


def _names(preds: Sequence[tf.Tensor]) -> str:
    return f"({', '.join(pred.name for pred in preds)})"


def _pairs(given: Any) -> list[tuple[Any, Callable[[], Any]]]:
    if isinstance(given, dict):
        given = sorted(given.items(), key=lambda pair: getattr(pair[0], "name", ""))
    elif not isinstance(given, list | tuple):
        raise TypeError(f"pred_fn_pairs must be a list, tuple, or dict, got {given!r}.")
    for pair in given:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"Each entry in pred_fn_pairs must be a 2-tuple, got {pair!r}.")
        pred, fn = pair
        if not isinstance(pred, tf.Tensor):
            raise TypeError(f"pred must be a Tensor, got: {pred!r}")
        if pred.dtype.name != "bool":
            raise TypeError(f"pred must be Tensor of type bool: {pred.name}")
        if not callable(fn):
            raise TypeError(f"fn for pred {pred.name} must be callable.")
    return list(given)
