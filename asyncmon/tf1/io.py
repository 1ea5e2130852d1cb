"""TF1: ``tf.io``: files, records and examples."""

from asyncmon.graph import *
from asyncmon.summary import *
from asyncmon.tf1.file_ops import *
from asyncmon.tf1.image import *
from asyncmon.tf1.input import *
from asyncmon.tf1.ops.strings import *
from asyncmon.tf1.parsing import *
from asyncmon.tf1.python_io import *
