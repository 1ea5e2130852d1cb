"""TF1: ``tf.train``: sessions, hooks, checkpoints, input queues, optimizers, servers."""

from math import log, pi
from typing import Any

# fmt: off
# isort: off
from asyncmon import graph as g
from asyncmon.tf1.warm_start import init_from_checkpoint
from asyncmon.checkpoint import (
    CheckpointReader, CheckpointState, Saver, checkpoint_exists, checkpoints_iterator,
    generate_checkpoint_state_proto, get_checkpoint_mtimes, get_checkpoint_state, latest_checkpoint,
    list_variables, load_checkpoint, load_variable, remove_checkpoint, update_checkpoint_state,
    wait_for_new_checkpoint,
)
from asyncmon.distributed import ClusterSpec, Server, replica_device_setter
from asyncmon.graph import (
    assert_global_step, create_global_step, get_global_step, get_or_create_global_step, global_step,
)
from asyncmon.graph.train import (
    AdagradOptimizer, AdamOptimizer, AdamWOptimizer, ExponentialMovingAverage,
    GradientDescentOptimizer, MomentumOptimizer, Optimizer, RMSPropOptimizer, cosine_decay,
    exponential_decay, inverse_time_decay, natural_exp_decay, piecewise_constant, polynomial_decay,
)
from asyncmon.graph.train.averages import assign_moving_average
from asyncmon.hooks import (
    CheckpointSaverHook, CheckpointSaverListener, FeedFnHook, FinalOpsHook, GlobalStepWaiterHook,
    LoggingTensorHook, NanLossDuringTrainingError, NanTensorHook, ProfilerHook, StepCounterHook,
    StopAtStepHook, SummarySaverHook,
)
from asyncmon.protobuf.cluster_def import ClusterDef, JobDef, ServerDef
from asyncmon.runtime import (
    ChiefSessionCreator, Coordinator, LooperTask, MonitoredSession, QueueRunner, Scaffold,
    SecondOrStepTimer, SessionCreator, SessionManager, SessionRunArgs, SessionRunContext,
    SessionRunHook, SessionRunValues, SingularMonitoredSession, StepContext, Supervisor,
    WorkerSessionCreator, add_queue_runner, basic_train_loop, start_queue_runners,
)
from asyncmon.summary import FileWriter, summary_iterator, write_graph
from asyncmon.tf1.example import (
    BytesList, Example, Feature, FeatureList, FeatureLists, Features, FloatList, Int64List,
    SequenceExample,
)
from asyncmon.tf1.input import (
    batch, batch_join, input_producer, limit_epochs, match_filenames_once, maybe_batch,
    maybe_batch_join, maybe_shuffle_batch, maybe_shuffle_batch_join, range_input_producer,
    shuffle_batch, shuffle_batch_join, slice_input_producer, string_input_producer,
)
from asyncmon.tf1.optimizers import AdadeltaOptimizer, FtrlOptimizer
from asyncmon.training import MonitoredTrainingSession
# isort: on

__all__ = [
    "AdadeltaOptimizer", "AdagradOptimizer", "AdamOptimizer", "AdamWOptimizer", "BytesList",
    "CheckpointReader", "CheckpointSaverHook", "CheckpointSaverListener", "CheckpointState",
    "ChiefSessionCreator", "ClusterDef", "ClusterSpec", "Coordinator", "Example",
    "ExponentialMovingAverage", "Feature", "FeatureList", "FeatureLists", "Features", "FeedFnHook",
    "FinalOpsHook", "FloatList", "FtrlOptimizer", "GlobalStepWaiterHook",
    "GradientDescentOptimizer", "Int64List", "JobDef", "LoggingTensorHook", "LooperTask",
    "LooperThread", "MomentumOptimizer", "MonitoredSession", "MonitoredTrainingSession",
    "NanLossDuringTrainingError", "NanTensorHook", "NewCheckpointReader", "Optimizer",
    "ProfilerHook", "QueueRunner", "RMSPropOptimizer", "Saver", "SaverDef", "Scaffold",
    "SecondOrStepTimer", "SequenceExample", "Server", "ServerDef", "SessionCreator",
    "SessionManager", "SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues",
    "SingularMonitoredSession", "StepContext", "StepCounterHook", "StopAtStepHook",
    "SummarySaverHook", "SummaryWriter", "Supervisor", "WorkerSessionCreator", "add_queue_runner",
    "assert_global_step", "assign_moving_average", "basic_train_loop", "batch", "batch_join",
    "checkpoint_exists", "checkpoints_iterator", "cosine_decay", "cosine_decay_restarts",
    "create_global_step", "exponential_decay", "generate_checkpoint_state_proto",
    "get_checkpoint_mtimes", "get_checkpoint_state", "get_global_step", "get_or_create_global_step",
    "global_step", "init_from_checkpoint", "input_producer", "inverse_time_decay",
    "latest_checkpoint", "limit_epochs", "list_variables", "load_checkpoint", "load_variable",
    "match_filenames_once", "maybe_batch", "maybe_batch_join", "maybe_shuffle_batch",
    "maybe_shuffle_batch_join", "natural_exp_decay", "piecewise_constant",
    "piecewise_constant_decay", "polynomial_decay", "range_input_producer", "remove_checkpoint",
    "replica_device_setter", "shuffle_batch", "shuffle_batch_join", "slice_input_producer",
    "start_queue_runners", "string_input_producer", "summary_iterator", "update_checkpoint_state",
    "wait_for_new_checkpoint", "write_graph",
]
# fmt: on

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
