"""TensorFlow's numbers of dtypes, and its masked checksum, for event files and TF checkpoints."""

from __future__ import annotations

DTYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "variant": 21,
    "uint32": 22,
    "uint64": 23,
    "float8_e5m2": 24,
    "float8_e4m3fn": 25,
}
"""The numbers of ``tf.DataType`` by name."""

QUANTIZED = {"int8": 11, "uint8": 12, "int32": 13, "int16": 15, "uint16": 16}
"""The numbers of quantized dtypes by the name of their storage dtype."""


def enum_name(dtype: str) -> str | None:
    """Return the name of a dtype in protobuf's text format, such as ``DT_FLOAT``, or None."""
    return f"DT_{_NAMES.get(dtype, dtype).upper()}" if dtype in DTYPES else None


_NAMES = {"float16": "half", "float32": "float", "float64": "double"}


def masked(crc32c: int) -> int:
    """Mask a CRC-32C as TF does: rotate and add, so that a checksum over checksums is safe."""
    return ((crc32c >> 15 | crc32c << 17) + 0xA282EAD8) & 0xFFFFFFFF
