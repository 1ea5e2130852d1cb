"""TF1: ``tf.train``: sessions, hooks, checkpoints, input queues, optimizers, servers."""

# fmt: off
# isort: off
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
from asyncmon.tf1.decay import cosine_decay_restarts
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
