"""Pipelines: producers beside a learner, each element consumed exactly once. See ``sess.produce``."""

from asyncmon.runtime.pipelines.batches import Batches
from asyncmon.runtime.pipelines.item import Item
from asyncmon.runtime.pipelines.lease import Lease
from asyncmon.runtime.pipelines.pipeline import Pipeline
from asyncmon.runtime.pipelines.policy import Policy
from asyncmon.runtime.pipelines.workers import Executor

__all__ = ["Batches", "Executor", "Item", "Lease", "Pipeline", "Policy"]
__dir__ = __all__.copy
