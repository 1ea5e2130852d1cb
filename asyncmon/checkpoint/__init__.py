"""Checkpoints that are never torn, never lost, and cost a step nothing.

A :class:`Saver` writes snapshots of a session while steps go on, and restores them; the functions look
after a directory of checkpoints from outside. The room knows nothing of graphs: it saves whatever has
``snapshot()`` and ``load(values)``.

::

    saver = Saver(max_to_keep=3)
    handle = saver.start_save(session, "runs/model.ckpt", global_step=100)  # the snapshot is taken now
    ...                                                                     # steps go on
    path = await handle                                                     # "runs/model.ckpt-100"
    path = await saver.restore_latest(session, "runs")                      # the newest that verifies

How the files look, byte for byte, is said in :mod:`~asyncmon.checkpoint.manifest`
(``model.ckpt-100.json``, committed last), :mod:`~asyncmon.checkpoint.tensor_file`
(``model.ckpt-100.safetensors``) and :mod:`~asyncmon.checkpoint.state_file` (``checkpoint``).
"""

from asyncmon.checkpoint.latest import latest_checkpoint
from asyncmon.checkpoint.management import (
    Inspected,
    checkpoint_exists,
    checkpoints_iterator,
    get_checkpoint_mtimes,
    list_variables,
    load_checkpoint,
    load_variable,
    remove_checkpoint,
    verify,
    wait_for_new_checkpoint,
)
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.restoring import init_from_checkpoint
from asyncmon.checkpoint.retention import KeepBest
from asyncmon.checkpoint.save_handle import SaveHandle
from asyncmon.checkpoint.saveable_session import SaveableSession
from asyncmon.checkpoint.saver import Saver
from asyncmon.checkpoint.state_file import (
    CheckpointState,
    get_checkpoint_state,
    update_checkpoint_state,
)
from asyncmon.checkpoint.stateful import Stateful

__all__ = [
    "CheckpointReader",
    "CheckpointState",
    "Inspected",
    "KeepBest",
    "SaveHandle",
    "SaveableSession",
    "Saver",
    "Stateful",
    "checkpoint_exists",
    "checkpoints_iterator",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "init_from_checkpoint",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "remove_checkpoint",
    "update_checkpoint_state",
    "verify",
    "wait_for_new_checkpoint",
]
