"""The namespaces of TF1: their ``dir()``, advice on missing names, and the small ones."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any

from asyncmon import graph
from asyncmon.system.missing_names import missing_name
from asyncmon.tf1.names import tf1_names

_SMALL = {
    "debugging": "assert_all_finite=verify_tensor_all_finite",
    "dtypes": "",
    "initializers": """
        global_variables=global_variables_initializer local_variables=local_variables_initializer
        tables_initializer uniform_unit_scaling=uniform_unit_scaling_initializer
        variables=variables_initializer
    """,
    "io.gfile": """
        GFile=gfile.GFile copy=gfile.Copy exists=gfile.Exists glob=gfile.Glob isdir=gfile.IsDirectory
        listdir=gfile.ListDirectory makedirs=gfile.MakeDirs mkdir=gfile.MkDir remove=gfile.Remove
        rename=gfile.Rename rmtree=gfile.DeleteRecursively stat=gfile.Stat walk=gfile.Walk
    """,
    "linalg": """
        einsum eye global_norm l2_normalize=nn.l2_normalize matmul norm tensor_diag=diag
        tensor_diag_part=diag_part tensordot
    """,
    "manip": "",
    "math": """
        divide_no_nan=div_no_nan l2_normalize=nn.l2_normalize log_softmax=nn.log_softmax
        softmax=nn.softmax softplus=nn.softplus softsign=nn.softsign zero_fraction=nn.zero_fraction
    """,
    "random": """
        multinomial normal=random_normal set_random_seed shuffle=random_shuffle truncated_normal
        uniform=random_uniform
    """,
    "sparse": "SparseTensor placeholder=sparse_placeholder to_dense=sparse_tensor_to_dense",
    "strings": "to_number=string_to_number",
}
"""The names in each small namespace; ``=`` precedes a different name below ``tf``."""

_SHARED = {"debugging": "", "dtypes": "", "initializers": "initializers.", "manip": "", "math": ""}
"""Small namespaces that have all names of TF1 that are below this place in ``tf``, too."""

ADDITIONS: dict[str, set[str]] = {
    "": {*graph.__all__, "RPCOptions"},  # RPCOptions is a field of ConfigProto
    "gfile": {"FileStatistics"},  # what Stat returns
    "layers": set(graph.layers.__all__),
    "nn": set(graph.nn.__all__),
    "nn.rnn_cell": {"LayerRNNCell"},  # the base class of cells, of tf.contrib.rnn
    "summary": {"HistogramProto", "SummaryMetadata", "summary_iterator"},  # beside Summary, Event
    "train": {
        *graph.train.__all__,
        "CheckpointReader", "CheckpointState",  # results of NewCheckpointReader, get_checkpoint_state
        "LooperTask", "StepContext",  # LooperThread and MonitoredSession.StepContext
        "assign_moving_average", "wait_for_new_checkpoint",  # of training.moving_averages, contrib
    },
}  # fmt: skip
"""Public names of a namespace that TF1 does not have in it."""


def small_namespaces(root: ModuleType) -> list[ModuleType]:
    """Return the small namespaces as modules below ``asyncmon.tf1``, in the order of their names."""
    made = []
    for space, names in _SMALL.items():
        module = ModuleType(f"{root.__name__}.{space}", f"TF1: ``tf.{space}``.")
        module.__spec__ = ModuleSpec(module.__name__, None)
        if (place := _SHARED.get(space)) is not None:
            home = vars(root.initializers if place else root)
            shared = [f"{one}={place}{one}" for one in home if f"{space}.{one}" in tf1_names()]
            names = " ".join([*shared, names])
        for one in names.split():
            name, _, place = one.partition("=")
            setattr(module, name, attrgetter(place or name)(root))
        sys.modules[module.__name__] = module
        made.append(module)
    return made


class _Namespace(ModuleType):
    """A module that hides its imports, except public names and modules below it."""

    def __getattribute__(self, name: str) -> Any:
        own = super().__getattribute__("__dict__")
        if name in own["_hidden"]:
            return own["__getattr__"](name)
        return super().__getattribute__(name)


def _is_own(module: ModuleType, value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__.startswith(f"{module.__name__}.")
    return getattr(value, "__module__", None) == module.__name__


def _space(module: ModuleType) -> str:
    below = module.__name__.removeprefix("asyncmon.tf1").removeprefix(".")
    return "nn.rnn_cell" if below == "rnn_cell" else below


def _is_public(module: ModuleType, name: str) -> bool:
    """Return whether TF1 has a name in this namespace, or it is in :data:`ADDITIONS`."""
    space = _space(module)
    return f"{space}.{name}".lstrip(".") in tf1_names() or name in ADDITIONS.get(space, ())


def open_namespace(module: ModuleType) -> None:
    """Add ``__dir__`` and ``__getattr__`` to a module: its public names, advice on a missing one."""

    def public() -> list[str]:
        return sorted(one for one in vars(module) if _is_public(module, one))

    def missing(name: str) -> Any:
        if name == "__all__":
            return public()
        raise missing_name(module.__name__, name, f"{_space(module)}.".lstrip("."), public())

    hidden = {
        name
        for name, value in vars(module).items()
        if not (name.startswith("_") or _is_own(module, value) or _is_public(module, name))
    }
    vars(module).setdefault("__getattr__", missing)
    vars(module).update(__dir__=public, _hidden=hidden)
    module.__class__ = _Namespace
