"""TF1: ``tf.train``: sessions, hooks, checkpoints, input queues, optimizers, servers.

:mod:`asyncmon.tf1.namespaces` hides imported names that TF1 does not have here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import log, pi
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.checkpoint import *
from asyncmon.distributed import *
from asyncmon.graph.train import *
from asyncmon.graph.train.averages import assign_moving_average as assign_moving_average
from asyncmon.graph.variables.get_variable import named_variables
from asyncmon.hooks import *
from asyncmon.protobuf.cluster_def import *
from asyncmon.runtime import *
from asyncmon.summary import *
from asyncmon.tf1.example import *
from asyncmon.tf1.input import *
from asyncmon.training import *

LooperThread = LooperTask
NewCheckpointReader = CheckpointReader.open
SummaryWriter = FileWriter
piecewise_constant_decay = piecewise_constant


class SaverDef:
    """The values of ``Saver(write_version=...)``. TF1: ``tf.train.SaverDef``, for its constants."""

    LEGACY = 0
    V1 = 1
    V2 = 2


# fmt: off
def cosine_decay_restarts(
    learning_rate: Any, global_step: Any, first_decay_steps: Any, t_mul: float = 2.0,
    m_mul: float = 1.0, alpha: float = 0.0, name: str | None = None,
) -> g.Tensor:
    """Return a rate that falls along a cosine again and again. TF1: same name.

    Each period is ``t_mul`` times as long as the last one, and starts with ``m_mul`` times its rate;
    ``alpha`` is the least rate as a fraction of ``learning_rate``.
    """
    if global_step is None:
        raise ValueError("global_step is required for cosine_decay_restarts.")
    with g.name_scope(name, "SGDRDecay") as scope:
        rate = g.convert_to_tensor(learning_rate, preferred_dtype=g.float32)
        passed = g.cast(global_step, rate.dtype) / g.cast(first_decay_steps, rate.dtype)
        if t_mul == 1.0:
            number = g.floor(passed)
            passed -= number
        else:
            number = g.floor(g.log(1 - passed * (1 - t_mul)) / log(t_mul))
            length = t_mul**number
            passed = (passed - (1 - length) / (1 - t_mul)) / length
        cosine = 0.5 * m_mul**number * (1 + g.cos(pi * passed))
        return g.multiply(rate, (1 - alpha) * cosine + alpha, scope)
# fmt: on


# --- initializers from a checkpoint ------------------------------------------------------------------
async def init_from_checkpoint(  # type: ignore[no-redef]  # hides the runtime's
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


def _targets(entry: str, target: Any, reader: CheckpointReader) -> list[tuple[Any, str]]:
    """Return the variables of one entry of the map, each with its name in the checkpoint."""
    if isinstance(target, list | tuple):
        whole = [
            one
            for one in named_variables().values()
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
    variables = named_variables()
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
