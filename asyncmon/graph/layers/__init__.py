"""Layers that create their variables. TF1: ``tf.layers``.

::

    hidden = layers.dense(images, 128, activation=nn.relu)       # dense/kernel, dense/bias
    logits = layers.dense(layers.dropout(hidden, 0.4, training=is_training), 10)

Calls of one layer object share its variables; the function of the same name calls a new layer once. The
variables are trained and saved. The losses of regularizers are added to
``GraphKeys.REGULARIZATION_LOSSES``. Optimizers apply constraints after each update.
"""

# fmt: off
# isort: off
from asyncmon.graph.layers.batch_norm import BatchNormalization, batch_normalization
from asyncmon.graph.layers.conv import (
    Conv1D, Conv2D, Conv2DTranspose, conv1d, conv2d, conv2d_transpose,
)
from asyncmon.graph.layers.core import Dense, Dropout, Flatten, dense, dropout, flatten
from asyncmon.graph.layers.layer import Layer
from asyncmon.graph.layers.pool import (
    AveragePooling1D, AveragePooling2D, MaxPooling1D, MaxPooling2D, average_pooling1d,
    average_pooling2d, max_pooling1d, max_pooling2d,
)
# isort: on

__all__ = [
    "AveragePooling1D", "AveragePooling2D", "BatchNormalization", "Conv1D", "Conv2D", "Conv2DTranspose",
    "Dense", "Dropout", "Flatten", "Layer", "MaxPooling1D", "MaxPooling2D",
    "average_pooling1d", "average_pooling2d", "batch_normalization", "conv1d",
    "conv2d", "conv2d_transpose", "dense", "dropout", "flatten", "max_pooling1d", "max_pooling2d",
]
# fmt: on


def __dir__() -> list[str]:
    return __all__
