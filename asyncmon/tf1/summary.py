"""TF1: ``tf.summary``."""

from asyncmon.summary import *
