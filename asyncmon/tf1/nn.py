"""TF1: ``tf.nn``."""

from typing import Any

from asyncmon import graph as _g
from asyncmon.graph.nn import *
from asyncmon.tf1 import rnn_cell as rnn_cell
from asyncmon.tf1.ops.convolutions import conv1d as conv1d
from asyncmon.tf1.ops.convolutions import convolution as convolution
from asyncmon.tf1.ops.convolutions import depthwise_conv2d as depthwise_conv2d
from asyncmon.tf1.ops.convolutions import separable_conv2d as separable_conv2d
from asyncmon.tf1.ops.sparse import embedding_lookup_sparse as embedding_lookup_sparse
from asyncmon.tf1.rnn import bidirectional_dynamic_rnn as bidirectional_dynamic_rnn
from asyncmon.tf1.rnn import dynamic_rnn as dynamic_rnn
from asyncmon.tf1.rnn import static_bidirectional_rnn as static_bidirectional_rnn
from asyncmon.tf1.rnn import static_rnn as static_rnn

silu = swish


def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
) -> tuple[_g.Tensor, _g.Tensor, _g.Tensor]:
    """Return normalized images, and the mean and the unbiased variance of the batch. TF1: same name.

    Without ``is_training`` the images are normalized by ``mean`` and ``variance``, which are returned.
    ``data_format`` is "NHWC", or "NCHW" for images ``[batch, depth, height, width]``.
    """
    with _g.name_scope(name, "FusedBatchNorm", [x, scale, offset, mean, variance]):
        images = _g.convert_to_tensor(x)
        first = data_format == "NCHW"
        if is_training:
            mean, biased = moments(images, [0, 2, 3] if first else [0, 1, 2])
            count = _g.cast(_g.size(images) // _g.size(mean), images.dtype)
            variance = biased * count / _g.maximum(count - 1, 1.0)
        else:
            mean, variance = _g.convert_to_tensor(mean), _g.convert_to_tensor(variance)
            biased = variance
        four = [mean, biased, _g.convert_to_tensor(offset), _g.convert_to_tensor(scale)]
        four = [_g.reshape(v, [-1, 1, 1]) for v in four] if first else four
        return batch_normalization(images, *four, epsilon), mean, variance
