"""Layers, which create their variables. TF1: ``tf.layers``."""

# fmt: off
# isort: off
from asyncmon.graph.layers.batch_norm import batch_normalization
from asyncmon.graph.layers.layers import (
    average_pooling2d, conv2d, dense, dropout, flatten, max_pooling2d,
)
# isort: on

__all__ = [
    "average_pooling2d", "batch_normalization", "conv2d", "dense", "dropout", "flatten",
    "max_pooling2d",
]
# fmt: on
