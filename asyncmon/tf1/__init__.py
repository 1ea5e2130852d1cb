"""TF1's own layout of names, for programs that are ported: ``import asyncmon.tf1 as tf``.

::

    import asyncmon.tf1 as tf

    async def main(argv):
        loss = tf.losses.mean_squared_error(labels, tf.layers.dense(inputs, 1))
        train_op = tf.train.AdamOptimizer().minimize(loss, tf.train.get_or_create_global_step())
        async with tf.train.MonitoredTrainingSession(checkpoint_dir="runs/1") as sess:
            while not sess.should_stop():
                await sess.run(train_op)

    if __name__ == "__main__":
        tf.app.run(main)

A name of TF1 that is missing here raises an AttributeError with the replacement.
"""

import sys as _sys

# isort: off
from asyncmon import errors as errors
from asyncmon.errors import OpError as OpError
from asyncmon.graph import *
from asyncmon.graph.ops.variable_ops import *
from asyncmon.protobuf.graph_def import *
from asyncmon.summary.events import *
from asyncmon.tf1.check_ops import *
from asyncmon.tf1.config_proto import *
from asyncmon.tf1.file_ops import *
from asyncmon.tf1.functional_ops import *
from asyncmon.tf1.logging import get_logger as get_logger
from asyncmon.tf1.old_names import *
from asyncmon.tf1.ops.matrices import *
from asyncmon.tf1.ops.segments import *
from asyncmon.tf1.ops.sequences import *
from asyncmon.tf1.ops.sparse import *
from asyncmon.tf1.ops.strings import *
from asyncmon.tf1.ops.tensor_array import TensorArray as TensorArray
from asyncmon.tf1.parsing import *
from asyncmon.tf1.readers import *
from asyncmon.tf1.template import *
from asyncmon.tf1.weighting import confusion_matrix as confusion_matrix
from asyncmon.tf1.image import random_crop as random_crop
from asyncmon.tf1 import app, compat, contrib, flags as flags, gfile, image, io, layers
from asyncmon.tf1 import logging, losses, metrics, nn, python_io, rnn_cell as _rnn_cell, summary, train
from asyncmon.tf1.namespaces import open_namespace as _open_namespace
from asyncmon.tf1.namespaces import small_namespaces as _small_namespaces
# isort: on

VERSION = "1.15.0"
"""The release of TF1 whose names these are, for programs that compare versions."""

__version__ = VERSION

_small = _small_namespaces(_sys.modules[__name__])
debugging, dtypes, initializers, vars(io)["gfile"], linalg, manip, math, random, sparse, strings = (
    _small
)

for _module in (
    _sys.modules[__name__], app, compat, contrib, contrib.estimator, contrib.framework, contrib.layers,
    contrib.rnn, contrib.seq2seq, contrib.slim, contrib.slim.prefetch_queue, contrib.training, gfile,
    image, io, layers, logging, losses, metrics, nn, python_io, _rnn_cell, summary, train, *_small,
):  # fmt: skip
    _open_namespace(_module)

for _name in vars(_sys.modules[__name__])["_hidden"]:  # no code here uses the imports of others
    del vars(_sys.modules[__name__])[_name]
