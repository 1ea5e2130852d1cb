"""Read and write the state file of a directory, ``checkpoint``, which lists its checkpoints.

It is a JSON object with the members of :class:`CheckpointState`. Paths are relative to the directory,
so that it can be moved. State files of TensorFlow (text protocol buffers with the same members) are
read, too.

A checkpoint leaves the list before it is deleted.
"""

from __future__ import annotations

import ast
import json
import logging
import math
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.os_errors import op_errors, read_errors
from asyncmon.checkpoint.retention import Kept
from asyncmon.checkpoint.store import Store, replace_files
from asyncmon.errors import DataLossError
from asyncmon.system.files import in_thread
from asyncmon.system.notebook import checkpoint_table

STATE_NAME = "checkpoint"

logger = logging.getLogger(__name__)

_MALFORMED = KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError
_TEXT_PROTO = r'^(\w+): (?:"((?:[^"\\]|\\.)*)"|(-?[\d.e+-]+))$'


class CheckpointState(NamedTuple):
    """The content of a state file. TF1: ``tf.train.CheckpointState``.

    Times are in seconds since 1970. ``last_preserved_timestamp`` is the last mark of
    ``keep_checkpoint_every_n_hours``. asyncmon reads it from manifests, and from here only in a
    directory of TensorFlow.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: Sequence[str] = ()
    all_model_checkpoint_timestamps: Sequence[float] = ()
    last_preserved_timestamp: float | None = None

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        times = dict(
            zip(self.all_model_checkpoint_paths, self.all_model_checkpoint_timestamps, strict=False)
        )
        paths = self.all_model_checkpoint_paths or [self.model_checkpoint_path]
        return checkpoint_table([(path, times.get(path)) for path in paths])


async def get_checkpoint_state(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> CheckpointState | None:
    """Return the state file of a directory, with its paths joined to the directory, or None.

    TF1: same name. A file that cannot be parsed is ignored with a warning.

    Raises:
        ValueError: the state file names no checkpoint.
    """
    store = locations.open_store(os.fspath(checkpoint_dir))
    state = await in_thread(read_state, store, latest_filename or STATE_NAME)
    if state is not None and not state.model_checkpoint_path:
        raise ValueError(f"Invalid checkpoint state loaded from {store.directory}")
    return state


async def update_checkpoint_state(
    save_dir: str | os.PathLike[str],
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """Replace a directory's state file. TF1: same name.

    Args:
        save_dir: the directory.
        model_checkpoint_path: the newest checkpoint.
        all_model_checkpoint_paths: oldest first. The newest one is added if it is not the last.
        latest_filename: the name of the state file, ``checkpoint`` by default.
        all_model_checkpoint_timestamps: their times in seconds since 1970.
        last_preserved_timestamp: the last mark of ``keep_checkpoint_every_n_hours``.

    Raises:
        RuntimeError: the checkpoint has the path of the state file itself.
        ValueError: the numbers of times and paths differ.
    """
    given = all_model_checkpoint_paths, all_model_checkpoint_timestamps, last_preserved_timestamp
    state = _checkpoint_state(model_checkpoint_path, *given)
    store, name = locations.open_store(os.fspath(save_dir)), latest_filename or STATE_NAME
    await in_thread(write_state, store, state, name)


def generate_checkpoint_state_proto(
    save_dir: str | os.PathLike[str],
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> CheckpointState:
    """Return the state of a directory. TF1: same name.

    If ``save_dir`` is relative, paths are made relative to it.

    Raises:
        ValueError: the numbers of times and paths differ.
    """
    given = all_model_checkpoint_paths, all_model_checkpoint_timestamps, last_preserved_timestamp
    state = _checkpoint_state(model_checkpoint_path, *given)

    def below(path: str) -> str:
        return (
            path if os.path.isabs(save_dir) or os.path.isabs(path) else os.path.relpath(path, save_dir)
        )

    return state._replace(
        model_checkpoint_path=below(state.model_checkpoint_path),
        all_model_checkpoint_paths=list(map(below, state.all_model_checkpoint_paths)),
    )


def _checkpoint_state(
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None,
    all_model_checkpoint_timestamps: Sequence[float] | None,
    last_preserved_timestamp: float | None,
) -> CheckpointState:
    path = os.fspath(model_checkpoint_path)
    paths = [os.fspath(path) for path in all_model_checkpoint_paths or ()]
    if paths and paths[-1] != path:
        logger.info("%s is not in all_model_checkpoint_paths. Manually adding it.", path)
    if not paths or paths[-1] != path:
        paths.append(path)
    times = list(all_model_checkpoint_timestamps or ())
    if times and len(times) != len(paths):
        raise ValueError(
            "Checkpoint timestamps, if provided, must match checkpoint paths (got paths"
            f" {paths} and timestamps {times})."
        )
    return CheckpointState(path, paths, times, last_preserved_timestamp)


def read_state(store: Store, name: str) -> CheckpointState | None:
    """Return the content of a state file; None if it is missing, or damaged (logged). Blocking.

    Raises:
        OpError: it cannot be read in this environment.
    """
    return read_text(store, name).state


class StateText(NamedTuple):
    """A state file: its bytes, None without one, and its content, None if that is no state."""

    data: bytes | None
    state: CheckpointState | None


def read_text(store: Store, name: str) -> StateText:
    """Read a state file, see :func:`read_state`. Blocking."""
    where = locations.join(store.directory, name)
    data: bytes | None = None
    try:
        with read_errors(f"The state file {where!r}"):
            try:
                data = store.content(name)
            except FileNotFoundError:
                return StateText(None, None)
        return StateText(data, _joined(store.directory, _parse(data)))
    except DataLossError as error:
        logger.warning("%s: Checkpoint ignored", error)
    except _MALFORMED as error:
        logger.warning("%s: %r: Checkpoint ignored", where, error)
    return StateText(data, None)


def _joined(directory: str, state: CheckpointState) -> CheckpointState:
    newest = state.model_checkpoint_path
    return state._replace(
        model_checkpoint_path=locations.join(directory, newest) if newest else "",
        all_model_checkpoint_paths=[
            locations.join(directory, path) for path in state.all_model_checkpoint_paths
        ],
    )


def state_of(newest: str, listed: Sequence[Kept], preserved: float | None) -> CheckpointState:
    """Return the state of a directory with these checkpoints."""
    paths, times = [one.path for one in listed], [one.time for one in listed]
    return CheckpointState(newest, paths, times, preserved)


def write_state(store: Store, state: CheckpointState, name: str) -> bytes:
    """Replace a state file durably, and return its content, or leave it unchanged. Blocking."""
    data = encode_state(store.directory, state, name)
    with op_errors(f"{name!r} in {store.directory!r} was not written", store.describe):
        try:
            before = store.content(name)
        except FileNotFoundError:
            before = None
        replace_files(store, {name: data}, {name: before})
    return data


def encode_state(directory: str, state: CheckpointState, name: str, *, relative: bool = True) -> bytes:
    """Return the content of a directory's state file, with relative or absolute paths.

    Raises:
        RuntimeError: the checkpoint has the path of the state file itself.
    """
    if locations.relative(directory, state.model_checkpoint_path) == name:
        raise RuntimeError(
            f"Save path '{state.model_checkpoint_path}' conflicts with path used for checkpoint state. "
            " Please use a different save path."
        )
    times = [None if math.isinf(time) else time for time in state.all_model_checkpoint_timestamps]

    def written(path: str) -> str:
        return locations.relative(directory, path) if relative else locations.absolute(path)

    members = {
        "model_checkpoint_path": written(state.model_checkpoint_path),
        "all_model_checkpoint_paths": list(map(written, state.all_model_checkpoint_paths)),
        "all_model_checkpoint_timestamps": times,
        "last_preserved_timestamp": state.last_preserved_timestamp,
    }
    return json.dumps(members, indent=1).encode() + b"\n"


def is_state(data: bytes) -> bool:
    """Return whether this is the content of a state file."""
    try:
        return bool(_parse(data).model_checkpoint_path)
    except _MALFORMED:
        return False


def _parse(data: bytes) -> CheckpointState:
    text = data.decode()
    members = json.loads(text) if text.lstrip().startswith("{") else _parse_text_proto(text)
    times = members.get("all_model_checkpoint_timestamps") or ()
    preserved = members.get("last_preserved_timestamp")
    return CheckpointState(
        model_checkpoint_path=_text(members.get("model_checkpoint_path", "")),
        all_model_checkpoint_paths=list(map(_text, members.get("all_model_checkpoint_paths", ()))),
        all_model_checkpoint_timestamps=[math.inf if time is None else float(time) for time in times],
        last_preserved_timestamp=None if preserved is None else float(preserved),
    )


def _text(member: Any) -> str:
    if not isinstance(member, str) or "\0" in member:
        raise TypeError(f"{member!r} is no path")
    return member


def _parse_text_proto(text: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = re.match(_TEXT_PROTO, line)
        if match is None:
            raise ValueError(f"{line!r} is neither JSON nor a text protocol buffer")
        name, quoted, number = match.groups()
        value = number if quoted is None else ast.literal_eval(f'b"{quoted}"').decode()
        if name.startswith("all_"):
            members.setdefault(name, []).append(value)
        else:
            members[name] = value
    return members
