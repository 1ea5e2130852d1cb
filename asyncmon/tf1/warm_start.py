"""TF1: ``tf.train.init_from_checkpoint``: initializers of variables from a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.checkpoint import CheckpointReader, load_checkpoint

__all__ = ["init_from_checkpoint"]


async def init_from_checkpoint(
    ckpt_dir_or_file: str | os.PathLike[str],
    assignment_map: Mapping[str, Any] | Iterable[tuple[str, Any]],
) -> None:
    """Replace the initializers of variables by the values in a checkpoint. TF1: same name.

    Await it while the graph is built, before the init op. It checks names, shapes and dtypes; the
    values are read by the run of the init op, which a session that restores its own checkpoint does not
    need. For the variables of an open session use ``asyncmon.init_from_checkpoint``.

    ``ckpt_dir_or_file`` is a checkpoint, also one of TensorFlow, or a directory, whose newest
    checkpoint is used. ``assignment_map`` maps names in the checkpoint to variables or their names; a
    list of pairs is accepted. A partitioned variable is whole, or a list of its parts. A name that ends
    with ``/`` is a scope and means the variables made by ``get_variable`` in it; ``"/"`` is the
    outermost scope.

    Raises:
        ValueError: the checkpoint lacks a variable, a shape or dtype differs, a scope is mapped to a
            variable, no variable has the name, or a list is not that of all parts of a variable.
        TypeError: a target is neither a variable nor a name.
        NotFoundError: the checkpoint does not exist.

    Example::

        await tf.train.init_from_checkpoint("runs/pretrained", {"encoder/": "model/encoder/"})
    """
    pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    async with await load_checkpoint(ckpt_dir_or_file) as reader:
        targets = [target for entry, to in pairs for target in _targets(entry, to, reader)]
        for variable, entry in targets:
            _check(variable, entry, reader)
        path = reader.path
    if not targets:
        return
    dtypes = {entry: variable.dtype for variable, entry in targets}
    entries = list(dtypes)

    async def read() -> list[np.ndarray[Any, Any]]:
        async with await CheckpointReader.open(path) as reader:
            found = await reader.get_tensors(entries)
        return [found[entry] for entry in entries]

    with targets[0][0].graph.as_default():
        values = g.py_func(read, [], [*dtypes.values()], name="checkpoint_initializer")
    restored = dict(zip(entries, values, strict=True))
    for variable, entry in targets:
        restored[entry].set_shape(variable.shape)
        if isinstance(variable, g.Variable):
            variable.set_initial_value(restored[entry])
        else:
            for part in variable:
                place = part._get_save_slice_info()
                part.set_initial_value(restored[entry][place.slices()])


def _named_variables() -> dict[str, Any]:
    """Return the variables of the default graph created by ``get_variable``, by name.

    Those in parts are whole, by the name of the whole variable.
    """
    extras = g.get_default_graph().root.extras
    whole: dict[str, g.PartitionedVariable] = extras.get("partitioned", {})
    parts = {variable for one in whole.values() for variable in one}
    made = {name: v for name, v in extras.get("get_variable", {}).items() if v not in parts}
    return {**made, **whole}


def _targets(entry: str, target: Any, reader: CheckpointReader) -> list[tuple[Any, str]]:
    """Return the variables of one entry of the map, each with its name in the checkpoint."""
    if isinstance(target, list | tuple):
        whole = [
            one
            for one in _named_variables().values()
            if isinstance(one, g.PartitionedVariable) and {*one} == {*target}
        ]
        if not whole:
            raise ValueError(
                f"{entry!r} is mapped to {target!r}, which are not all parts of a variable."
            )
        target = whole[0]
    if isinstance(target, g.Variable | g.PartitionedVariable):
        return [(target, entry)]
    if not isinstance(target, str):
        raise TypeError(f"{entry!r} is mapped to {target!r}; expected a variable or a name.")
    variables = _named_variables()
    if not target.endswith("/"):
        name = target.removesuffix(":0")
        if name not in variables:
            raise ValueError(
                f"Assignment map: {entry!r} is mapped to {target!r}, and there is no such variable. A "
                f"scope ends with a slash, {entry.rstrip('/') + '/'!r}: {target + '/'!r}."
            )
        return [(variables[name], entry)]
    if not entry.endswith("/"):
        raise ValueError(
            f"Assignment map with scope only name {target} should map to scope only {entry}. Should be "
            "'scope/': 'other_scope/'."
        )
    inside, outside = ("" if scope == "/" else scope for scope in (target, entry))
    return [
        (variable, outside + name.removeprefix(inside))
        for name, variable in variables.items()
        if name.startswith(inside)
    ]


def _check(variable: Any, entry: str, reader: CheckpointReader) -> None:
    shapes = reader.get_variable_to_shape_map()
    if entry not in shapes:
        raise ValueError(
            f"Tensor {entry} (for {variable.name}) is not found in {reader.path} checkpoint {shapes}"
        )
    dtype = reader.get_variable_to_dtype_map()[entry]
    name = "string" if dtype.kind in "OSUT" else dtype.name
    for what, ours, theirs, same in (
        ("Shape", variable.shape, shapes[entry], variable.shape.is_compatible_with(shapes[entry])),
        ("Dtype", variable.dtype.name, name, variable.dtype.name == name),
    ):
        if not same:
            raise ValueError(
                f"{what} of variable {variable.name} ({ours}) doesn't match with {what.lower()} of "
                f"tensor {entry} ({theirs}) from checkpoint reader."
            )
