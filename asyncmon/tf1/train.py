"""TF1: ``tf.train``: sessions, hooks, checkpoints, input queues, optimizers, servers.

:mod:`asyncmon.tf1.namespaces` hides imported names that TF1 does not have here.
"""

from asyncmon.checkpoint import *
from asyncmon.distributed import *
from asyncmon.graph.train import *
from asyncmon.graph.train.averages import assign_moving_average as assign_moving_average
from asyncmon.hooks import *
from asyncmon.protobuf.cluster_def import *
from asyncmon.runtime import *
from asyncmon.summary import *
from asyncmon.tf1.decays import *
from asyncmon.tf1.example import *
from asyncmon.tf1.init_from_checkpoint import *  # type: ignore[assignment]  # hides the runtime's
from asyncmon.tf1.input import *
from asyncmon.training import *

LooperThread = LooperTask
NewCheckpointReader = CheckpointReader.open
SummaryWriter = FileWriter
piecewise_constant_decay = piecewise_constant


class SaverDef:
    """The values of ``Saver(write_version=...)``. TF1: ``tf.train.SaverDef``, for its constants."""

    LEGACY = 0
    V1 = 1
    V2 = 2
