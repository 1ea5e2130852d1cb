"""Computations that give the same values with ``asyncmon.tf1`` and with TensorFlow.

Each function takes the module and returns tensors, or a structure of them. With TensorFlow installed,
``python tests/tf1/values/cases.py`` writes their values into ``values.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).with_name("values.json")
RNG = np.random.default_rng(30)
ROWS = RNG.normal(size=(5, 3)).round(2).astype("f")
IMAGES = RNG.normal(size=(2, 6, 5, 3)).round(2).astype("f")
EACH = RNG.normal(size=(3, 2, 3, 2)).round(2).astype("f")
POINTWISE = RNG.normal(size=(1, 1, 6, 2)).round(2).astype("f")
IDS = [0, 0, 2, 2, 2]
COORDINATES = [[0, 0], [0, 2], [2, 1]]


def differentiated(tf: Any, function: Any, *arrays: Any) -> list[Any]:
    """Return the result and the gradients of the sum of its squares."""
    xs = [tf.constant(array) for array in arrays]
    y = function(*xs)
    return [y, *(tf.convert_to_tensor(x) for x in tf.gradients(y * y, xs))]


def tensor_array(tf: Any) -> Any:
    def run(x: Any, w: Any) -> Any:
        given = tf.TensorArray(tf.float32, 5).unstack(x)
        made = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)

        def body(i: Any, h: Any, made: Any) -> Any:
            h = tf.tanh(h * w + given.read(i) * tf.reduce_sum(made.read(i - 1)))
            return i + 1, h, made.write(i, h)

        first = made.write(0, x[0] * w)
        _, last, made = tf.while_loop(lambda i, *_: i < 5, body, (1, x[0], first))
        return tf.concat([made.stack(), [last], made.gather([2, 0])], 0)

    return differentiated(tf, run, ROWS, ROWS[4])


def segments(tf: Any) -> Any:
    return [
        [differentiated(tf, lambda x, f=f: f(x, IDS), ROWS)
         for f in (tf.segment_sum, tf.segment_mean, tf.segment_max)],
        [differentiated(tf, lambda x, f=f: f(x, [2, 1, 0, 2, 0], 3), ROWS)
         for f in (tf.unsorted_segment_sum, tf.unsorted_segment_mean)],
        tf.unsorted_segment_mean(ROWS, [2, 0, 0, 2, 0], 4),
        tf.segment_max(tf.constant([3, 7, 5], tf.int64), [0, 0, 2]),
    ]  # fmt: skip


def partitions(tf: Any) -> Any:
    def run(x: Any) -> Any:
        parts = tf.dynamic_partition(x, [1, 0, 0, 3, 0], 4)
        return tf.concat([part * (i + 1.0) for i, part in enumerate(parts)], 0)

    stitched = differentiated(
        tf, lambda x, y: tf.dynamic_stitch([[2, 0], [[1], [3]]], [x, y]), ROWS[:2], ROWS[2:4, None]
    )
    again = tf.dynamic_stitch([[2, 0], 1, [[1], [2]]], [ROWS[:2], ROWS[4], ROWS[2:4, None]])
    masks = tf.dynamic_partition(tf.constant([[1, 2], [3, 4]]), [[0, 1], [1, 0]], 2)
    return [differentiated(tf, run, ROWS), stitched, again, masks]


def sparse(tf: Any) -> Any:
    ids = tf.SparseTensor(COORDINATES, tf.constant([3, 1, 0], tf.int64), [4, 3])
    weights = tf.SparseTensor(COORDINATES, tf.constant([0.5, 2.0, 3.0]), [4, 3])
    looked_up = [
        differentiated(
            tf, lambda t, w=w, c=c: tf.nn.embedding_lookup_sparse(t, ids, w, combiner=c), ROWS
        )
        for w in (None, weights)
        for c in ("sum", "mean", "sqrtn")
    ]
    clipped = tf.nn.embedding_lookup_sparse(tf.constant(ROWS), ids, None, combiner="sum", max_norm=0.5)
    return [looked_up, clipped, tf.sparse_tensor_to_dense(ids, -1), ids]


def parsed(tf: Any) -> Any:
    def example(*numbers: int) -> bytes:
        values = tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
        features = tf.train.Features(feature={"n": values})
        found: bytes = tf.train.Example(features=features).SerializeToString()
        return found

    features = {"n": tf.VarLenFeature(tf.int64), "x": tf.VarLenFeature(tf.float32)}
    batch = tf.parse_example(tf.constant([example(1, 2), example(), example(300)]), features)
    one = tf.parse_single_example(tf.constant(example(4, 5)), features)
    return [[found["n"], found["x"]] for found in (batch, one)]


def depthwise(tf: Any) -> Any:
    cases = ([1, 1, 1, 1], "SAME", None), ([1, 2, 2, 1], "VALID", None), ([1, 1, 1, 1], "SAME", [2, 2])
    return [
        [differentiated(tf, lambda x, f, a=a: tf.nn.depthwise_conv2d(x, f, *a), IMAGES, EACH),
         differentiated(tf, lambda x, f, p, a=a: tf.nn.separable_conv2d(x, f, p, *a),
                        IMAGES, EACH, POINTWISE)]
        for a in cases
    ]  # fmt: skip


def convolutions(tf: Any) -> Any:
    x, f = tf.constant(IMAGES[0]), tf.constant(EACH[0])
    return [
        tf.nn.conv1d(x, f, 2, "SAME"),
        tf.nn.conv1d(x, f, [1, 2, 1], "VALID", data_format="NWC"),
    ]


class Runs(list[Any]):
    """Fetches of several runs. The values of the last one are compared."""


def _metrics(tf: Any) -> Any:
    m = tf.metrics
    labels, guesses = tf.constant([[0, 1, 2, 2, 0, 1]]), tf.constant([[0, 2, 2, 1, 0, 1]])
    weights = tf.constant([[1.0, 0.5, 2.0, 1.0, 0.0, 3.0]])
    truth = tf.constant([True, False, True, True, False, False])
    scores = tf.constant([0.9, 0.2, 0.35, 0.6, 0.6, 0.05])
    of_each = tf.constant([1.0, 2.0, 0.5, 1.0, 1.5, 3.0])
    return [
        m.root_mean_squared_error(ROWS, 2 * ROWS, ROWS * ROWS),
        m.mean_iou(labels, guesses, 4),
        m.mean_iou(labels, guesses, 3, weights),
        *[getattr(m, f"{name}_at_thresholds")(truth, scores, [0.1, 0.35, 0.7], w)
          for name in ("true_positives", "true_negatives", "false_positives", "false_negatives",
                       "precision", "recall") for w in (None, of_each)],
    ]  # fmt: skip


def metrics(tf: Any) -> Any:
    return [update for _, update in _metrics(tf)]


def values_of_metrics(tf: Any) -> Any:
    pairs = _metrics(tf)
    return Runs([[update for _, update in pairs], [value for value, _ in pairs]])


def matrices(tf: Any) -> Any:
    weights = tf.constant([1, 2, 3])
    return [
        tf.confusion_matrix([1, 2, 1], [[0], [2], [0]], weights=weights),
        tf.confusion_matrix([1, 2], [0, 2], 4, tf.float32),
    ]


def decays(tf: Any) -> Any:
    steps = [0, 3, 10, 25, 37, 100]
    return [
        [tf.train.cosine_decay_restarts(0.5, step, 10, *a) for step in steps]
        for a in ((), (1.0, 0.8), (2.0, 0.9, 0.1))
    ]  # fmt: skip


def resized(tf: Any) -> Any:
    small = [tf.constant(IMAGES[:, :4, :5, :1]), tf.constant(IMAGES[0, :, :, :1])]
    return [
        [tf.image.resize_images(x, size, method, align_corners=align)
         for x in small for size in ([3, 7], [9, 2], [1, 1]) for method in (2, 3)
         for align in (False, True)],
        tf.image.crop_to_bounding_box(small[0], 1, 2, 3, 2),
        [tf.image.central_crop(small[1], fraction) for fraction in (0.5, 0.3, 1.0)],
        tf.image.central_crop(tf.placeholder_with_default(IMAGES, [None] * 3 + [3]), 0.55),
    ]  # fmt: skip


def networks(tf: Any) -> Any:
    start = tf.constant_initializer(0.1)
    with tf.variable_scope("networks", initializer=start):
        cells = [tf.nn.rnn_cell.ResidualWrapper(tf.nn.rnn_cell.GRUCell(3)) for _ in range(2)]
        steps = [tf.constant(ROWS[i : i + 2]) for i in range(3)]
        plain = tf.nn.static_bidirectional_rnn(*cells, steps, dtype=tf.float32)
    with tf.variable_scope("lengths", initializer=start):
        cells = [tf.nn.rnn_cell.LSTMCell(2) for _ in range(2)]
        short = tf.nn.static_bidirectional_rnn(*cells, steps, dtype=tf.float32, sequence_length=[2, 3])
    return [plain, short, tf.trainable_variables()]


def layers(tf: Any) -> Any:
    options = {"depthwise_initializer": tf.constant_initializer(0.2), "padding": "same",
               "pointwise_initializer": tf.constant_initializer(0.1)}  # fmt: skip
    return [
        tf.layers.separable_conv2d(IMAGES, 4, 3, strides=2, depth_multiplier=2, **options),
        tf.layers.separable_conv1d(ROWS[None], 2, 2, **options),
        tf.trainable_variables(),
    ]


def sparse_products(tf: Any) -> Any:
    x = tf.SparseTensor(COORDINATES, [1.0, 2.0, -3.0], [3, 3])
    b = tf.constant(ROWS[:3])
    made = [tf.sparse_tensor_dense_matmul(x, b), tf.sparse_tensor_dense_matmul(x, b, adjoint_a=True)]
    made.append(tf.sparse_tensor_dense_matmul(x, tf.constant(ROWS), adjoint_b=True))
    kept = tf.sparse_retain(x, [True, False, True])
    slopes = map(tf.convert_to_tensor, tf.gradients(made[0] ** 2, [x.values, b]))
    return [*made, *slopes, kept.indices, kept.values]


def unique(tf: Any) -> Any:
    texts, numbers = tf.constant(["b", "a", "b", "c"]), tf.constant([4, 2, 4, 9, 2])
    return [*tf.unique(texts), *tf.unique(numbers, tf.int64), *tf.unique_with_counts(numbers)]


def determinants(tf: Any) -> Any:
    square = EACH.reshape(2, 18)[:, :9].reshape(2, 3, 3)
    return [
        *differentiated(tf, tf.matrix_determinant, square),
        *differentiated(tf, tf.matrix_inverse, square),
        *differentiated(tf, lambda x: tf.matrix_inverse(x, adjoint=True), square),
    ]


def truncations(tf: Any) -> Any:
    x, y = tf.constant([7, -7, 7, -7]), tf.constant([2, 2, -2, -2])
    return [tf.truncatediv(x, y), tf.truncatemod(x, y), tf.truncatemod(ROWS, 0.3)]


def pictures(tf: Any) -> Any:
    image, gray = tf.image, tf.constant(IMAGES[..., :1])
    turned = [image.rot90(IMAGES, k) for k in (0, 1, 2, 3, -1)]
    colours = [image.rgb_to_grayscale(IMAGES), image.rgb_to_grayscale(np.uint8([[[3, 200, 90]]]))]
    padded = image.pad_to_bounding_box(IMAGES, 1, 2, 8, 9)
    turned.append(image.rot90(IMAGES, tf.placeholder_with_default(3, [])))
    return [*turned, *colours, image.grayscale_to_rgb(gray), padded]


def base64(tf: Any) -> Any:
    texts = tf.constant([b"", b"a", b"ab\xff\xfe", b"abc?>"])
    plain, padded = tf.encode_base64(texts), tf.encode_base64(texts, pad=True)
    same = [tf.equal(tf.decode_base64(one), texts) for one in (plain, padded)]
    return [plain, padded, *same]


def distributions(tf: Any) -> Any:
    normal = tf.distributions.Normal(ROWS[0], [0.5, 1.0, 2.0])
    classes = tf.distributions.Categorical(logits=ROWS)
    likely = tf.distributions.Categorical(probs=[0.2, 0.5, 0.3])
    return [
        normal.log_prob(ROWS), normal.prob(0.3), normal.entropy(), normal.mean(), normal.stddev(),
        classes.log_prob([0, 1, 2, 1, 0]), classes.entropy(), classes.mode(), classes.prob(2),
        likely.log_prob([1, 2]), likely.entropy(), tf.shape(classes.sample(4)),
        tf.shape(normal.sample([2, 3])), tf.shape(likely.sample()),
    ]  # fmt: skip


CASES = [tensor_array, segments, partitions, sparse, parsed, depthwise, convolutions]
CASES += [metrics, values_of_metrics, matrices, decays, resized, networks, layers]
CASES += [sparse_products, unique, determinants, truncations, pictures, base64, distributions]


def plain(value: Any) -> Any:
    """Return the value of a structure of tensors as JSON can hold it."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, int | float | str | None):
        return value
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "SU":
        return [str(array.dtype.kind), [x.decode() for x in array.ravel()]]
    if array.dtype.kind != "f":
        return array.tolist()
    flat = [float(f"{x:.6g}") if np.isfinite(x) else str(x) for x in array.ravel().tolist()]
    return {"shape": list(array.shape), "values": flat}


if __name__ == "__main__":
    import os

    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.layers is in the package tf-keras
    import tensorflow

    v1: Any = tensorflow.compat.v1
    v1.disable_v2_behavior()
    found = {}
    for case in CASES:
        if len(sys.argv) > 1 and case.__name__ not in sys.argv[1:]:
            continue
        with v1.Graph().as_default(), v1.Session() as sess:
            fetches = case(v1)
            sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            for run in fetches if isinstance(fetches, Runs) else [fetches]:
                found[case.__name__] = plain(sess.run(run))
    kept = json.loads(VALUES.read_text()) if VALUES.exists() and len(sys.argv) > 1 else {}
    VALUES.write_text(json.dumps(kept | found, separators=(",", ":")).replace('},"', '},\n"') + "\n")
