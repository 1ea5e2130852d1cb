"""Constants of TF1."""

from __future__ import annotations

__all__ = ["VERSION", "__version__"]

VERSION = "1.15.0"
"""The release of TF1 whose names these are, for programs that compare versions."""

__version__ = VERSION


class SaverDef:
    """The values of ``Saver(write_version=...)``. TF1: ``tf.train.SaverDef``, for its constants."""

    LEGACY = 0
    V1 = 1
    V2 = 2
