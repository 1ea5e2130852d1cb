"""Checkpoints that are never torn, never lost, and cost a step nothing.

A :class:`Saver` writes snapshots of a session while steps go on, and restores them. The functions find,
read and verify the checkpoints of a directory. Any session that has ``snapshot()`` and ``load(values)``
can be saved.

::

    saver = Saver(max_to_keep=3)
    handle = saver.start_save(session, "runs/model.ckpt", global_step=100)  # the snapshot is taken now
    ...                                                                     # steps go on
    path = await handle                                                     # "runs/model.ckpt-100"
    path = await saver.restore_latest(session, "runs")                      # the newest that verifies

The files are described byte for byte in :mod:`~asyncmon.checkpoint.manifest`
(``model.ckpt-100.json``, committed last), :mod:`~asyncmon.checkpoint.tensor_file`
(``model.ckpt-100.safetensors``) and :mod:`~asyncmon.checkpoint.state_file` (``checkpoint``).
"""

from asyncmon.checkpoint.latest import latest_checkpoint as latest_checkpoint
from asyncmon.checkpoint.management import Inspected as Inspected
from asyncmon.checkpoint.management import checkpoint_exists as checkpoint_exists
from asyncmon.checkpoint.management import checkpoints_iterator as checkpoints_iterator
from asyncmon.checkpoint.management import get_checkpoint_mtimes as get_checkpoint_mtimes
from asyncmon.checkpoint.management import list_variables as list_variables
from asyncmon.checkpoint.management import load_checkpoint as load_checkpoint
from asyncmon.checkpoint.management import load_variable as load_variable
from asyncmon.checkpoint.management import remove_checkpoint as remove_checkpoint
from asyncmon.checkpoint.management import verify as verify
from asyncmon.checkpoint.management import wait_for_new_checkpoint as wait_for_new_checkpoint
from asyncmon.checkpoint.prune import Pruned as Pruned
from asyncmon.checkpoint.prune import prune as prune
from asyncmon.checkpoint.reader import CheckpointReader as CheckpointReader
from asyncmon.checkpoint.restoring import init_from_checkpoint as init_from_checkpoint
from asyncmon.checkpoint.retention import KeepBest as KeepBest
from asyncmon.checkpoint.save_handle import SaveHandle as SaveHandle
from asyncmon.checkpoint.saveable_session import SaveableSession as SaveableSession
from asyncmon.checkpoint.saver import Saver as Saver
from asyncmon.checkpoint.state_file import CheckpointState as CheckpointState
from asyncmon.checkpoint.state_file import (
    generate_checkpoint_state_proto as generate_checkpoint_state_proto,
)
from asyncmon.checkpoint.state_file import get_checkpoint_state as get_checkpoint_state
from asyncmon.checkpoint.state_file import update_checkpoint_state as update_checkpoint_state
from asyncmon.checkpoint.stateful import Stateful as Stateful
