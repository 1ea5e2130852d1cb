"""A classifier of bags of words: features of variable length, sparse lookups, a loop with arrays."""
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.ops import tensor_array_ops

WORDS, SIZE, CLASSES = 9, 4, 3


def examples():
    random = np.random.RandomState(5)
    for i in range(60):
        label = i % CLASSES
        words = 3 * random.randint(0, 3, 1 + i % 5) + label
        features = tf.train.Features(feature={
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            "words": tf.train.Feature(int64_list=tf.train.Int64List(value=words)),
        })
        yield tf.train.Example(features=features).SerializeToString()


def decayed_sums(vectors, count):
    """Return for each row the decayed sum of the rows before it."""
    given = tensor_array_ops.TensorArray(tf.float32, size=count).unstack(vectors)
    sums = tensor_array_ops.TensorArray(tf.float32, size=0, dynamic_size=True)

    def body(i, total, sums):
        total = 0.5 * total + given.read(i)
        return i + 1, total, sums.write(i, total)

    start = (0, tf.zeros([SIZE]), sums)
    return control_flow_ops.while_loop(lambda i, *_: i < count, body, start)[2].stack()


def main(_):
    serialized = tf.placeholder(tf.string, [None])
    features = {"label": tf.FixedLenFeature([], tf.int64), "words": tf.VarLenFeature(tf.int64)}
    parsed = tf.parse_example(serialized, features)
    labels, words = parsed["label"], parsed["words"]

    start = np.cos(np.arange(WORDS * SIZE)).reshape(WORDS, SIZE).astype("float32")
    table = tf.get_variable("table", initializer=start)
    bags = tf.nn.embedding_lookup_sparse(table, words, None, combiner="sqrtn")
    logits = tf.layers.dense(bags, CLASSES, kernel_initializer=tf.constant_initializer(0.1))
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    steps = tf.reduce_mean(tf.square(decayed_sums(bags, tf.shape(bags)[0])))
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss + 0.01 * steps, step)
    parts = tf.dynamic_partition(bags, tf.cast(labels, tf.int32), CLASSES)
    norms = tf.stack([tf.reduce_sum(tf.square(part)) for part in parts])
    per_class = tf.segment_mean(norms, [0, 0, 1])

    best = tf.argmax(logits, 1)
    batch = list(examples())
    with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=80)]) as sess:
        while not sess.should_stop():
            value, guesses, wanted, means, seen = sess.run(
                [loss, best, labels, per_class, words], feed_dict={serialized: batch})
            sess.run(train, feed_dict={serialized: batch})
    print("loss %.4f means %.1f %.1f" % (value, means[0], means[1]))
    print("words %s %s" % (isinstance(seen, tf.SparseTensorValue), seen.dense_shape.tolist()))
    print("result right: %s" % (np.mean(guesses == wanted) > 0.95))


if __name__ == "__main__":
    tf.app.run()
