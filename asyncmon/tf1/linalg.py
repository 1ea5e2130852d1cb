"""TF1: ``tf.linalg``: matrices."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph import (
    einsum, eye, global_norm, matmul, tensordot,
)
from asyncmon.graph.nn import l2_normalize
from asyncmon.tf1.more_ops import (
    cross, diag as tensor_diag, diag_part as tensor_diag_part, matrix_band_part as band_part,
    matrix_diag as diag, matrix_diag_part as diag_part, matrix_set_diag as set_diag, norm, trace,
)
from asyncmon.tf1.more_math import (
    matrix_transpose, matrix_transpose as transpose,
)
# isort: on

__all__ = [
    "band_part", "cross", "diag", "diag_part", "einsum", "eye", "global_norm",
    "l2_normalize", "matmul", "matrix_transpose", "norm", "set_diag", "tensor_diag",
    "tensor_diag_part", "tensordot", "trace", "transpose",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "linalg.", globals())
