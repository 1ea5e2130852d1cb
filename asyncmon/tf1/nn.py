"""TF1: ``tf.nn``."""

from typing import Any

from asyncmon.graph.nn import *
from asyncmon.missing_names import missing_name
from asyncmon.tf1 import rnn_cell as rnn_cell
from asyncmon.tf1.rnn import bidirectional_dynamic_rnn as bidirectional_dynamic_rnn
from asyncmon.tf1.rnn import dynamic_rnn as dynamic_rnn
from asyncmon.tf1.rnn import static_rnn as static_rnn

silu = swish


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "nn.", globals())
