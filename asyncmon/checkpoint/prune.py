"""Delete old checkpoints of a directory into which no process saves."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from asyncmon.checkpoint.commit import Claims, remove
from asyncmon.checkpoint.locations import own_path, split
from asyncmon.checkpoint.management import Inspected, verify
from asyncmon.checkpoint.retention import KeepBest, Kept, Retention
from asyncmon.checkpoint.state_file import STATE_NAME, read_state, state_of, write_state
from asyncmon.checkpoint.store import Store
from asyncmon.errors import NotFoundError
from asyncmon.system.files import FileCalls, in_thread


class Pruned(NamedTuple):
    """The result of :func:`prune`: checkpoints, oldest first."""

    kept: list[str]
    deleted: list[str]
    damaged: list[Inspected]
    """Damaged checkpoints, which are neither counted nor deleted."""


async def prune(
    checkpoint_dir: str | os.PathLike[str],
    max_to_keep: int = 5,
    *,
    keep_best: KeepBest | None = None,
    dry_run: bool = False,
    calls: FileCalls | None = None,
) -> Pruned:
    """Keep the newest checkpoints of a directory, and the best ones; delete the others.

    All checkpoints that verify count, including permanent ones (``keep_checkpoint_every_n_hours``). The
    state file is updated before the first deletion. Checkpoints that a reader has open stay. A
    cancellation leaves no checkpoint partly deleted.

    Args:
        checkpoint_dir: a path or URL.
        max_to_keep: the number of newest checkpoints to keep, at least 1.
        keep_best: also keep the best checkpoints by a metric.
        dry_run: only return the checkpoints to delete.
        calls: the system calls to write with, for tests of crashes.

    Raises:
        NotFoundError: no checkpoint in the directory verifies.
        FailedPreconditionError: another process saves there.
        ValueError: ``max_to_keep`` is below 1, or no checkpoint has the metric of ``keep_best``.
    """
    if max_to_keep < 1:
        raise ValueError(f"max_to_keep is a number of checkpoints, at least 1, got {max_to_keep!r}.")
    directory = os.fspath(checkpoint_dir)
    claims = Claims(calls)
    found = await in_thread(_of_directory, await verify(directory), directory)
    whole = [
        Kept(one.path, one.facts.wall_time, one.facts.metrics)
        for one in found
        if one.problem is None and one.facts is not None and one.facts.wall_time is not None
    ]
    damaged = [one for one in reversed(found) if one.problem is not None]
    if not whole:
        others = " but those of TensorFlow" if len(damaged) < len(found) else ""
        raise NotFoundError(
            f"There is no valid checkpoint in {directory!r}{others}: nothing is deleted."
        )
    metrics = sorted({name for one in whole for name in one.metrics})
    if keep_best is not None and keep_best.metric not in metrics:
        raise ValueError(
            f"No checkpoint in {directory!r} has the metric {keep_best.metric!r}: nothing is deleted."
            f" The metrics that there are: {', '.join(metrics) or 'none'}."
        )
    retention = Retention(max_to_keep, 0.0, math.inf, keep_best)
    stay, excess, _ = retention.decide(sorted(whole, key=lambda one: one.time))
    left: list[Kept] = []
    if excess and not dry_run:
        try:
            await in_thread(claims.claim, directory)
            store = claims.open(directory)
            await in_thread(_write_state, store, stay, excess)
            # those that a reader has open
            left = await in_thread(
                lambda: [one for one in excess if not remove(store, split(one.path)[1])]
            )
        finally:
            await in_thread(claims.release)
    deleted = [one.path for one in excess if one not in left]
    return Pruned([one.path for one in (*left, *stay)], deleted, damaged)


def _of_directory(found: Iterable[Inspected], directory: str) -> list[Inspected]:
    # The state file of a copied directory may list the checkpoints of the original.
    inside: dict[str | None, Inspected] = {}
    for one in found:
        inside.setdefault(own_path(directory, one.path), one)
    inside.pop(None, None)
    return list(inside.values())


def _write_state(store: Store, stay: Sequence[Kept], excess: Sequence[Kept]) -> None:
    before = read_state(store, STATE_NAME)
    preserved = None if before is None else before.last_preserved_timestamp
    state = state_of(stay[-1].path, stay, excess, preserved)
    write_state(store, state, STATE_NAME)
