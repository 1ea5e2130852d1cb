"""TF1: ``tf.io.gfile``: :mod:`asyncmon.tf1.gfile` with the names of its last releases."""

from typing import Any

from asyncmon.missing_names import missing_name
from asyncmon.tf1.gfile import Copy as copy
from asyncmon.tf1.gfile import DeleteRecursively as rmtree
from asyncmon.tf1.gfile import Exists as exists
from asyncmon.tf1.gfile import GFile as GFile
from asyncmon.tf1.gfile import Glob as glob
from asyncmon.tf1.gfile import IsDirectory as isdir
from asyncmon.tf1.gfile import ListDirectory as listdir
from asyncmon.tf1.gfile import MakeDirs as makedirs
from asyncmon.tf1.gfile import MkDir as mkdir
from asyncmon.tf1.gfile import Remove as remove
from asyncmon.tf1.gfile import Rename as rename
from asyncmon.tf1.gfile import Stat as stat
from asyncmon.tf1.gfile import Walk as walk

__all__ = [
    "GFile", "copy", "exists", "glob", "isdir", "listdir", "makedirs", "mkdir", "remove", "rename",
    "rmtree", "stat", "walk",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "io.gfile.", globals())
