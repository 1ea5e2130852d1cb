"""Neural network ops. TF1: ``tf.nn``."""

# fmt: off
# isort: off
from asyncmon.graph.nn.activations import (
    elu, gelu, leaky_relu, log_softmax, relu, relu6, selu, softmax, softplus, softsign, swish,
)
from asyncmon.graph.nn.conv import conv2d, conv2d_transpose
from asyncmon.graph.nn.dense import bias_add
from asyncmon.graph.nn.embedding import embedding_lookup
from asyncmon.graph.nn.losses import (
    l2_loss, sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits, weighted_cross_entropy_with_logits,
)
from asyncmon.graph.nn.normalization import batch_normalization, dropout, l2_normalize, moments
from asyncmon.graph.nn.pool import avg_pool, max_pool, max_pool2d
from asyncmon.graph.ops.elementwise import sigmoid, tanh
from asyncmon.graph.ops.gather import top_k
# isort: on

avg_pool2d = avg_pool

__all__ = [
    "avg_pool", "avg_pool2d", "batch_normalization", "bias_add", "conv2d", "conv2d_transpose",
    "dropout", "elu", "embedding_lookup", "gelu", "l2_loss", "l2_normalize",
    "leaky_relu", "log_softmax", "max_pool", "max_pool2d", "moments", "relu", "relu6", "selu",
    "sigmoid", "sigmoid_cross_entropy_with_logits", "softmax",
    "softmax_cross_entropy_with_logits_v2", "softplus", "softsign",
    "sparse_softmax_cross_entropy_with_logits", "swish", "tanh", "top_k",
    "weighted_cross_entropy_with_logits",
]
# fmt: on


def __dir__() -> list[str]:
    return __all__
