"""The standard hooks.

Each is a :class:`~asyncmon.runtime.SessionRunHook`. With an interval in steps, a hook acts in the run
that reaches the step; with an interval in seconds, in a background task::

    hooks = [
        StopAtStepHook(last_step=10_000),
        NanTensorHook(loss),
        LoggingTensorHook({"loss": loss}, every_n_secs=10),
        CheckpointSaverHook("runs/digits", save_secs=60, scaffold=scaffold),
    ]
    async with MonitoredSession(ChiefSessionCreator(scaffold), hooks) as sess:
        while not sess.should_stop():
            await sess.run(train_op)

Guards (NaN) are called before all other hooks and savers after them, in any order of the list.
"""

# fmt: off
# isort: off
from asyncmon.hooks.checkpoint_listeners import CheckpointSaverListener
from asyncmon.hooks.checkpoint_saver import CheckpointSaverHook, RestoreBestHook
from asyncmon.hooks.cluster import ClusterHook, GlobalStepWaiterHook
from asyncmon.hooks.curves import CurvesHook
from asyncmon.hooks.eval_hook import EvalHook, Evaluations, TrainingMetricsHook
from asyncmon.hooks.evaluation import evaluate, evaluate_checkpoints
from asyncmon.hooks.every import every
from asyncmon.hooks.file_loggers import CsvLogger, TensorBoardLogger
from asyncmon.hooks.hook_support import veto_saving
from asyncmon.hooks.jsonl_writer import JsonlWriter
from asyncmon.hooks.loggers import LoggersHook
from asyncmon.hooks.metric import Metric
from asyncmon.hooks.logging_tensor import LoggingTensorHook
from asyncmon.hooks.loop_lag import LoopLagHook
from asyncmon.hooks.model_summary import ModelSummaryHook
from asyncmon.hooks.moving_average import MovingAverageHook
from asyncmon.hooks.ops_hooks import FeedFnHook, FinalOpsHook
from asyncmon.hooks.profiler import ProfilerHook
from asyncmon.hooks.progress import ProgressHook, StepCounterHook
from asyncmon.hooks.stopping import (
    EarlyStoppingHook, NanLossDuringTrainingError, NanTensorHook, StopAtStepHook, StopRule, stop_if,
)
from asyncmon.hooks.summary_saver import SummarySaverHook
from asyncmon.hooks.trackers import MlflowLogger, WandbLogger

__all__ = [
    "CheckpointSaverHook", "CheckpointSaverListener", "ClusterHook", "CsvLogger", "CurvesHook",
    "EarlyStoppingHook", "EvalHook", "Evaluations", "FeedFnHook", "FinalOpsHook",
    "GlobalStepWaiterHook", "JsonlWriter", "LoggersHook", "LoggingTensorHook", "LoopLagHook",
    "Metric", "MlflowLogger", "ModelSummaryHook", "MovingAverageHook", "NanLossDuringTrainingError",
    "NanTensorHook", "ProfilerHook", "ProgressHook", "RestoreBestHook", "StepCounterHook",
    "StopAtStepHook", "StopRule", "SummarySaverHook", "TensorBoardLogger", "TrainingMetricsHook",
    "WandbLogger", "evaluate", "evaluate_checkpoints", "every", "stop_if", "veto_saving",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
