"""Restore a session from a checkpoint: all variables, or none on any mismatch."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from asyncmon.checkpoint.dtypes import Array, is_text
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.saveable_session import RESERVED, ArraySpec, StateSpec
from asyncmon.checkpoint.variable_selection import Selection
from asyncmon.errors import InvalidArgumentError, NotFoundError, OpError
from asyncmon.system.error_text import add_note, some
from asyncmon.system.files import in_thread
from asyncmon.system.notebook import explained

logger = logging.getLogger(__name__)

Target = Mapping[str, tuple[str, Any]]
"""Names in the session to entry names and objects with ``shape`` and ``dtype``."""


def find_targets(
    selection: Selection, reader: CheckpointReader, spec: StateSpec, rename: Mapping[str, str]
) -> dict[str, tuple[str, Any]]:
    """Return the variables that a saver restores from a checkpoint, as :data:`Target` describes."""
    state = {name: (name, one) for name, one in spec.known.items()}
    if not spec.complete:
        listed = selection.names or ()
        state |= {name: (name, ArraySpec()) for name in listed if name not in state}
    targets = {
        name: (entry_for(key, rename.items()) or key, one)
        for key, (name, one) in selection.to_checkpoint(state, _part_of).items()
    }
    if not spec.complete and selection.names is None:
        taken = {entry for entry, _ in targets.values()}
        others = reader.facts.shapes.keys() - taken - reader.facts.averages.keys()
        named = {name_for(e, rename.items()): e for e in others if not e.startswith(RESERVED)}
        for name in spec.chosen(named).intersection(named):
            targets[name] = named[name], ArraySpec()
        if left := sorted(entry for name, entry in named.items() if name not in targets):
            logger.info("Leaving out what the program lacks of %s: %s", reader.path, some(left))
    return targets


def _part_of(whole: tuple[str, Any], name: str, place: Any) -> tuple[str, Any]:
    return name, ArraySpec(tuple(place.var_shape), whole[1].dtype)


async def load_entries(
    raw: Any,
    reader: CheckpointReader,
    targets: Target,
    *,
    ignore_missing: bool = False,
    ignore_mismatched: bool = False,
    reshape: bool = False,
) -> list[str]:
    """Load entries of a checkpoint into a session, all or none. Raises as :meth:`Saver.restore`.

    Returns:
        The names in the session that were loaded.
    """
    found, missing, problems = await in_thread(_matched, reader, targets, reshape)
    if ignore_mismatched and (left := [*missing, *problems]):
        logger.warning("Keeping the values of %d variables: %s", len(left), "; ".join(left))
    elif problems or (missing and not ignore_missing):
        raise _mismatch_error(reader.path, [] if ignore_missing else missing, problems)
    arrays = await reader.get_tensors(dict.fromkeys(found.values()))
    await raw.load({name: _shaped(arrays[entry], targets[name][1]) for name, entry in found.items()})
    return list(found)


def _matched(
    reader: CheckpointReader, targets: Target, reshape: bool
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return names in the session to entry names, and why others do not match."""
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    missing: list[str] = []
    problems: list[str] = []
    found: dict[str, str] = {}
    for name, (entry, spec) in targets.items():
        if entry not in shapes:
            if not name.startswith(RESERVED):
                missing.append(f"{entry!r} is not in the checkpoint")
            continue
        problem = _mismatch(shapes[entry], dtypes[entry], spec, reshape=reshape)
        if problem is None:
            found[name] = entry
        else:
            problems.append(f"{entry!r} {problem}")
    return found, missing, problems


def _shaped(array: Array, spec: Any) -> Array:
    if spec.shape is None or None in spec.shape:
        return array
    return array.reshape(spec.shape)


def _mismatch(shape: list[int], dtype: np.dtype[Any], spec: Any, *, reshape: bool) -> str | None:
    if spec.dtype is None:
        return None  # checked by the session
    wanted = np.dtype(getattr(spec.dtype, "as_numpy_dtype", spec.dtype))  # a DType has it
    same_type = dtype == wanted or dtype.newbyteorder("=") == wanted.newbyteorder("=")
    if not same_type and not (is_text(dtype) and is_text(wanted)):
        return f"has dtype {dtype.name} in the checkpoint, but the session needs {wanted.name}"
    if spec.shape is None:
        return None
    free = list(spec.shape)
    same = len(free) == len(shape) and all(
        known is None or known == length for known, length in zip(free, shape, strict=True)
    )
    if same or (reshape and None not in free and math.prod(free) == math.prod(shape)):
        return None
    return f"has shape {shape} in the checkpoint, but the session needs {free}"


def _mismatch_error(path: str, missing: list[str], problems: list[str]) -> OpError:
    what = "a mismatch between the current program and the one that was saved"
    cls: type[OpError] = InvalidArgumentError
    if missing:
        what = "a Variable name or other graph key that is missing from the checkpoint"
        cls = NotFoundError
    listed = "\n  ".join([*missing, *problems])
    error: OpError = cls(
        f"Restoring from checkpoint failed. This is most likely due to {what}. Nothing was changed. In"
        f" {path!r}:\n  {listed}\nPass ignore_missing=True to restore() to keep the values of missing "
        "variables, or rename={...} where names have changed. A training session begins in another "
        "checkpoint_dir, and init_from_checkpoint() takes over values."
    )
    return explained(error, " ".join(missing))


def entry_for(name: str, rename: Collection[tuple[str, str]]) -> str | None:
    """Return the entry name of a variable, or None if no pair matches.

    Args:
        name: the name of the variable in the session.
        rename: pairs of an entry name and a name in the session. Names that end with ``/`` or ``.`` are
            scopes; ``"/"`` is the root scope. Full names take precedence, then longer scopes.
    """
    for entry, target in rename:
        if target == name and not is_scope(target):
            return entry
    scopes = [(entry, target) for entry, target in rename if is_scope(target)]
    for entry, target in sorted(scopes, key=lambda pair: -len(pair[1])):
        scope = "" if target == "/" else target
        if name.startswith(scope):
            return ("" if entry == "/" else entry) + name[len(scope) :]
    return None


def is_scope(name: str) -> bool:
    """Return whether a name stands for all the names that begin with it."""
    return name.endswith(("/", "."))


def name_for(entry: str, rename: Collection[tuple[str, str]]) -> str:
    """Return the name in the session of an entry, the inverse of :func:`entry_for`."""
    return entry_for(entry, [(target, source) for source, target in rename]) or entry


def no_checkpoint(text: str) -> ValueError:
    """Return TF1's error for a path that is no checkpoint, with advice."""
    error = ValueError(text)
    add_note(
        error,
        "asyncmon: expected the prefix of a checkpoint, 'runs/1/model.ckpt-500'. `await "
        "am.latest_checkpoint(directory)` returns the newest one, or None if there is none.",
    )
    return error
