"""Functions of functions. TF1: ``tf.map_fn``, ``tf.scan``, ``tf.foldl``, ``tf.foldr``, ``tf.case``.

The first four iterate over the first axis of a structure of tensors, and have gradients.
``parallel_iterations`` and ``swap_memory`` have no effect: iterations run one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from asyncmon import graph as tf
from asyncmon.graph.core.nest import flatten, pack_like, same_structure
from asyncmon.tf1.scan_loop import scan_loop
from asyncmon.tf1.signatures import REQUIRED, function_of
from asyncmon.tf1.structures import map_structure

__all__ = ["case", "foldl", "foldr", "map_fn", "scan"]


def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
) -> Any:
    """Apply a function to each element and stack the results. TF1: ``tf.map_fn``.

    Args:
        fn: takes an element, or a structure of elements; returns a structure of tensors.
        elems: a structure of tensors of shape ``[n, ...]``.
        dtype: the dtypes of the results of ``fn``, in their structure; required if they differ from
            those of ``elems``.
        back_prop: false stops gradients.
        infer_shape: false leaves the static shape of the result unknown. In the run all results have
            the same shape even so.

    TypeError if ``fn`` is no function or returns another dtype; ValueError for a scalar in ``elems``
    or another structure.
    """
    _check_callable(fn)
    stacks = _stacks(elems)
    like = stacks if dtype is None else dtype
    dtypes = [x.dtype if isinstance(x, tf.Tensor) else tf.as_dtype(x) for x in flatten(like)]

    def body(_: Any, element: Any) -> tuple[Any, Any]:
        found = fn(element)
        _check_structure(like, found)
        values = [_of_dtype(x, wanted) for x, wanted in zip(flatten(found), dtypes, strict=True)]
        return (), pack_like(like, values)

    _, result = scan_loop(body, (), stacks, back_prop=back_prop, name=name or "map")
    return result if infer_shape else map_structure(_vague, result)


def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Fold the elements by ``fn(value, element)`` and stack all values. TF1: ``tf.scan``.

    Args:
        fn: takes the current value and an element, returns the next value in the same structure.
        initializer: the initial value; by default the first element.
        reverse: start with the last element. Each value has the index of its element.

    The other arguments are those of :func:`map_fn`.

    TypeError if ``fn`` is no function or changes the dtype; ValueError for a scalar in ``elems``, or if
    ``fn`` changes the structure or the shape.
    """
    stacks, value, first = _begin(fn, elems, initializer, reverse=reverse)

    def body(value: Any, element: Any) -> tuple[Any, Any]:
        after = _after(fn, value, element)
        return after, after

    _, made = scan_loop(body, value, stacks, reverse=reverse, back_prop=back_prop, name=name or "scan")
    if first is not None:
        whole = [
            tf.concat([x, tf.expand_dims(start, 0)] if reverse else [tf.expand_dims(start, 0), x], 0)
            for x, start in zip(flatten(made), first, strict=True)
        ]
        made = pack_like(made, whole)
    return made if infer_shape else map_structure(_vague, made)


def _fold(own: str, which: str) -> Callable[..., Any]:
    def fold(fn: Any, elems: Any, initializer: Any, back_prop: bool, name: Any, **_: Any) -> Any:
        reverse = which == "last"
        stacks, value, _first = _begin(fn, elems, initializer, reverse=reverse)

        def body(value: Any, element: Any) -> tuple[Any, Any]:
            return _after(fn, value, element), ()

        options = {"reverse": reverse, "back_prop": back_prop}
        return scan_loop(body, value, stacks, name=name or own, **options)[0]

    doc = (
        f"Return the last value of ``fn(value, element)``, from the {which} element on. TF1: same name."
    )
    arguments = {
        "fn": REQUIRED, "elems": REQUIRED, "initializer": None, "parallel_iterations": 10,
        "back_prop": True, "swap_memory": False, "name": None,
    }  # fmt: skip
    return function_of(own, f"{doc}\n\nTF1: same name. See :func:`scan`.", arguments, fold)


foldl = _fold("foldl", "first")
foldr = _fold("foldr", "last")


def _after(fn: Any, value: Any, element: Any) -> Any:
    """Return the next value, in the structure of the current one."""
    after = fn(value, element)
    _check_structure(value, after)
    return pack_like(value, flatten(after))


def _begin(fn: Any, elems: Any, initializer: Any, *, reverse: bool) -> tuple[Any, Any, Any]:
    """Return the elements, the initial value, and that value if it is the first element."""
    _check_callable(fn)
    stacks = _stacks(elems)
    if initializer is not None:
        given = [tf.convert_to_tensor(x) for x in flatten(initializer)]
        return stacks, pack_like(initializer, given), None
    listed = flatten(stacks)
    first = [x[-1 if reverse else 0] for x in listed]
    rest = [x[:-1] if reverse else x[1:] for x in listed]
    return pack_like(stacks, rest), pack_like(stacks, first), first


def _check_callable(fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"fn must be callable, got {fn!r}.")


def _check_structure(expected: Any, found: Any) -> None:
    if not same_structure(expected, found):
        raise ValueError(f"fn must return the structure of {expected!r}; it returned {found!r}.")


def _stacks(elems: Any) -> Any:
    tensors = [tf.convert_to_tensor(x, name="elem") for x in flatten(elems)]
    if any(x.shape.ndims == 0 for x in tensors):
        one = len(tensors) == 1
        text = "a 1+ dimensional Tensor, not a scalar" if one else "1+ dimensional Tensors, not scalars"
        raise ValueError(f"elems must be {text}, got {elems!r}.")
    if not tensors:
        raise ValueError("elems must hold at least one tensor.")
    return pack_like(elems, tensors)


def _of_dtype(value: Any, dtype: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(value, preferred_dtype=dtype)
    if tensor.dtype is not dtype:
        raise TypeError(
            f"fn returns {tensor!r}, but its result should be of type {dtype.name}. Pass dtype="
            f"{tensor.dtype.name}."
        )
    return tensor


def _vague(tensor: tf.Tensor) -> tf.Tensor:
    return tf.placeholder_with_default(tensor, None)


# --- one of several functions -----------------------------------------------------------------------
def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """Return the result of the function of the first true predicate. TF1: ``tf.case``.

    Args:
        pred_fn_pairs: a list of pairs of a bool scalar tensor and a function; or a dict of them, in the
            order of the predicates' names. All functions return the same structure.
        default: the function if no predicate is true. Without it, the run raises
            InvalidArgumentError then.
        exclusive: the run raises InvalidArgumentError if two predicates are true.
        strict: return a list of one result as a list.

    TypeError for other pairs, ValueError for no pair or different structures.
    """
    pairs = _predicates(pred_fn_pairs)
    if default is not None and not callable(default):
        raise TypeError(f"default must be callable, got {default!r}.")
    if not pairs:
        raise ValueError("case() needs at least one pair of a predicate and a function.")
    with tf.name_scope(name, "case", [pred for pred, _ in pairs]):
        preds = [pred for pred, _ in pairs]
        if default is None:
            default = partial(_one_of, preds, pairs[-1][1])
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


def _one_of(preds: Sequence[tf.Tensor], fn: Callable[[], Any]) -> Any:
    """Return the result of the last function; the run asserts that one predicate is true."""
    text = f"None of the conditions evaluated as True. Conditions: {_names(preds)}, Values:"
    with tf.control_dependencies([tf.Assert(tf.reduce_any(tf.stack(preds)), [text, tf.stack(preds)])]):
        return map_structure(lambda x: x if isinstance(x, tf.Operation) else tf.identity(x), fn())


def _unwrapped(fn: Callable[[], Any], *, strict: bool) -> Any:
    result = fn()
    single = isinstance(result, list | tuple) and len(result) == 1
    return result[0] if single and not strict else result


def _names(preds: Sequence[tf.Tensor]) -> str:
    return f"({', '.join(pred.name for pred in preds)})"


def _predicates(given: Any) -> list[tuple[Any, Callable[[], Any]]]:
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
