"""The ops of the engine that only programs written for TF1 need."""

# fmt: off
# isort: off
from asyncmon.graph.ops.counting import (
    bincount, histogram_fixed_width, histogram_fixed_width_bins, searchsorted, setdiff1d, unique,
    unique_with_counts, unravel_index,
)
from asyncmon.graph.ops.csv_records import decode_csv
from asyncmon.graph.ops.custom_gradient import custom_gradient
from asyncmon.graph.ops.matrices import (
    cross, diag, diag_part, matrix_band_part, matrix_diag, matrix_diag_part, matrix_set_diag, norm,
    trace,
)
from asyncmon.graph.ops.more_functions import (
    angle, bitcast, complex, digamma, imag, lgamma, real, truncatediv,
    truncatemod,
)
from asyncmon.graph.ops.random_ops import random_gamma, random_poisson
from asyncmon.graph.ops.scatter import (
    scatter_nd_add, scatter_nd_sub,
    scatter_nd_update, sparse_to_dense, tensor_scatter_add, tensor_scatter_sub,
    tensor_scatter_update,
)
from asyncmon.graph.ops.segments import (
    segment_max, segment_mean, segment_min, segment_prod, segment_sum, unsorted_segment_max,
    unsorted_segment_mean, unsorted_segment_min, unsorted_segment_prod, unsorted_segment_sqrt_n,
)
from asyncmon.graph.ops.sequences import (
    count_up_to, dynamic_partition, dynamic_stitch, meshgrid, repeat, reverse_sequence, roll,
    sequence_mask,
)
from asyncmon.graph.ops.strings import (
    as_string, decode_raw, reduce_join, regex_replace, string_join, string_strip, string_to_number,
    substr,
)
# isort: on

__all__ = [
    "angle", "as_string", "bincount", "bitcast", "complex", "count_up_to", "cross",
    "custom_gradient", "decode_csv", "decode_raw", "diag", "diag_part", "digamma",
    "dynamic_partition", "dynamic_stitch", "histogram_fixed_width", "histogram_fixed_width_bins",
    "imag", "lgamma", "matrix_band_part", "matrix_diag", "matrix_diag_part", "matrix_set_diag",
    "meshgrid", "norm", "random_gamma", "random_poisson", "real", "reduce_join", "regex_replace",
    "repeat", "reverse_sequence", "roll", "scatter_nd_add", "scatter_nd_sub", "scatter_nd_update",
    "searchsorted", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum",
    "sequence_mask", "setdiff1d", "sparse_to_dense", "string_join", "string_strip",
    "string_to_number", "substr", "tensor_scatter_add", "tensor_scatter_sub",
    "tensor_scatter_update", "trace", "truncatediv", "truncatemod", "unique", "unique_with_counts",
    "unravel_index", "unsorted_segment_max", "unsorted_segment_mean", "unsorted_segment_min",
    "unsorted_segment_prod", "unsorted_segment_sqrt_n",
]
# fmt: on
