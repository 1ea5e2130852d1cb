"""The softmax tutorial in an InteractiveSession, on digits that are drawn here."""
import numpy as np
import tensorflow as tf

SIDE = 8
CLASSES = 4


class DataSet(object):
    """Hands out batches of noisy bars: horizontal, vertical, and the two diagonals."""

    def __init__(self, count, seed):
        self._rng = np.random.RandomState(seed)
        self.labels = np.eye(CLASSES)[self._rng.randint(CLASSES, size=count)].astype(np.float32)
        self.images = np.stack([self._draw(label) for label in self.labels.argmax(1)])
        self._place = 0

    def _draw(self, kind):
        image = 0.2 * self._rng.rand(SIDE, SIDE)
        where = self._rng.randint(1, SIDE - 1)
        if kind == 0:
            image[where] += 1
        elif kind == 1:
            image[:, where] += 1
        else:
            bar = np.eye(SIDE)
            image += bar if kind == 2 else bar[::-1]
        return image.reshape(-1).astype(np.float32)

    def next_batch(self, size):
        start = self._place
        self._place = (start + size) % len(self.labels)
        index = np.arange(start, start + size) % len(self.labels)
        return self.images[index], self.labels[index]


def weight_variable(shape):
    initial = tf.truncated_normal(shape, stddev=0.1, seed=3)
    return tf.Variable(initial)


def bias_variable(shape):
    initial = tf.constant(0.1, shape=shape)
    return tf.Variable(initial)


train = DataSet(400, seed=0)
test = DataSet(200, seed=1)

sess = tf.InteractiveSession()

x = tf.placeholder(tf.float32, shape=[None, SIDE * SIDE])
y_ = tf.placeholder(tf.float32, shape=[None, CLASSES])
keep_prob = tf.placeholder(tf.float32)

# First layer
W_fc1 = weight_variable([SIDE * SIDE, 32])
b_fc1 = bias_variable([32])
h_fc1 = tf.nn.relu(tf.matmul(x, W_fc1) + b_fc1)
h_drop = tf.nn.dropout(h_fc1, keep_prob)

# Readout
W_fc2 = weight_variable([32, CLASSES])
b_fc2 = bias_variable([CLASSES])
y = tf.matmul(h_drop, W_fc2) + b_fc2

cross_entropy = tf.reduce_mean(
    tf.nn.softmax_cross_entropy_with_logits(labels=y_, logits=y))
train_step = tf.train.AdamOptimizer(1e-2).minimize(cross_entropy)
correct_prediction = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
accuracy = tf.reduce_mean(tf.cast(correct_prediction, tf.float32))

tf.global_variables_initializer().run()

for i in range(200):
    batch = train.next_batch(50)
    if i % 50 == 0:
        train_accuracy = accuracy.eval(feed_dict={x: batch[0], y_: batch[1], keep_prob: 1.0})
        print("step %d, training accuracy %g" % (i, train_accuracy))
    train_step.run(feed_dict={x: batch[0], y_: batch[1], keep_prob: 0.8})

final = accuracy.eval(feed_dict={x: test.images, y_: test.labels, keep_prob: 1.0})
print("weights", W_fc1.eval().shape, "first bias", b_fc2.eval()[0].dtype)
print("result accuracy %s" % ("high" if final > 0.95 else final))
sess.close()
