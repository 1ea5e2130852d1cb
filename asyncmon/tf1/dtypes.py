"""TF1: ``tf.dtypes``: element types and casts."""

# fmt: off
# isort: off
from asyncmon.system.missing_names import lacking
from asyncmon.graph import (
    DType, as_dtype, bool, cast, complex128, complex64, double, float16, float32, float64, half,
    int16, int32, int64, int8, string, uint16, uint32, uint64, uint8,
)
from asyncmon.tf1.old_names import saturate_cast
# isort: on

__all__ = [
    "DType", "as_dtype", "bool", "cast", "complex64", "complex128",
    "double", "float16", "float32", "float64", "half", "int8", "int16", "int32", "int64",
    "saturate_cast", "string", "uint8", "uint16", "uint32", "uint64",
]
# fmt: on

__getattr__ = lacking(__name__, "dtypes.", globals())
