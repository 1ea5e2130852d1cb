"""Save, restore, find, read and verify checkpoints.

A :class:`Saver` writes snapshots of a session in the background, and restores them. A crash never
leaves an incomplete checkpoint. Any session with ``snapshot()`` and ``load(values)`` can be saved.

::

    saver = Saver(max_to_keep=3)
    handle = saver.start_save(session, "runs/model.ckpt", global_step=100)  # orders the snapshot
    ...                                                                     # the training continues
    path = await handle                                                     # "runs/model.ckpt-100"
    path = await saver.restore_latest(session, "runs")                      # the newest that verifies

The file formats are described in :mod:`~asyncmon.checkpoint.manifest` (``model.ckpt-100.json``, which
is committed last), :mod:`~asyncmon.checkpoint.tensor_file`
(``model.ckpt-100.safetensors``) and :mod:`~asyncmon.checkpoint.state_file` (``checkpoint``).
"""

# fmt: off
# isort: off
from asyncmon.checkpoint.finding import checkpoint_exists, latest_checkpoint, load_checkpoint
from asyncmon.checkpoint.management import (
    Inspected, Pruned, checkpoints_iterator, get_checkpoint_mtimes, init_from_checkpoint,
    list_variables, load_variable, prune, remove_checkpoint, verify, wait_for_new_checkpoint,
)
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.retention import KeepBest
from asyncmon.checkpoint.save import SaveHandle
from asyncmon.checkpoint.saveable_session import SaveableSession
from asyncmon.checkpoint.saver import Saver
from asyncmon.checkpoint.state_file import (
    CheckpointState, generate_checkpoint_state_proto, get_checkpoint_state, update_checkpoint_state,
)
from asyncmon.checkpoint.stateful import Stateful

__all__ = [
    "CheckpointReader", "CheckpointState", "Inspected", "KeepBest", "Pruned", "SaveHandle",
    "SaveableSession", "Saver", "Stateful", "checkpoint_exists", "checkpoints_iterator",
    "generate_checkpoint_state_proto", "get_checkpoint_mtimes", "get_checkpoint_state",
    "init_from_checkpoint", "latest_checkpoint", "list_variables", "load_checkpoint",
    "load_variable", "prune", "remove_checkpoint", "update_checkpoint_state", "verify",
    "wait_for_new_checkpoint",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
