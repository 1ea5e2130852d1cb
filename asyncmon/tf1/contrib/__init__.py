"""TF1: ``tf.contrib``: the names that programs use most."""

from asyncmon.tf1 import distributions as distributions
from asyncmon.tf1.contrib import estimator as estimator
from asyncmon.tf1.contrib import framework as framework
from asyncmon.tf1.contrib import layers as layers
from asyncmon.tf1.contrib import rnn as rnn
from asyncmon.tf1.contrib import seq2seq as seq2seq
from asyncmon.tf1.contrib import slim as slim
from asyncmon.tf1.contrib import training as training

__all__ = ["distributions", "estimator", "framework", "layers", "rnn", "seq2seq", "slim", "training"]
