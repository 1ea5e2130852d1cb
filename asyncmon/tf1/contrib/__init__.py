"""TF1: ``tf.contrib``: the few names of it that most programs use."""

from typing import Any

from asyncmon.missing_names import missing_name
from asyncmon.tf1.contrib import layers as layers
from asyncmon.tf1.contrib import rnn as rnn
from asyncmon.tf1.contrib import seq2seq as seq2seq
from asyncmon.tf1.contrib import training as training


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "contrib.", globals())
