"""Constants of TF1."""

from __future__ import annotations

__all__ = ["VERSION", "AggregationMethod", "__version__"]

VERSION = "1.15.0"
"""The release of TF1 whose names these are, for programs that compare versions."""

__version__ = VERSION


class AggregationMethod:
    """How ``gradients`` adds up; there is one way here. TF1: same name."""

    ADD_N = DEFAULT = 0
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


class SaverDef:
    """The values of ``Saver(write_version=...)``. TF1: ``tf.train.SaverDef``, for its constants."""

    LEGACY = 0
    V1 = 1
    V2 = 2
