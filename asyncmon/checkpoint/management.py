"""List, await, inspect, verify, load, remove and prune checkpoints."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.contents import Facts
from asyncmon.checkpoint.directory import Claims, Directory
from asyncmon.checkpoint.dtypes import Array
from asyncmon.checkpoint.finding import (
    Finder,
    candidates,
    checkpoint_exists,
    latest_checkpoint,
    load_checkpoint,
    located,
    main_file,
)
from asyncmon.checkpoint.locations import own_path, split
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.restoring import entry_for, is_scope, load_entries
from asyncmon.checkpoint.retention import KeepBest, Kept, Retention
from asyncmon.checkpoint.safetensors_file import is_plain
from asyncmon.checkpoint.saveable_session import RESERVED, SaverMembers, raw_session, state_spec
from asyncmon.checkpoint.state_file import (
    STATE_NAME,
    get_checkpoint_state,
)
from asyncmon.checkpoint.store import Store
from asyncmon.checkpoint.tf_checkpoint import index_name, is_part
from asyncmon.checkpoint.variable_selection import name_of
from asyncmon.errors import DataLossError, InvalidArgumentError, NotFoundError
from asyncmon.system import clock
from asyncmon.system.files import FileCalls, in_thread
from asyncmon.system.functions import settled
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)

Path = str | os.PathLike[str]


async def get_checkpoint_mtimes(checkpoint_prefixes: Iterable[Path]) -> list[float]:
    """Return the commit times of existing checkpoints in seconds since 1970. TF1: same name."""

    def mtimes() -> list[float]:
        found = [(store, main_file(store, basename)) for store, basename in places]
        return [store.mtime(name) for store, name in found if name is not None]

    places = [located(prefix) for prefix in checkpoint_prefixes]
    return await in_thread(mtimes)


async def remove_checkpoint(
    checkpoint_prefix: Path, checkpoint_format_version: int = 2, meta_graph_suffix: str = "meta"
) -> None:
    """Delete all files of a checkpoint, asyncmon's or TensorFlow's. TF1: same name.

    If there is no such checkpoint, or a reader has it open, a warning is logged instead. The other two
    arguments have no effect.
    """
    await in_thread(_remove, checkpoint_prefix)


def _remove(prefix: Path) -> None:
    store, basename = located(prefix)
    name = main_file(store, basename)
    if name is None:
        logger.warning("There is no checkpoint %s to remove.", os.fspath(prefix))
    elif name == index_name(basename):
        for part in store.names():
            if is_part(part, basename):
                store.delete(part)
    elif not Directory.of(split(prefix)[0]).remove(store, basename):
        logger.warning("Checkpoint %s is being read, and stays.", os.fspath(prefix))


async def wait_for_new_checkpoint(
    checkpoint_dir: Path,
    last_checkpoint: str | None = None,
    seconds_to_sleep: float = 1,
    timeout: float | None = None,
    *,
    latest_filename: str | None = None,
) -> str | None:
    """Wait until the newest checkpoint is not ``last_checkpoint``, and return it. TF1: same name.

    The result is None after ``timeout`` seconds. The directory is read every ``seconds_to_sleep``
    seconds. A checkpoint that does not verify is skipped, and the reason is logged once.
    """
    finder = Finder(os.fspath(checkpoint_dir), latest_filename)
    return await _wait_for_new(finder, last_checkpoint, seconds_to_sleep, timeout)


async def _wait_for_new(
    finder: Finder, last_checkpoint: str | None, seconds_to_sleep: float, timeout: float | None
) -> str | None:
    logger.info("Waiting for new checkpoint at %s", finder.directory)
    ends = None if timeout is None else clock.monotonic() + timeout
    while True:
        path = await finder.newest()
        if path is not None and path != last_checkpoint:
            logger.info("Found new checkpoint at %s", path)
            return path
        left = seconds_to_sleep if ends is None else min(seconds_to_sleep, ends - clock.monotonic())
        if left <= 0:
            return None
        await asyncio.sleep(left)


async def checkpoints_iterator(
    checkpoint_dir: Path,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool | Awaitable[bool]] | None = None,
    *,
    seconds_to_sleep: float = 1,
    latest_filename: str | None = None,
) -> AsyncIterator[str]:
    """Yield each new latest checkpoint of a directory; superseded ones are skipped.

    TF1: same name.

    Args:
        checkpoint_dir: the directory.
        min_interval_secs: the least interval between two yields.
        timeout: the longest wait for a checkpoint in seconds; None has no limit.
        timeout_fn: called after a timeout and after each yield, plain or async; a true result ends the
            iteration. Without it, a timeout does.
        seconds_to_sleep: the interval in seconds at which the directory is read.
        latest_filename: the name of the state file, ``checkpoint`` by default.
    """
    finder = Finder(os.fspath(checkpoint_dir), latest_filename)
    path: str | None = None
    while True:
        new = await _wait_for_new(finder, path, seconds_to_sleep, timeout)
        if new is not None:
            began = clock.monotonic()
            path = new
            yield path
            await asyncio.sleep(max(0.0, began + min_interval_secs - clock.monotonic()))
        elif timeout_fn is None:
            logger.info("Timed-out waiting for a checkpoint (without timeout_fn).")
            return
        if timeout_fn is not None and await settled(timeout_fn()):
            logger.info("Done. No new checkpoints will be generated.")
            return


async def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Return (name, shape) of each variable, sorted by name. TF1: same name.

    The states of random generators are left out. Raises as :func:`load_checkpoint`.
    """
    async with await load_checkpoint(ckpt_dir_or_file) as reader:
        shapes = sorted(reader.get_variable_to_shape_map().items())
    return [(name, shape) for name, shape in shapes if not name.startswith(RESERVED)]


async def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> Array:
    """Return one entry, verified and read-only. TF1: same name.

    Raises:
        NotFoundError: there is no entry of this name.
        DataLossError: a checksum does not match.
    """
    async with await load_checkpoint(ckpt_dir_or_file) as reader:
        return await reader.get_tensor(name.removesuffix(":0"))


async def init_from_checkpoint(
    sess: Any,
    ckpt_dir_or_file: str | os.PathLike[str],
    assignment_map: Mapping[str, Any] | Iterable[tuple[str, Any]],
    *,
    ignore_mismatched: bool = False,
) -> list[str]:
    """Load the variables in a map from a checkpoint into a session, all or none.

    TF1: same name, but for the default graph and without a session. Call it in a scaffold's
    ``init_fn``, which runs after the initializers, and only if no checkpoint was restored.

    Args:
        sess: the session.
        ckpt_dir_or_file: a checkpoint, or a directory for its newest one; may be TensorFlow's.
        assignment_map: names in the checkpoint to variables in the session or their names, or a list
            of such pairs. Names that end with ``/`` or ``.`` are scopes; ``"/"`` is the root scope.
        ignore_mismatched: keep the values of variables that the checkpoint lacks or has with another
            shape or dtype, such as those of a new head. One warning names them.

    Returns:
        The names of the loaded variables.

    Raises:
        ValueError: the map has no variable; or the checkpoint lacks some, or shapes or dtypes differ,
            without ``ignore_mismatched``.

    Example::

        async def init_fn(scaffold, session):
            await init_from_checkpoint(session, "runs/pretrained", {"encoder/": "model/encoder/"})
    """
    raw = raw_session(sess)
    given = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    pairs = [
        (entry, target if isinstance(target, str) and is_scope(target) else name_of(target))
        for entry, target in given
    ]
    spec = await state_spec(raw)
    entries = {name: entry_for(name, pairs) for name in spec.known}
    targets = {name: (entry, spec.known[name]) for name, entry in entries.items() if entry}
    unmatched = [target for _, target in pairs if not is_scope(target) and target not in spec.known]
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
        if missing and not ignore_mismatched:
            raise ValueError(f"{', '.join(missing)} is not found in {reader.path!r} checkpoint")
        try:
            return await load_entries(raw, reader, targets, ignore_mismatched=ignore_mismatched)
        except InvalidArgumentError as error:
            raise ValueError(error.message) from error


class Inspected(NamedTuple):
    """The result of :func:`verify` for one checkpoint."""

    path: str
    facts: Facts | None
    """None if the checkpoint cannot be opened."""
    problem: str | None
    """A description of the damage; None if all checksums match."""


async def verify(ckpt_dir_or_file: str | os.PathLike[str]) -> list[Inspected]:
    """Read one checkpoint, or all of a directory, and compare all bytes with their checksums.

    Returns:
        The checkpoints, the newest first, including missing ones in the state file. If a directory was
        moved, those are the files in it, not the paths that its state file has from before.
    """
    path = os.fspath(ckpt_dir_or_file)
    if is_plain(path) or await checkpoint_exists(path) or await in_thread(os.path.isfile, path):
        return [await _inspect(path)]
    place, store = await in_thread(Directory.of, path), locations.open_store(path)
    _, text = await in_thread(place.look, store, STATE_NAME)
    found = candidates(place, store, STATE_NAME, text, everything=True)
    return [await _inspect(one) async for one in found if not await in_thread(_has_moved, store, one)]


def _has_moved(store: Store, path: str) -> bool:
    """Return whether a checkpoint at an old path of a directory is in the directory now. Blocking."""
    directory, basename = locations.split(path)
    if locations.own_path(store.directory, path) or main_file(store, basename) is None:
        return False
    return main_file(locations.open_store(directory), basename) is None


async def _inspect(path: str) -> Inspected:
    facts = None
    try:
        async with await CheckpointReader.open(path) as reader:
            facts = reader.facts
            await reader.verify()
    except (NotFoundError, DataLossError, InvalidArgumentError) as error:
        return Inspected(path, facts, str(error))
    return Inspected(path, facts, None)


async def is_kept(live_step: int | None, checkpoint_prefix: str) -> bool:
    """Return whether variables of a global step are kept, as the checkpoint is not newer."""
    if live_step is None:
        return False
    async with await load_checkpoint(checkpoint_prefix) as reader:
        return reader.facts.step is not None and reader.facts.step <= live_step


async def restore_newest(
    saver: Any, sess: Any, directory: str, live_step: int | None = None
) -> str | None:
    """Restore the newest checkpoint that verifies, take over the directory's list, return the prefix.

    Works with any saver that has ``restore(sess, path)``. Returns None if there is no checkpoint.
    Variables at ``live_step`` are kept if the checkpoint is not newer.

    Raises:
        ValueError: there are checkpoints, but none can be restored.
    """
    members, path = members_of(SaverMembers, saver), None
    if members.restore_latest is not None:
        live = {} if live_step is None else {"live_step": live_step}
        path = await members.restore_latest(sess, directory, **live)
    else:
        path = await latest_checkpoint(directory)
        if path is not None and not await is_kept(live_step, path):
            await saver.restore(sess, path)
    if path is not None and members.continue_from is not None:
        await members.continue_from(directory)
        return path
    try:
        state = await get_checkpoint_state(directory)
    except ValueError:  # it names no checkpoint; the restore has logged that
        state = None
    if path is None:
        newest = None if state is None else state.model_checkpoint_path
        if newest is None and members.restore_latest is not None:  # which works without a state file
            newest = next((one.path for one in await verify(directory)), None)
        if newest is not None:
            raise ValueError(
                f"The passed save_path is not a valid checkpoint: {newest}; "
                f"nor is any older one in {directory!r}. Training does not silently start from the"
                " beginning: repair or empty the directory, or use another."
            )
    elif state is not None:
        await saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
    return path


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
        Kept(one.path, one.facts.wall_time, one.facts.metrics, 0, one.facts.step)
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
    place = await in_thread(Directory.of, directory)
    _, text = await in_thread(place.look, locations.open_store(directory), STATE_NAME)
    selected = "" if text.state is None else split(text.state.model_checkpoint_path)[1]
    # the one that the state file selects stays the newest
    whole.sort(key=lambda one: (split(one.path)[1] == selected, one.step or -1, one.time))
    stay, excess, _ = Retention(max_to_keep, 0.0, math.inf, keep_best).decide(whole)
    left: list[Kept] = []
    if excess and not dry_run:
        try:
            store = await in_thread(claims.claim, place)
            preserved = None if text.state is None else text.state.last_preserved_timestamp
            await in_thread(place.keep_only, store, stay, preserved)
            # a reader has them open
            left = await in_thread(
                lambda: [one for one in excess if not place.remove(store, split(one.path)[1])]
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
