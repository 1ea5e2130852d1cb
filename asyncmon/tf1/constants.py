"""Constants of TF1."""

from __future__ import annotations

from enum import Enum, StrEnum

__all__ = [
    "VERSION", "AggregationMethod", "UnconnectedGradients", "VariableAggregation",
    "VariableSynchronization", "__version__",
]  # fmt: skip

VERSION = "1.15.0"
"""The release of TF1 whose names these are, for programs that compare versions."""

__version__ = VERSION


class AggregationMethod:
    """How ``gradients`` adds up; there is one way here. TF1: same name."""

    ADD_N = DEFAULT = 0
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


class UnconnectedGradients(StrEnum):
    """What ``gradients`` returns of what does not depend: None or zeros. TF1: same name."""

    NONE = "none"
    ZERO = "zero"


class VariableSynchronization(Enum):
    """For ``get_variable(synchronization=)``, without effect here. TF1: same name."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(Enum):
    """For ``get_variable(aggregation=)``, without effect here. TF1: same name."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


class SaverDef:
    """The formats of TF1's checkpoints, for ``Saver(write_version=...)``, which has one of its own.

    TF1: ``tf.train.SaverDef``, for its constants.
    """

    LEGACY = 0
    V1 = 1
    V2 = 2
