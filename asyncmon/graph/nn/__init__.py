"""Neural network ops. TF1: ``tf.nn``."""

# fmt: off
# isort: off
from asyncmon.graph.nn.activations import (
    crelu, elu, gelu, leaky_relu, log_softmax, relu, relu6, selu, softmax, softplus, softsign, swish,
)
from asyncmon.graph.nn.conv import conv2d, conv2d_backprop_filter, conv2d_backprop_input
from asyncmon.graph.nn.conv_kinds import (
    atrous_conv2d, conv1d, conv2d_transpose, convolution, depthwise_conv2d, depthwise_conv2d_native,
    separable_conv2d,
)
from asyncmon.graph.nn.dense import bias_add, relu_layer, xw_plus_b
from asyncmon.graph.nn.embedding import embedding_lookup
from asyncmon.graph.nn.l2 import l2_loss
from asyncmon.graph.nn.losses import (
    log_poisson_loss, sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2, sparse_softmax_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits,
)
from asyncmon.graph.nn.normalization import (
    batch_normalization, dropout, l2_normalize, moments, zero_fraction,
)
from asyncmon.graph.nn.pool import avg_pool, max_pool, max_pool2d
from asyncmon.graph.nn.sampling import (
    compute_accidental_hits, log_uniform_candidate_sampler, nce_loss, sampled_softmax_loss,
    uniform_candidate_sampler,
)
from asyncmon.graph.nn.batch_statistics import (
    batch_norm_with_global_normalization, fused_batch_norm, local_response_normalization, lrn,
    normalize_moments, sufficient_statistics, weighted_moments,
)
from asyncmon.graph.ops.functions import sigmoid, tanh
from asyncmon.graph.ops.gather import in_top_k, top_k
# isort: on

avg_pool2d = avg_pool

__all__ = [
    "atrous_conv2d", "avg_pool", "avg_pool2d", "batch_norm_with_global_normalization",
    "batch_normalization", "bias_add", "compute_accidental_hits", "conv1d", "conv2d",
    "conv2d_backprop_filter", "conv2d_backprop_input", "conv2d_transpose", "convolution", "crelu",
    "depthwise_conv2d", "depthwise_conv2d_native", "dropout", "elu", "embedding_lookup",
    "fused_batch_norm", "gelu", "in_top_k", "l2_loss", "l2_normalize", "leaky_relu",
    "local_response_normalization", "log_poisson_loss", "log_softmax", "log_uniform_candidate_sampler",
    "lrn", "max_pool", "max_pool2d", "moments", "nce_loss", "normalize_moments", "relu", "relu6",
    "relu_layer", "sampled_softmax_loss", "selu", "separable_conv2d", "sigmoid",
    "sigmoid_cross_entropy_with_logits", "softmax", "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2", "softplus", "softsign",
    "sparse_softmax_cross_entropy_with_logits", "sufficient_statistics", "swish", "tanh", "top_k",
    "uniform_candidate_sampler", "weighted_cross_entropy_with_logits", "weighted_moments", "xw_plus_b",
    "zero_fraction",
]
# fmt: on
