"""TF1: ``tf.train``: sessions, hooks, checkpoints, input queues, optimizers, servers.

:mod:`asyncmon.tf1.namespaces` hides imported names that TF1 does not have here.
"""

from math import log, pi
from typing import Any

from asyncmon import graph as g
from asyncmon.checkpoint import *
from asyncmon.distributed import *
from asyncmon.graph.train import *
from asyncmon.graph.train.averages import assign_moving_average as assign_moving_average
from asyncmon.hooks import *
from asyncmon.protobuf.cluster_def import *
from asyncmon.runtime import *
from asyncmon.summary import *
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


# fmt: off
def cosine_decay_restarts(
    learning_rate: Any, global_step: Any, first_decay_steps: Any, t_mul: float = 2.0,
    m_mul: float = 1.0, alpha: float = 0.0, name: str | None = None,
) -> g.Tensor:
    """Return a rate that falls along a cosine again and again. TF1: same name.

    Each period is ``t_mul`` times as long as the last one, and starts with ``m_mul`` times its rate;
    ``alpha`` is the least rate as a fraction of ``learning_rate``.
    """
    if global_step is None:
        raise ValueError("global_step is required for cosine_decay_restarts.")
    with g.name_scope(name, "SGDRDecay") as scope:
        rate = g.convert_to_tensor(learning_rate, preferred_dtype=g.float32)
        passed = g.cast(global_step, rate.dtype) / g.cast(first_decay_steps, rate.dtype)
        if t_mul == 1.0:
            number = g.floor(passed)
            passed -= number
        else:
            number = g.floor(g.log(1 - passed * (1 - t_mul)) / log(t_mul))
            length = t_mul**number
            passed = (passed - (1 - length) / (1 - t_mul)) / length
        cosine = 0.5 * m_mul**number * (1 + g.cos(pi * passed))
        return g.multiply(rate, (1 - alpha) * cosine + alpha, scope)
# fmt: on
