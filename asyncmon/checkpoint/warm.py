"""Warm starts: some variables of a new session from another's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asyncmon.checkpoint.inspection import load_checkpoint
from asyncmon.checkpoint.renaming import entry_for
from asyncmon.checkpoint.restoring import load_entries
from asyncmon.checkpoint.selection import name_of
from asyncmon.checkpoint.sessions import raw_session, state_spec
from asyncmon.errors import InvalidArgumentError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

__all__ = ["init_from_checkpoint"]


async def init_from_checkpoint(
    sess: Any,
    ckpt_dir_or_file: str | os.PathLike[str],
    assignment_map: Mapping[str, Any] | Iterable[tuple[str, Any]],
) -> list[str]:
    """Load some of a session's variables from a checkpoint: all that the map covers, or none.

    TF1: same name, there before there is a session and with its default graph. Here it belongs where
    values are set: in a scaffold's ``init_fn``, which runs after the initialisers and only where
    nothing was restored.

    Args:
        sess: the session.
        ckpt_dir_or_file: a checkpoint, or a directory whose newest one is taken; TensorFlow's too.
        assignment_map: names in the checkpoint to variables, or names of them, in the session; or a
            list of such pairs, where a name may come twice. Names that end with ``/`` are scopes,
            ``"/"`` is the outermost one.

    Returns:
        The names in the session that were set.

    Raises:
        ValueError: the map covers no variable, the checkpoint lacks one, or shapes or dtypes differ;
            all are named.

    Example::

        async def init_fn(scaffold, session):
            await init_from_checkpoint(session, "runs/pretrained", {"encoder/": "model/encoder/"})
    """
    raw = raw_session(sess)
    pairs = [
        (entry, target if isinstance(target, str) and target.endswith("/") else name_of(target))
        for entry, target in _pairs(assignment_map)
    ]
    spec = await state_spec(raw)
    entries = {name: entry_for(name, pairs) for name in spec.known}
    targets = {name: (entry, spec.known[name]) for name, entry in entries.items() if entry}
    unmatched = [target for _, target in pairs if not target.endswith("/") and target not in spec.known]
    if unmatched or (pairs and not targets):
        raise ValueError(
            f"assignment_map {pairs!r} names {unmatched or 'no variable of the session'}; the"
            f" session has: {', '.join(map(repr, sorted(spec.known)[:20]))}."
        )
    async with await load_checkpoint(ckpt_dir_or_file) as reader:
        shapes = reader.get_variable_to_shape_map()
        missing = sorted(
            f"{name} ({entry!r})" for name, (entry, _) in targets.items() if entry not in shapes
        )
        if missing:
            raise ValueError(f"{', '.join(missing)} is not found in {reader.path!r} checkpoint")
        try:
            await load_entries(raw, reader, targets, ignore_missing=False, reshape=False)
        except InvalidArgumentError as error:
            raise ValueError(error.message) from error
    return list(targets)


def _pairs(assignment_map: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return list(assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map)
