"""TF1: ``tf.train``: sessions, hooks, checkpoints, input queues, optimizers, servers."""

# fmt: off
# isort: off
from asyncmon.checkpoint import (
    CheckpointReader, CheckpointState as CheckpointState, Saver as Saver,
    checkpoint_exists as checkpoint_exists, checkpoints_iterator as checkpoints_iterator,
    generate_checkpoint_state_proto as generate_checkpoint_state_proto,
    get_checkpoint_mtimes as get_checkpoint_mtimes, get_checkpoint_state as get_checkpoint_state,
    latest_checkpoint as latest_checkpoint, list_variables as list_variables,
    load_checkpoint as load_checkpoint, load_variable as load_variable,
    remove_checkpoint as remove_checkpoint, update_checkpoint_state as update_checkpoint_state,
    wait_for_new_checkpoint as wait_for_new_checkpoint,
)
from asyncmon.distributed import (
    ClusterSpec as ClusterSpec, Server as Server, SyncReplicasOptimizer as SyncReplicasOptimizer,
    replica_device_setter as replica_device_setter,
)
from asyncmon.graph.train import *
from asyncmon.graph.train.averages import assign_moving_average as assign_moving_average
from asyncmon.hooks import (
    CheckpointSaverHook as CheckpointSaverHook, CheckpointSaverListener as CheckpointSaverListener,
    FeedFnHook as FeedFnHook, FinalOpsHook as FinalOpsHook,
    GlobalStepWaiterHook as GlobalStepWaiterHook, InMemoryEvaluatorHook as InMemoryEvaluatorHook,
    LoggingTensorHook as LoggingTensorHook, NanLossDuringTrainingError as NanLossDuringTrainingError,
    NanTensorHook as NanTensorHook, ProfilerHook as ProfilerHook, StepCounterHook as StepCounterHook,
    StopAtStepHook as StopAtStepHook, SummarySaverHook as SummarySaverHook,
    stop_if_higher as stop_if_higher, stop_if_lower as stop_if_lower,
    stop_if_no_decrease as stop_if_no_decrease, stop_if_no_increase as stop_if_no_increase,
)
from asyncmon.protobuf.cluster_def import (
    ClusterDef as ClusterDef, JobDef as JobDef, ServerDef as ServerDef,
)
from asyncmon.runtime import (
    ChiefSessionCreator as ChiefSessionCreator, Coordinator as Coordinator,
    LooperTask as LooperTask, MonitoredSession as MonitoredSession, QueueRunner as QueueRunner,
    Scaffold as Scaffold, SecondOrStepTimer as SecondOrStepTimer,
    SessionCreator as SessionCreator, SessionManager as SessionManager,
    SessionRunArgs as SessionRunArgs, SessionRunContext as SessionRunContext,
    SessionRunHook as SessionRunHook, SessionRunValues as SessionRunValues,
    SingularMonitoredSession as SingularMonitoredSession, StepContext as StepContext,
    Supervisor as Supervisor, WorkerSessionCreator as WorkerSessionCreator,
    add_queue_runner as add_queue_runner, basic_train_loop as basic_train_loop,
    start_queue_runners as start_queue_runners,
)
from asyncmon.summary import (
    FileWriter, summary_iterator as summary_iterator, write_graph as write_graph,
)
from asyncmon.tf1.decays import cosine_decay_restarts as cosine_decay_restarts
from asyncmon.tf1.example import (
    BytesList as BytesList, Example as Example, Feature as Feature, FeatureList as FeatureList,
    FeatureLists as FeatureLists, Features as Features, FloatList as FloatList, Int64List as Int64List,
    SequenceExample as SequenceExample,
)
from asyncmon.tf1.init_from_checkpoint import init_from_checkpoint as init_from_checkpoint
from asyncmon.tf1.input import (
    batch as batch, batch_join as batch_join, shuffle_batch as shuffle_batch,
    shuffle_batch_join as shuffle_batch_join, maybe_batch as maybe_batch,
    maybe_batch_join as maybe_batch_join, maybe_shuffle_batch as maybe_shuffle_batch,
    maybe_shuffle_batch_join as maybe_shuffle_batch_join,
    input_producer as input_producer, limit_epochs as limit_epochs,
    match_filenames_once as match_filenames_once, range_input_producer as range_input_producer,
    slice_input_producer as slice_input_producer, string_input_producer as string_input_producer,
)
from asyncmon.training import MonitoredTrainingSession as MonitoredTrainingSession
# isort: on
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
