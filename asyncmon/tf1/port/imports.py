"""Imports of TensorFlow: the modules of asyncmon in their place."""

from __future__ import annotations

import ast
import importlib.util
import sys
from types import ModuleType
from typing import Any

import asyncmon
import asyncmon.tf1 as tf
from asyncmon.tf1 import input_data

_PRIVATE = {
    "": "client.session framework.ops framework.dtypes framework.constant_op framework.tensor_shape "
    "framework.tensor_util framework.random_seed ops.array_ops ops.math_ops ops.control_flow_ops "
    "ops.state_ops ops.variables ops.variable_scope ops.init_ops ops.random_ops ops.data_flow_ops "
    "ops.check_ops ops.clip_ops ops.string_ops ops.gradients ops.gradients_impl ops.parsing_ops "
    "ops.io_ops ops.script_ops ops.functional_ops ops.embedding_ops ops.resource_variable_ops "
    "ops.tensor_array_ops ops.sparse_ops framework.sparse_tensor",
    "train": "training.training training.training_util training.monitored_session "
    "training.session_run_hook training.basic_session_run_hooks training.coordinator "
    "training.queue_runner training.queue_runner_impl training.saver training.supervisor "
    "training.session_manager training.checkpoint_management training.input training.optimizer "
    "training.adam training.momentum training.gradient_descent training.adagrad training.rmsprop "
    "training.moving_averages training.learning_rate_decay training.basic_loops "
    "training.checkpoint_utils training.evaluation training.slot_creator",
    "nn": "ops.nn ops.nn_ops ops.nn_impl",
    "nn.rnn_cell": "ops.rnn_cell ops.rnn_cell_impl",
    "nn.rnn": "ops.rnn",
    "errors": "framework.errors framework.errors_impl",
    "summary": "summary.summary",
    "layers": "layers.layers",
    "losses": "ops.losses.losses",
    "metrics": "ops.metrics",
    "image": "ops.image_ops",
    "gfile": "platform.gfile",
    "flags": "platform.flags",
    "app": "platform.app",
    "logging": "platform.tf_logging platform.logging",
    "compat": "util.compat",
    "python_io": "lib.io.tf_record lib.io.python_io",
}
_PROTOBUFS = {
    "": "framework.summary_pb2 framework.graph_pb2 framework.node_def_pb2 framework.attr_value_pb2 "
    "util.event_pb2 protobuf.config_pb2",
    "train": "example.example_pb2 example.feature_pb2 protobuf.cluster_pb2 protobuf.saver_pb2 "
    "protobuf.tensorflow_server_pb2",
}
PRIVATE = {
    f"tensorflow.{root}.{name}": ours
    for root, table in (("python", _PRIVATE), ("core", _PROTOBUFS))
    for ours, names in table.items()
    for name in names.split()
}
"""TensorFlow's private modules, each with the namespace below ``tf.`` that has its public names."""

KNOWN = frozenset(
    [
        "numpy", "scipy", "matplotlib", "pandas", "sklearn", "six", "absl", "PIL", "cv2", "tqdm",
        "gym", "gymnasium", "h5py", "yaml", "requests", "skimage", "nltk", "imageio", "seaborn",
        "pytest",
    ]
)  # fmt: skip

WHY_NOT = {
    "tensorflow.examples": "of the examples there is the reader of MNIST, input_data",
    "tensorflow.contrib": "of tf.contrib asyncmon has only a few names",
    "tensorflow.python.lib.io.file_io": "tf.gfile has its functions, by other names",
    "tensorflow.python": "this module is TensorFlow's own inside",
    "tensorflow.core": "this module is TensorFlow's own inside",
}

# Modules of TensorFlow that read MNIST.
_EXAMPLES = frozenset(
    [
        "tensorflow.examples.tutorials.mnist.input_data",
        "tensorflow.contrib.learn.python.learn.datasets.mnist",
    ]
)


def ours(path: str) -> Any:
    """Return the object of asyncmon for a dotted name of TensorFlow or asyncmon, or None."""
    home, _, last = path.rpartition(".")
    if path in _EXAMPLES or home in _EXAMPLES:
        return input_data if path in _EXAMPLES else getattr(input_data, last, None)
    if path in PRIVATE:
        path = f"tensorflow.{PRIVATE[path]}".rstrip(".")
    elif home in PRIVATE:
        path = f"tensorflow.{PRIVATE[home]}.{last}".replace("..", ".")
    for root in ("tensorflow.compat.v1", "tensorflow", "asyncmon.tf1", "asyncmon"):
        if path == root or path.startswith(f"{root}."):
            value: Any = asyncmon if root == "asyncmon" else tf
            for name in path[len(root) + 1 :].split(".") if path != root else ():
                value = getattr(value, name, None)
            return value
    return None


def is_tensorflow(path: str) -> bool:
    """Return whether a module belongs to TensorFlow."""
    return path.split(".")[0] in ("tensorflow", "tensorflow_core")


def modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that an import may read, with the dots of a relative one."""
    found = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        found = [base, *(f"{base}.{name}" if node.module else base + name for name in found)]
    return found


def rewritten(node: ast.Import | ast.ImportFrom) -> tuple[list[str], list[str]]:
    """Return the statements that replace an import of TensorFlow, and notes on names that are left.

    There are no statements if nothing changes.
    """
    made: list[str] = []
    kept: list[ast.alias] = []
    moved: list[ast.alias] = []
    notes: list[str] = []
    base = getattr(node, "module", "") or ""
    if isinstance(node, ast.ImportFrom) and (node.level or not is_tensorflow(base)):
        return [], []
    if node.names[0].name == "*":
        return [], [f"`from {base} import *` is left: name what the file uses"]
    home = ours(base) if base else None
    for alias in node.names:
        path = f"{base}.{alias.name}" if base else alias.name
        value = ours(path) if is_tensorflow(path) else None
        if value is None:
            notes += [_why(path)] if is_tensorflow(path) else []
            kept.append(alias)
        elif not base:
            made.append(_import(value if alias.asname else tf, alias.asname or "tensorflow"))
        elif isinstance(value, ModuleType) and not _is_part(value, home, alias.name):
            made.append(_import(value, alias.asname or alias.name))
        else:
            moved.append(alias)
    if moved:
        assert isinstance(home, ModuleType), "the names were found in it"
        made.append(ast.unparse(ast.ImportFrom(_module_name(home), moved, 0)))
    if kept and made:
        made.append(ast.unparse(ast.ImportFrom(base, kept, 0) if base else ast.Import(kept)))
    return made, notes


def _is_part(value: ModuleType, home: Any, name: str) -> bool:
    """Return whether a module is imported from the one that has it here, under the same name."""
    return value is not tf and isinstance(home, ModuleType) and getattr(home, name, None) is value


def _why(path: str) -> str:
    for prefix, why in WHY_NOT.items():
        if path.startswith(prefix):
            return f"{path} is not in asyncmon.tf1: {why}"
    try:
        getattr(tf, path.split(".")[1])
    except AttributeError as error:  # names the replacement
        return f"{path} is not in asyncmon.tf1: {str(error).partition(': ')[2] or error}"
    return f"{path} is not in asyncmon.tf1"


def _module_name(module: ModuleType) -> str:
    """Return the name to import a module of asyncmon by, below asyncmon.tf1 if possible."""
    name = f"asyncmon.tf1.{module.__name__.rpartition('.')[2]}"
    return name if module is not tf and _is_importable(name, module) else module.__name__


def _is_importable(name: str, module: ModuleType) -> bool:
    try:
        return importlib.util.find_spec(name) is not None and sys.modules.get(name) is module
    except ModuleNotFoundError:
        return False


def _import(module: ModuleType, name: str) -> str:
    path = _module_name(module)
    package, _, last = path.rpartition(".")
    same = package and last == name
    return f"from {package} import {name}" if same else f"import {path} as {name}"
