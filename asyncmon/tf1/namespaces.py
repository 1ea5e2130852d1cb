"""The namespaces of TF1: their public names, advice on missing names, and the small ones."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any

from asyncmon.system.missing_names import missing_name
from asyncmon.tf1.names import ROOMS

# The names in each small namespace; = precedes a different name below tf.
_SMALL = {
    "debugging": """
        Assert assert_equal assert_greater assert_greater_equal assert_integer assert_less
        assert_less_equal assert_near assert_negative assert_non_negative assert_non_positive
        assert_none_equal assert_positive assert_rank assert_rank_at_least assert_rank_in
        assert_type check_numerics is_finite is_inf is_nan
        assert_all_finite=verify_tensor_all_finite
    """,
    "dtypes": """
        DType as_dtype bool cast complex128 complex64 double float16 float32 float64 half int16
        int32 int64 int8 saturate_cast string uint16 uint32 uint64 uint8
    """,
    "initializers": """
        constant=initializers.constant glorot_normal=initializers.glorot_normal
        glorot_uniform=initializers.glorot_uniform he_normal=initializers.he_normal
        he_uniform=initializers.he_uniform identity=initializers.identity
        lecun_normal=initializers.lecun_normal lecun_uniform=initializers.lecun_uniform
        ones=initializers.ones orthogonal=initializers.orthogonal
        random_normal=initializers.random_normal random_uniform=initializers.random_uniform
        truncated_normal=initializers.truncated_normal
        variance_scaling=initializers.variance_scaling zeros=initializers.zeros
        global_variables=global_variables_initializer local_variables=local_variables_initializer
        tables_initializer uniform_unit_scaling=uniform_unit_scaling_initializer
        variables=variables_initializer
    """,
    "io": """
        FixedLenFeature FixedLenSequenceFeature PaddingFIFOQueue PriorityQueue QueueBase
        RandomShuffleQueue VarLenFeature decode_csv decode_raw matching_files parse_example
        decode_base64 encode_base64 parse_single_example read_file
        TFRecordCompressionType=python_io.TFRecordCompressionType
        TFRecordOptions=python_io.TFRecordOptions TFRecordWriter=python_io.TFRecordWriter
        decode_image=image.decode_image decode_jpeg=image.decode_jpeg decode_png=image.decode_png
        encode_jpeg=image.encode_jpeg encode_png=image.encode_png
        match_filenames_once=train.match_filenames_once
        tf_record_iterator=python_io.tf_record_iterator write_graph=train.write_graph
    """,
    "io.gfile": """
        GFile=gfile.GFile copy=gfile.Copy exists=gfile.Exists glob=gfile.Glob isdir=gfile.IsDirectory
        listdir=gfile.ListDirectory makedirs=gfile.MakeDirs mkdir=gfile.MkDir remove=gfile.Remove
        rename=gfile.Rename rmtree=gfile.DeleteRecursively stat=gfile.Stat walk=gfile.Walk
    """,
    "linalg": """
        det=matrix_determinant einsum eye global_norm inv=matrix_inverse
        l2_normalize=nn.l2_normalize matmul norm tensor_diag=diag
        tensor_diag_part=diag_part tensordot
    """,
    "manip": "gather_nd reshape reverse scatter_nd tile",
    "math": """
        abs acos acosh add add_n argmax argmin asin asinh atan atan2 atanh ceil confusion_matrix
        conj cos cosh count_nonzero cumprod cumsum divide equal erf erfc exp expm1 floor floordiv
        floormod greater greater_equal invert_permutation is_finite is_inf is_nan less
        less_equal log log1p logical_and logical_not logical_or logical_xor maximum minimum mod
        multiply negative not_equal pow reciprocal reduce_all reduce_any reduce_logsumexp reduce_max
        reduce_mean reduce_min reduce_prod reduce_sum rint round rsqrt scalar_mul segment_max
        segment_mean segment_sum sigmoid sign sin sinh sqrt square squared_difference subtract tan
        tanh top_k truediv unsorted_segment_mean unsorted_segment_sum divide_no_nan=div_no_nan
        in_top_k=nn.in_top_k l2_normalize=nn.l2_normalize log_softmax=nn.log_softmax softmax=nn.softmax
        softplus=nn.softplus softsign=nn.softsign zero_fraction=nn.zero_fraction
    """,
    "random": """
        multinomial normal=random_normal set_random_seed shuffle=random_shuffle truncated_normal
        uniform=random_uniform
    """,
    "sparse": """
        SparseTensor matmul=sparse_tensor_dense_matmul placeholder=sparse_placeholder
        retain=sparse_retain sparse_dense_matmul=sparse_tensor_dense_matmul
        to_dense=sparse_tensor_to_dense
    """,
    "strings": "to_number=string_to_number",
}


def small_namespaces(root: ModuleType) -> dict[str, ModuleType]:
    """Return the small namespaces as modules below ``asyncmon.tf1``, by their names in it."""
    made = {}
    for space, names in _SMALL.items():
        module = ModuleType(f"{root.__name__}.{space}", f"TF1: ``tf.{space}``.")
        module.__spec__ = ModuleSpec(module.__name__, None)
        places = dict((one.split("=") * 2)[:2] for one in names.split())
        for name, place in places.items():
            setattr(module, name, attrgetter(place)(root))
        vars(module)["__all__"] = [*places]
        sys.modules[module.__name__] = made[space] = module
        owner, _, last = space.rpartition(".")
        if owner in made:
            made[owner].__all__.append(last)
    return made


def show(names: dict[str, Any], *modules: str) -> None:
    """Set the public names of a module that only imports such: all, and these of its modules.

    A type checker finds them by the imports; it does not read an ``__all__`` that is computed.
    """
    found = [name for name, value in names.items() if not isinstance(value, ModuleType)]
    names["__all__"] = sorted([*modules, *[name for name in found if not name.startswith("_")]])


def open_namespace(module: ModuleType) -> None:
    """Add ``__dir__`` and ``__getattr__`` to a module: its public names, advice on a missing one."""
    prefix = (
        module.__name__.removeprefix("asyncmon.tf1")
        .removeprefix(".")
        .replace("rnn_cell", "nn.rnn_cell")
    )

    def missing(name: str) -> Any:
        prefixes = [f"{prefix}." if prefix else ""]
        raise missing_name(module.__name__, name, prefixes, module.__all__, ROOMS)

    vars(module).update(__dir__=lambda: sorted(module.__all__), __getattr__=missing)
