"""The namespaces of TF1: their ``dir()``, advice on missing names, and the small ones."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any

from asyncmon import graph
from asyncmon.system.missing_names import missing_name

_SMALL = {
    "debugging": """
        Assert assert_all_finite=verify_tensor_all_finite assert_equal assert_greater
        assert_greater_equal assert_integer assert_less assert_less_equal assert_near assert_negative
        assert_non_negative assert_non_positive assert_none_equal assert_positive assert_rank
        assert_rank_at_least assert_rank_in assert_type check_numerics is_finite is_inf is_nan
    """,
    "dtypes": """
        DType as_dtype bool cast complex64 complex128 double float16 float32 float64 half int8 int16
        int32 int64 saturate_cast string uint8 uint16 uint32 uint64
    """,
    "initializers": """
        constant=initializers.constant global_variables=global_variables_initializer
        glorot_normal=initializers.glorot_normal glorot_uniform=initializers.glorot_uniform
        he_normal=initializers.he_normal he_uniform=initializers.he_uniform
        identity=initializers.identity lecun_normal=initializers.lecun_normal
        lecun_uniform=initializers.lecun_uniform local_variables=local_variables_initializer
        ones=initializers.ones orthogonal=initializers.orthogonal
        random_normal=initializers.random_normal random_uniform=initializers.random_uniform
        tables_initializer truncated_normal=initializers.truncated_normal
        uniform_unit_scaling=uniform_unit_scaling_initializer variables=variables_initializer
        variance_scaling=initializers.variance_scaling zeros=initializers.zeros
    """,
    "linalg": """
        einsum eye global_norm l2_normalize=nn.l2_normalize matmul norm tensor_diag=diag
        tensor_diag_part=diag_part tensordot
    """,
    "manip": "gather_nd reshape reverse scatter_nd tile",
    "math": """
        abs acos acosh add add_n argmax argmin asin asinh atan atan2 atanh ceil confusion_matrix conj
        cos cosh count_nonzero cumprod cumsum divide divide_no_nan=div_no_nan equal erf erfc exp expm1
        floor floordiv floormod greater greater_equal in_top_k invert_permutation is_finite is_inf
        is_nan l2_normalize=nn.l2_normalize less less_equal log log1p log_softmax=nn.log_softmax
        logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative not_equal
        pow reciprocal reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min
        reduce_prod reduce_sum rint round rsqrt scalar_mul segment_max segment_mean segment_sum sigmoid
        sign sin sinh softmax=nn.softmax softplus=nn.softplus softsign=nn.softsign sqrt square
        squared_difference subtract tan tanh top_k truediv unsorted_segment_mean
        unsorted_segment_sum zero_fraction=nn.zero_fraction
    """,
    "random": """
        multinomial normal=random_normal set_random_seed shuffle=random_shuffle truncated_normal
        uniform=random_uniform
    """,
    "sparse": "SparseTensor placeholder=sparse_placeholder to_dense=sparse_tensor_to_dense",
    "strings": "to_number=string_to_number",
}
"""The names in each small namespace; ``=`` precedes a different name below ``tf``."""

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
        "InMemoryEvaluatorHook", "stop_if_higher", "stop_if_lower", "stop_if_no_decrease",
        "stop_if_no_increase",  # of tf.estimator
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
        for one in names.split():
            name, _, place = one.partition("=")
            setattr(module, name, attrgetter(place or name)(root))
        sys.modules[module.__name__] = module
        made.append(module)
    return made


class _Namespace(ModuleType):
    """A module without the modules and types that it imports from outside of asyncmon."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("_") or not isinstance(value, ModuleType | type):
            return value
        home = value.__name__ if isinstance(value, ModuleType) else value.__module__
        return vars(self)["__getattr__"](name) if home.partition(".")[0] in _FOREIGN else value


_FOREIGN = sys.stdlib_module_names | {"numpy"}


def open_namespace(module: ModuleType) -> None:
    """Add ``__dir__`` and ``__getattr__`` to a module: its public names, advice on a missing one.

    A name is public if TF1 has it in this namespace, or if it is in :data:`ADDITIONS`.
    """
    below = module.__name__.removeprefix("asyncmon.tf1").removeprefix(".")
    space = "nn.rnn_cell" if below == "rnn_cell" else below
    prefix = f"{space}." if space else ""

    def public() -> list[str]:
        from asyncmon.tf1.names import tf1_names

        added = ADDITIONS.get(space, ())
        return sorted(one for one in vars(module) if f"{prefix}{one}" in tf1_names() or one in added)

    def missing(name: str) -> Any:
        if name == "__all__":
            return public()
        raise missing_name(module.__name__, name, prefix, public())

    vars(module).setdefault("__getattr__", missing)
    vars(module).update(__dir__=public)
    module.__class__ = _Namespace
