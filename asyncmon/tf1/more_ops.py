"""The ops of the engine that only programs written for TF1 need."""

from asyncmon.graph.ops.csv_records import decode_csv
from asyncmon.graph.ops.matrices import diag, diag_part, norm
from asyncmon.graph.ops.scatter import (
    scatter_nd_add,
    scatter_nd_sub,
    scatter_nd_update,
    sparse_to_dense,
)
from asyncmon.graph.ops.searchsorted import searchsorted
from asyncmon.graph.ops.sequences import count_up_to, meshgrid, reverse_sequence, sequence_mask
from asyncmon.graph.ops.strings import decode_raw, string_to_number

__all__ = [
    "count_up_to", "decode_csv", "decode_raw", "diag", "diag_part", "meshgrid", "norm",
    "reverse_sequence", "scatter_nd_add", "scatter_nd_sub", "scatter_nd_update", "searchsorted",
    "sequence_mask", "sparse_to_dense", "string_to_number",
]  # fmt: skip
