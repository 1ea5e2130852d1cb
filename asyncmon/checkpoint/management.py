"""List, await, inspect, verify and remove checkpoints."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from asyncmon.checkpoint.commit import remove
from asyncmon.checkpoint.directory import (
    Finder,
    candidates,
    checkpoint_exists,
    latest_checkpoint,
    load_checkpoint,
    located,
    main_file,
)
from asyncmon.checkpoint.dtypes import Array
from asyncmon.checkpoint.manifest_reader import Facts
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.safetensors_file import is_plain
from asyncmon.checkpoint.saveable_session import RESERVED, SaverMembers
from asyncmon.checkpoint.state_file import get_checkpoint_state
from asyncmon.checkpoint.tf_checkpoint import index_name, is_part
from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.system import clock
from asyncmon.system.files import in_thread
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
    elif not remove(store, basename):
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
        The checkpoints, the newest first, including missing ones in the state file.
    """
    path = os.fspath(ckpt_dir_or_file)
    if is_plain(path) or await checkpoint_exists(path):
        return [await _inspect(path)]
    return [await _inspect(found) async for found in candidates(path, everything=True)]


async def _inspect(path: str) -> Inspected:
    facts = None
    try:
        async with await CheckpointReader.open(path) as reader:
            facts = reader.facts
            await reader.verify()
    except (NotFoundError, DataLossError) as error:
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
    elif state is not None and members.continue_from is not None:
        await members.continue_from(directory)
    elif state is not None:
        await saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
    return path
