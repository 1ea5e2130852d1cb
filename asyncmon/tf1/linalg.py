"""TF1: ``tf.linalg``: matrices."""

from asyncmon.graph import einsum, eye, global_norm, matmul, tensordot
from asyncmon.graph.nn import l2_normalize
from asyncmon.system.missing_names import lacking
from asyncmon.tf1.ops.matrices import diag as tensor_diag
from asyncmon.tf1.ops.matrices import diag_part as tensor_diag_part
from asyncmon.tf1.ops.matrices import norm

__all__ = [
    "einsum", "eye", "global_norm", "l2_normalize", "matmul", "norm",
    "tensor_diag", "tensor_diag_part", "tensordot",
]  # fmt: skip

__getattr__ = lacking(__name__, "linalg.", globals())
