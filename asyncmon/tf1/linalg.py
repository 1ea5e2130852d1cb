"""TF1: ``tf.linalg``: matrices."""

from typing import Any

# fmt: off
# isort: off
from asyncmon.missing_names import missing_name
from asyncmon.graph import (
    einsum, eye, global_norm, matmul, tensordot,
)
from asyncmon.graph.nn import l2_normalize
from asyncmon.tf1.math_only import (
    adjoint, matvec,
)
from asyncmon.tf1.more_math import (
    matrix_transpose, matrix_transpose as transpose,
)
# isort: on

__all__ = [
    "adjoint", "einsum", "eye", "global_norm", "l2_normalize", "matmul", "matrix_transpose",
    "matvec", "tensordot", "transpose",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "linalg.", globals())
