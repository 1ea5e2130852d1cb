"""TF1: ``tf.train``: what lies in the top level of asyncmon, and the optimizers of its graph."""

from typing import Any

from asyncmon.checkpoint import CheckpointReader
from asyncmon.checkpoint import CheckpointState as CheckpointState
from asyncmon.checkpoint import Saver as Saver
from asyncmon.checkpoint import checkpoint_exists as checkpoint_exists
from asyncmon.checkpoint import checkpoints_iterator as checkpoints_iterator
from asyncmon.checkpoint import generate_checkpoint_state_proto as generate_checkpoint_state_proto
from asyncmon.checkpoint import get_checkpoint_mtimes as get_checkpoint_mtimes
from asyncmon.checkpoint import get_checkpoint_state as get_checkpoint_state
from asyncmon.checkpoint import latest_checkpoint as latest_checkpoint
from asyncmon.checkpoint import list_variables as list_variables
from asyncmon.checkpoint import load_checkpoint as load_checkpoint
from asyncmon.checkpoint import load_variable as load_variable
from asyncmon.checkpoint import remove_checkpoint as remove_checkpoint
from asyncmon.checkpoint import update_checkpoint_state as update_checkpoint_state
from asyncmon.checkpoint import wait_for_new_checkpoint as wait_for_new_checkpoint
from asyncmon.distributed import ClusterSpec as ClusterSpec
from asyncmon.distributed import replica_device_setter as replica_device_setter
from asyncmon.graph.train import *
from asyncmon.hooks import CheckpointSaverHook as CheckpointSaverHook
from asyncmon.hooks import CheckpointSaverListener as CheckpointSaverListener
from asyncmon.hooks import EarlyStoppingHook as EarlyStoppingHook
from asyncmon.hooks import EvalHook as EvalHook
from asyncmon.hooks import FeedFnHook as FeedFnHook
from asyncmon.hooks import FinalOpsHook as FinalOpsHook
from asyncmon.hooks import GlobalStepWaiterHook as GlobalStepWaiterHook
from asyncmon.hooks import InMemoryEvaluatorHook as InMemoryEvaluatorHook
from asyncmon.hooks import JsonlWriter as JsonlWriter
from asyncmon.hooks import LoggingTensorHook as LoggingTensorHook
from asyncmon.hooks import LoopLagHook as LoopLagHook
from asyncmon.hooks import NanLossDuringTrainingError as NanLossDuringTrainingError
from asyncmon.hooks import NanTensorHook as NanTensorHook
from asyncmon.hooks import ProfilerHook as ProfilerHook
from asyncmon.hooks import ProgressHook as ProgressHook
from asyncmon.hooks import StepCounterHook as StepCounterHook
from asyncmon.hooks import StopAtStepHook as StopAtStepHook
from asyncmon.hooks import SummarySaverHook as SummarySaverHook
from asyncmon.hooks import evaluate as evaluate
from asyncmon.hooks import evaluate_checkpoints as evaluate_checkpoints
from asyncmon.hooks import every as every
from asyncmon.hooks import stop_if_higher as stop_if_higher
from asyncmon.hooks import stop_if_lower as stop_if_lower
from asyncmon.hooks import stop_if_no_decrease as stop_if_no_decrease
from asyncmon.hooks import stop_if_no_increase as stop_if_no_increase
from asyncmon.missing_names import missing_name
from asyncmon.protobuf.cluster_def import ClusterDef as ClusterDef
from asyncmon.protobuf.cluster_def import JobDef as JobDef
from asyncmon.runtime import Channel as Channel
from asyncmon.runtime import ChiefSessionCreator as ChiefSessionCreator
from asyncmon.runtime import Coordinator as Coordinator
from asyncmon.runtime import LooperTask as LooperTask
from asyncmon.runtime import MonitoredSession as MonitoredSession
from asyncmon.runtime import QueueRunner as QueueRunner
from asyncmon.runtime import Recovery as Recovery
from asyncmon.runtime import Scaffold as Scaffold
from asyncmon.runtime import SecondOrStepTimer as SecondOrStepTimer
from asyncmon.runtime import SessionCreator as SessionCreator
from asyncmon.runtime import SessionManager as SessionManager
from asyncmon.runtime import SessionRunArgs as SessionRunArgs
from asyncmon.runtime import SessionRunContext as SessionRunContext
from asyncmon.runtime import SessionRunHook as SessionRunHook
from asyncmon.runtime import SessionRunValues as SessionRunValues
from asyncmon.runtime import SingularMonitoredSession as SingularMonitoredSession
from asyncmon.runtime import StepContext as StepContext
from asyncmon.runtime import Supervisor as Supervisor
from asyncmon.runtime import WorkerSessionCreator as WorkerSessionCreator
from asyncmon.runtime import add_queue_runner as add_queue_runner
from asyncmon.runtime import basic_train_loop as basic_train_loop
from asyncmon.runtime import start_queue_runners as start_queue_runners
from asyncmon.summary import FileWriter
from asyncmon.summary import summary_iterator as summary_iterator
from asyncmon.summary import write_graph as write_graph
from asyncmon.tf1.batching import batch as batch
from asyncmon.tf1.batching import batch_join as batch_join
from asyncmon.tf1.batching import shuffle_batch as shuffle_batch
from asyncmon.tf1.batching import shuffle_batch_join as shuffle_batch_join
from asyncmon.tf1.constants import SaverDef as SaverDef
from asyncmon.tf1.example import BytesList as BytesList
from asyncmon.tf1.example import Example as Example
from asyncmon.tf1.example import Feature as Feature
from asyncmon.tf1.example import FeatureList as FeatureList
from asyncmon.tf1.example import FeatureLists as FeatureLists
from asyncmon.tf1.example import Features as Features
from asyncmon.tf1.example import FloatList as FloatList
from asyncmon.tf1.example import Int64List as Int64List
from asyncmon.tf1.example import SequenceExample as SequenceExample
from asyncmon.tf1.init_from_checkpoint import init_from_checkpoint as init_from_checkpoint
from asyncmon.tf1.input import input_producer as input_producer
from asyncmon.tf1.input import limit_epochs as limit_epochs
from asyncmon.tf1.input import match_filenames_once as match_filenames_once
from asyncmon.tf1.input import range_input_producer as range_input_producer
from asyncmon.tf1.input import slice_input_producer as slice_input_producer
from asyncmon.tf1.input import string_input_producer as string_input_producer
from asyncmon.tf1.moving_averages import assign_moving_average as assign_moving_average
from asyncmon.training import MonitoredTrainingSession as MonitoredTrainingSession

LooperThread = LooperTask
NewCheckpointReader = CheckpointReader.open
SummaryWriter = FileWriter
piecewise_constant_decay = piecewise_constant


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "train.", globals())
