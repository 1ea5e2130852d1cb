"""Warm starts: some variables of a new session from another's checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.checkpoint.inspection import load_checkpoint
from asyncmon.checkpoint.renaming import entry_for
from asyncmon.checkpoint.restoring import load_entries
from asyncmon.checkpoint.selection import name_of
from asyncmon.checkpoint.sessions import raw_session, state_spec

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ["init_from_checkpoint"]


async def init_from_checkpoint(
    sess: Any, ckpt_dir_or_file: str | os.PathLike[str], assignment_map: Mapping[str, Any]
) -> list[str]:
    """Load some of a session's variables from a checkpoint: all that the map covers, or none.

    TF1: same name, there before there is a session and with its default graph. Here it belongs where
    values are set: in a scaffold's ``init_fn``, which runs after the initialisers and only where
    nothing was restored.

    Args:
        sess: the session.
        ckpt_dir_or_file: a checkpoint, or a directory whose newest one is taken; TensorFlow's too.
        assignment_map: names in the checkpoint to variables, or names of them, in the session. Names
            that end with ``/`` are scopes, ``"/"`` is the outermost one.

    Returns:
        The names in the session that were set.

    Raises:
        ValueError: the map covers no variable, or the checkpoint lacks one.
        InvalidArgumentError: shapes or dtypes differ; all are named.

    Example::

        async def init_fn(scaffold, session):
            await init_from_checkpoint(session, "runs/pretrained", {"encoder/": "model/encoder/"})
    """
    raw = raw_session(sess)
    rename = {
        entry: target if isinstance(target, str) and target.endswith("/") else name_of(target)
        for entry, target in assignment_map.items()
    }
    spec = await state_spec(raw)
    entries = {name: entry_for(name, rename) for name in spec.known}
    targets = {entry: (name, spec.known[name]) for name, entry in entries.items() if entry}
    unmatched = [
        target for target in rename.values() if not target.endswith("/") and target not in spec.known
    ]
    if unmatched or not targets:
        raise ValueError(
            f"assignment_map {dict(rename)!r} names {unmatched or 'no variable of the session'}; the"
            f" session has: {', '.join(map(repr, sorted(spec.known)[:20]))}."
        )
    async with await load_checkpoint(ckpt_dir_or_file) as reader:
        shapes = reader.get_variable_to_shape_map()
        missing = sorted(
            f"{name} ({entry!r})" for entry, (name, _) in targets.items() if entry not in shapes
        )
        if missing:
            raise ValueError(f"{', '.join(missing)} is not found in {reader.path!r} checkpoint")
        await load_entries(raw, reader, targets, ignore_missing=False, reshape=False)
    return [name for name, _ in targets.values()]
