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

A name of TF1 that is missing here raises an AttributeError, which has the replacement or a close name.
"""

import sys as _sys
from types import ModuleType as _ModuleType

# fmt: off
# isort: off
from asyncmon import errors as errors
from asyncmon.errors import OpError as OpError
from asyncmon.graph import *
from asyncmon.graph.ops.variable_ops import count_up_to as count_up_to
from asyncmon.graph.ops.variable_ops import scatter_nd_add as scatter_nd_add
from asyncmon.graph.ops.variable_ops import scatter_nd_sub as scatter_nd_sub
from asyncmon.graph.ops.variable_ops import scatter_nd_update as scatter_nd_update
from asyncmon.protobuf.graph_def import AttrValue as AttrValue, GraphDef as GraphDef
from asyncmon.protobuf.graph_def import NodeDef as NodeDef
from asyncmon.summary.events import Event as Event, HistogramProto as HistogramProto
from asyncmon.summary.events import LogMessage as LogMessage, SessionLog as SessionLog
from asyncmon.summary.events import Summary as Summary, SummaryMetadata as SummaryMetadata
from asyncmon.tf1.check_ops import *
from asyncmon.tf1.compat import dimension_at_index as dimension_at_index
from asyncmon.tf1.compat import dimension_value as dimension_value
from asyncmon.tf1.file_ops import *
from asyncmon.tf1.functional_ops import *
from asyncmon.tf1.logging import get_logger as get_logger
from asyncmon.tf1.old_names import *
from asyncmon.tf1.ops.math import *
from asyncmon.tf1.ops.matrices import *
from asyncmon.tf1.ops.segments import *
from asyncmon.tf1.ops.sequences import *
from asyncmon.tf1.ops.sparse import (
    SparseTensor as SparseTensor, SparseTensorValue as SparseTensorValue,
    sparse_placeholder as sparse_placeholder, sparse_retain as sparse_retain,
    sparse_tensor_dense_matmul as sparse_tensor_dense_matmul,
    sparse_tensor_to_dense as sparse_tensor_to_dense,
)
from asyncmon.tf1.ops.strided_slice import *
from asyncmon.tf1.ops.strings import *
from asyncmon.tf1.ops.tensor_array import TensorArray as TensorArray
from asyncmon.tf1.parsing import *
from asyncmon.tf1.queues import *
from asyncmon.tf1.readers import *
from asyncmon.tf1.session import *
from asyncmon.tf1.variables import *
from asyncmon.tf1.weighting import confusion_matrix as confusion_matrix
from asyncmon.tf1.image import random_crop as random_crop
from asyncmon.tf1 import app, compat, contrib, distributions, flags as flags, gfile, image, layers
from asyncmon.tf1 import logging, losses, metrics, nn, python_io, rnn_cell as _rnn_cell, summary, train
from asyncmon.tf1.namespaces import open_namespace as _open_namespace
from asyncmon.tf1.namespaces import show as _show, small_namespaces as _small_namespaces
# isort: on
# fmt: on

VERSION = "1.15.0"
"""The release of TF1 whose names these are, for programs that compare versions."""

__version__ = VERSION

debugging: _ModuleType
dtypes: _ModuleType
io: _ModuleType
linalg: _ModuleType
manip: _ModuleType
math: _ModuleType
random: _ModuleType
sparse: _ModuleType
strings: _ModuleType

_small = _small_namespaces(_sys.modules[__name__])
for _name, _module in _small.items():
    _owner, _, _last = _name.rpartition(".")
    setattr(_sys.modules[f"{__name__}.{_owner}".rstrip(".")], _last, _module)

_show(
    globals(), *[_name for _name in _small if "." not in _name], "app", "compat", "contrib",
    "distributions", "errors", "flags", "gfile", "image", "layers", "logging", "losses", "metrics",
    "nn", "python_io", "summary", "train",
)  # fmt: skip

for _module in (
    _sys.modules[__name__], app, compat, contrib, contrib.estimator, contrib.framework, contrib.layers,
    contrib.rnn, contrib.seq2seq, contrib.slim, contrib.slim.prefetch_queue, contrib.training,
    distributions, gfile, image, layers, logging, losses, metrics, nn, python_io, _rnn_cell, summary,
    train, *_small.values(),
):  # fmt: skip
    _open_namespace(_module)
