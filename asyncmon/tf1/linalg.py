"""TF1: ``tf.linalg``: matrices."""

from asyncmon.graph import einsum, eye, global_norm, matmul, tensordot
from asyncmon.graph.nn import l2_normalize
from asyncmon.graph.ops.matrices import diag as tensor_diag
from asyncmon.graph.ops.matrices import diag_part as tensor_diag_part
from asyncmon.graph.ops.matrices import norm
from asyncmon.system.missing_names import lacking

__all__ = [
    "einsum", "eye", "global_norm", "l2_normalize", "matmul", "norm",
    "tensor_diag", "tensor_diag_part", "tensordot",
]  # fmt: skip

__getattr__ = lacking(__name__, "linalg.", globals())
