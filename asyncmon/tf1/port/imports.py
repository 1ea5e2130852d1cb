"""Imports: their replacements, and the kinds of the names they bind."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import libcst as cst

import asyncmon
import asyncmon.tf1 as tf
from asyncmon.tf1.port.kinds import VALUE, Foreign, Kinds, Real, one
from asyncmon.tf1.port.scopes import dotted

ROOTS = ("tensorflow", "tensorflow.compat.v1", "tensorflow.python", "tensorflow_core")

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

_KNOWN = frozenset(
    [
        "numpy", "scipy", "matplotlib", "pandas", "sklearn", "six", "absl", "PIL", "cv2", "tqdm",
        "gym", "gymnasium", "h5py", "yaml", "requests", "skimage", "nltk", "imageio", "seaborn",
        "pytest",
    ]
)  # fmt: skip

WHY_NOT = {
    "tensorflow.examples": "asyncmon has no example data; load your own arrays",
    "tensorflow.contrib": "of tf.contrib asyncmon has only a few names",
    "tensorflow.python.lib.io.file_io": "tf.gfile has its functions, by other names",
    "tensorflow.python": "this module is TensorFlow's own inside",
    "tensorflow.core": "this module is TensorFlow's own inside",
}


def ours(path: str) -> Any:
    """Return the object of asyncmon for a dotted name of TensorFlow or asyncmon, or None."""
    home, _, last = path.rpartition(".")
    if path in PRIVATE:
        path = f"tensorflow.{PRIVATE[path]}".rstrip(".")
    elif home in PRIVATE:
        path = f"tensorflow.{PRIVATE[home]}.{last}".replace("..", ".")
    for root in ("tensorflow.compat.v1", "tensorflow", "asyncmon.tf1", "asyncmon"):
        if path == root or path.startswith(root + "."):
            value: Any = asyncmon if root == "asyncmon" else tf
            for name in path[len(root) + 1 :].split(".") if path != root else ():
                value = getattr(value, name, None)
            return value
    return None


def private_alias(node: cst.CSTNode, alias: cst.ImportAlias) -> tuple[str, str] | None:
    """Return the name that an import gives a private module, and the public namespace below ``tf``."""
    base = f"{dotted(node.module)}." if isinstance(node, cst.ImportFrom) else ""
    path = base + dotted(alias.name)
    if path not in PRIVATE or (not base and alias.asname is None):
        return None
    return _as(alias, dotted(alias.name)), PRIVATE[path]


def is_tensorflow(path: str) -> bool:
    """Return whether a module belongs to TensorFlow."""
    return path.split(".")[0] in ("tensorflow", "tensorflow_core")


def bound(node: cst.Import | cst.ImportFrom) -> list[tuple[str, Kinds]]:
    """Return the names that an import binds, with their kinds."""
    if isinstance(node, cst.ImportFrom):
        if isinstance(node.names, cst.ImportStar):
            return []
        base = "." * len(node.relative) + dotted(node.module)
        base += "" if node.module is None else "."
        return [
            (_as(alias, dotted(alias.name)), _kind(f"{base}{dotted(alias.name)}"))
            for alias in node.names
        ]
    found = []
    for alias in node.names:
        path = dotted(alias.name)
        name = _as(alias, "")
        found.append((name, _kind(path)) if name else (path.split(".")[0], _kind(path.split(".")[0])))
    return found


def _as(alias: cst.ImportAlias, default: str) -> str:
    return dotted(alias.asname.name) if alias.asname is not None else default


def _kind(path: str) -> Kinds:
    top = path.split(".")[0]
    if top in ("tensorflow", "asyncmon"):
        value = ours(path)
        if value is None:
            return one(Foreign(path, known=False))
        return one(Real(value)) if isinstance(value, ModuleType) or callable(value) else VALUE
    return one(Foreign(path, known=top in sys.stdlib_module_names or top in _KNOWN))


def rewritten(node: cst.Import | cst.ImportFrom) -> tuple[list[cst.BaseSmallStatement], list[str]]:
    """Return the replacements of an import, and notes on the names that are left unchanged."""
    if isinstance(node, cst.ImportFrom):
        return _rewritten_from(node)
    made: list[cst.BaseSmallStatement] = []
    kept: list[cst.ImportAlias] = []
    notes: list[str] = []
    for alias in node.names:
        path = dotted(alias.name)
        value = ours(path) if is_tensorflow(path) else None
        if value is not None:
            made.append(_import(value if alias.asname else tf, _as(alias, "tensorflow")))
            continue
        if is_tensorflow(path):
            notes.append(_why(path))
        kept.append(alias.with_changes(comma=cst.MaybeSentinel.DEFAULT))
    if not made:
        return [node], notes
    return [*made, *([node.with_changes(names=kept)] if kept else [])], notes


def _why(path: str) -> str:
    for prefix, why in WHY_NOT.items():
        if path.startswith(prefix):
            return f"{path} is not in asyncmon.tf1: {why}"
    try:
        getattr(tf, path.split(".")[1])
    except AttributeError as error:  # names the replacement
        return f"{path} is not in asyncmon.tf1: {str(error).partition(': ')[2] or error}"
    return f"{path} is not in asyncmon.tf1"


def _rewritten_from(node: cst.ImportFrom) -> tuple[list[cst.BaseSmallStatement], list[str]]:
    base = dotted(node.module)
    if node.relative or not is_tensorflow(base):
        return [node], []
    if isinstance(node.names, cst.ImportStar):
        return [node], [f"`from {base} import *` is left: name what the file uses"]
    made: list[cst.BaseSmallStatement] = []
    kept, moved, notes = [], [], []
    home = ours(base)
    for alias in node.names:
        path = f"{base}.{dotted(alias.name)}"
        value = ours(path)
        if value is None:
            notes.append(_why(path))
            kept.append(alias)
        elif isinstance(value, ModuleType) and (
            value is tf or path in PRIVATE or not isinstance(home, ModuleType)
        ):
            made.append(_import(value, _as(alias, dotted(alias.name))))
        else:
            moved.append(alias)
    if moved:
        names = node.names if len(moved) == len(node.names) else _commas(moved)
        made.append(node.with_changes(module=_path(_module_name(home)), names=names))
    if kept:
        made.append(node if len(kept) == len(node.names) else node.with_changes(names=_commas(kept)))
    return made, notes


def _commas(names: list[cst.ImportAlias]) -> list[cst.ImportAlias]:
    return [*names[:-1], names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)]


def _module_name(module: ModuleType) -> str:
    """Return the name to import a module of asyncmon by, below asyncmon.tf1 if possible."""
    for name in [f"asyncmon.tf1.{module.__name__.rpartition('.')[2]}", module.__name__]:
        if module is not tf and importlib.util.find_spec("asyncmon.tf1") and _importable(name, module):
            return name
    return module.__name__


def _importable(name: str, module: ModuleType) -> bool:
    try:
        return importlib.util.find_spec(name) is not None and sys.modules.get(name) is module
    except ModuleNotFoundError:
        return False


def _import(module: ModuleType, name: str) -> cst.BaseSmallStatement:
    path = _module_name(module)
    text = f"import {path} as {name}"
    package, _, last = path.rpartition(".")
    if package and last == name:
        text = f"from {package} import {name}"
    statement = cst.parse_statement(text)
    assert isinstance(statement, cst.SimpleStatementLine), "an import is one line"
    return statement.body[0]


def _path(name: str) -> cst.Attribute | cst.Name:
    node = cst.parse_expression(name)
    assert isinstance(node, cst.Attribute | cst.Name), "a dotted name"
    return node
