"""TF1: ``tf.debugging``: checks."""

# fmt: off
# isort: off
from asyncmon.system.missing_names import lacking
from asyncmon.graph import (
    Assert, check_numerics, is_finite, is_inf, is_nan,
)
from asyncmon.tf1.check_ops import (
    verify_tensor_all_finite as assert_all_finite, assert_equal, assert_greater,
    assert_greater_equal, assert_integer, assert_less, assert_less_equal, assert_near,
    assert_negative, assert_non_negative, assert_non_positive, assert_none_equal, assert_positive,
    assert_rank, assert_rank_at_least, assert_rank_in, assert_type,
)
# isort: on

__all__ = [
    "Assert", "assert_all_finite", "assert_equal", "assert_greater", "assert_greater_equal",
    "assert_integer", "assert_less", "assert_less_equal", "assert_near", "assert_negative",
    "assert_non_negative", "assert_non_positive", "assert_none_equal", "assert_positive",
    "assert_rank", "assert_rank_at_least", "assert_rank_in", "assert_type", "check_numerics",
    "is_finite", "is_inf", "is_nan",
]
# fmt: on

__getattr__ = lacking(__name__, "debugging.", globals())
