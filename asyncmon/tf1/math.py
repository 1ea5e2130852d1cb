"""TF1: ``tf.math``: functions of numbers."""

# fmt: off
# isort: off
from asyncmon.system.missing_names import lacking
from asyncmon.graph import (
    abs, acos, acosh, add, add_n, argmax, argmin, asin, asinh, atan, atan2, atanh, ceil, conj, cos,
    cosh, cumprod, cumsum, divide, div_no_nan as divide_no_nan, equal, erf, erfc, exp, expm1, floor,
    floordiv, floormod, greater, greater_equal, in_top_k, invert_permutation, is_finite, is_inf,
    is_nan, less, less_equal, log, log1p, logical_and, logical_not, logical_or, logical_xor,
    maximum, minimum, mod, multiply, negative, not_equal, pow, reciprocal, reduce_all, reduce_any,
    reduce_logsumexp, reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum, rint, round,
    rsqrt, sigmoid, sign, sin, sinh, sqrt, square, squared_difference, subtract, tan, tanh, top_k,
    truediv, unsorted_segment_sum,
)
from asyncmon.graph.nn import (
    l2_normalize, log_softmax, softmax, softplus, softsign, zero_fraction,
)
from asyncmon.tf1.old_names import count_nonzero, scalar_mul
# isort: on

__all__ = [
    "abs", "acos", "acosh", "add", "add_n", "argmax", "argmin", "asin", "asinh", "atan", "atan2",
    "atanh", "ceil", "conj", "cos", "cosh", "count_nonzero", "cumprod", "cumsum", "divide",
    "divide_no_nan", "equal", "erf", "erfc", "exp", "expm1", "floor", "floordiv", "floormod",
    "greater", "greater_equal", "in_top_k", "invert_permutation", "is_finite", "is_inf", "is_nan",
    "l2_normalize", "less", "less_equal", "log", "log1p", "log_softmax",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod",
    "multiply", "negative", "not_equal", "pow", "reciprocal", "reduce_all", "reduce_any",
    "reduce_logsumexp", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum",
    "rint", "round", "rsqrt", "scalar_mul", "sigmoid", "sign", "sin", "sinh", "softmax", "softplus",
    "softsign", "sqrt", "square", "squared_difference", "subtract", "tan", "tanh", "top_k",
    "truediv", "unsorted_segment_sum", "zero_fraction",
]
# fmt: on

__getattr__ = lacking(__name__, "math.", globals())
