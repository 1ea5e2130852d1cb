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

What is here and nowhere else is what only ports need, made of the public names below. What TF1 has and
this has not says on access what to use instead.
"""

from typing import Any

from asyncmon import errors as errors
from asyncmon.errors import OpError as OpError
from asyncmon.graph import *
from asyncmon.graph.queues.readers import ReaderBase as ReaderBase
from asyncmon.missing_names import missing_name
from asyncmon.protobuf.graph_def import AttrValue as AttrValue
from asyncmon.protobuf.graph_def import GraphDef as GraphDef
from asyncmon.protobuf.graph_def import NodeDef as NodeDef
from asyncmon.session_config import GPUOptions as GPUOptions
from asyncmon.session_config import GraphOptions as GraphOptions
from asyncmon.session_config import OptimizerOptions as OptimizerOptions
from asyncmon.session_config import RPCOptions as RPCOptions
from asyncmon.session_config import SessionConfig
from asyncmon.summary.events import LogMessage as LogMessage
from asyncmon.tf1 import app as app
from asyncmon.tf1 import compat as compat
from asyncmon.tf1 import contrib as contrib
from asyncmon.tf1 import debugging as debugging
from asyncmon.tf1 import dtypes as dtypes
from asyncmon.tf1 import flags as flags
from asyncmon.tf1 import gfile as gfile
from asyncmon.tf1 import image as image
from asyncmon.tf1 import initializer_names
from asyncmon.tf1 import io as io
from asyncmon.tf1 import layers as layers
from asyncmon.tf1 import linalg as linalg
from asyncmon.tf1 import logging as logging
from asyncmon.tf1 import losses as losses
from asyncmon.tf1 import manip as manip
from asyncmon.tf1 import math as math
from asyncmon.tf1 import metrics as metrics
from asyncmon.tf1 import nn as nn
from asyncmon.tf1 import python_io as python_io
from asyncmon.tf1 import queue as queue
from asyncmon.tf1 import random as random
from asyncmon.tf1 import strings as strings
from asyncmon.tf1 import summary as summary
from asyncmon.tf1 import timeline as timeline
from asyncmon.tf1 import train as train
from asyncmon.tf1 import version as version
from asyncmon.tf1.check_ops import *
from asyncmon.tf1.constants import *
from asyncmon.tf1.control_flow import case as case
from asyncmon.tf1.file_ops import matching_files as matching_files
from asyncmon.tf1.file_ops import read_file as read_file
from asyncmon.tf1.file_ops import write_file as write_file
from asyncmon.tf1.functional_ops import foldl as foldl
from asyncmon.tf1.functional_ops import foldr as foldr
from asyncmon.tf1.functional_ops import map_fn as map_fn
from asyncmon.tf1.functional_ops import scan as scan
from asyncmon.tf1.image import random_crop as random_crop
from asyncmon.tf1.logging import get_logger as get_logger
from asyncmon.tf1.more_math import *
from asyncmon.tf1.more_ops import *
from asyncmon.tf1.old_names import *
from asyncmon.tf1.parsing import FixedLenFeature as FixedLenFeature
from asyncmon.tf1.parsing import FixedLenSequenceFeature as FixedLenSequenceFeature
from asyncmon.tf1.parsing import parse_example as parse_example
from asyncmon.tf1.parsing import parse_single_example as parse_single_example
from asyncmon.tf1.readers import FixedLengthRecordReader as FixedLengthRecordReader
from asyncmon.tf1.readers import IdentityReader as IdentityReader
from asyncmon.tf1.readers import TextLineReader as TextLineReader
from asyncmon.tf1.readers import TFRecordReader as TFRecordReader
from asyncmon.tf1.readers import WholeFileReader as WholeFileReader
from asyncmon.tf1.summary import Event as Event
from asyncmon.tf1.summary import HistogramProto as HistogramProto
from asyncmon.tf1.summary import SessionLog as SessionLog
from asyncmon.tf1.summary import Summary as Summary
from asyncmon.tf1.summary import SummaryMetadata as SummaryMetadata
from asyncmon.tf1.summary import audio_summary as audio_summary
from asyncmon.tf1.summary import histogram_summary as histogram_summary
from asyncmon.tf1.summary import image_summary as image_summary
from asyncmon.tf1.summary import merge_all_summaries as merge_all_summaries
from asyncmon.tf1.summary import merge_summary as merge_summary
from asyncmon.tf1.summary import scalar_summary as scalar_summary
from asyncmon.tf1.template import make_template as make_template

ConfigProto = SessionConfig
initializers = initializer_names  # type: ignore[misc]  # that of the graph, and more


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "", globals())
