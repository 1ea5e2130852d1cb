"""An image classifier of the old school: a queue of examples, towers of functions, a monitored session."""
from datetime import datetime
import time

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS

# Basic model parameters.
tf.app.flags.DEFINE_integer('batch_size', 16, """Number of images to process in a batch.""")
tf.app.flags.DEFINE_integer('max_steps', 60, """Number of batches to run.""")
tf.app.flags.DEFINE_integer('log_frequency', 20, """How often to log results to the console.""")
tf.app.flags.DEFINE_string('train_dir', 'cifar_train', """Where to write event logs and checkpoint.""")

SIZE = 8
NUM_CLASSES = 3


def _images(count=96):
    """Squares whose place depends on the class."""
    rng = np.random.RandomState(0)
    labels = rng.randint(NUM_CLASSES, size=count).astype(np.int32)
    images = 0.3 * rng.rand(count, SIZE, SIZE, 1).astype(np.float32)
    for image, label in zip(images, labels):
        image[2 * label:2 * label + 3, 2 * label:2 * label + 3] += 1.0
    return images, labels


def inputs():
    images, labels = _images()
    image, label = tf.train.slice_input_producer([images, labels], shuffle=True, seed=1)
    return tf.train.shuffle_batch(
        [image, label], batch_size=FLAGS.batch_size, capacity=80, min_after_dequeue=32,
        num_threads=2, seed=2)


def _variable_with_weight_decay(name, shape, stddev, wd):
    var = tf.get_variable(name, shape, initializer=tf.truncated_normal_initializer(
        stddev=stddev, dtype=tf.float32, seed=len(name)))
    if wd is not None:
        weight_decay = tf.multiply(tf.nn.l2_loss(var), wd, name='weight_loss')
        tf.add_to_collection('losses', weight_decay)
    return var


def inference(images):
    # conv1
    with tf.variable_scope('conv1') as scope:
        kernel = _variable_with_weight_decay('weights', shape=[3, 3, 1, 8], stddev=0.2, wd=None)
        conv = tf.nn.conv2d(images, kernel, [1, 1, 1, 1], padding='SAME')
        biases = tf.get_variable('biases', [8], initializer=tf.constant_initializer(0.0))
        conv1 = tf.nn.relu(tf.nn.bias_add(conv, biases), name=scope.name)
    # pool1
    pool1 = tf.nn.max_pool(conv1, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1],
                           padding='SAME', name='pool1')
    norm1 = tf.nn.lrn(pool1, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name='norm1')
    # local2
    with tf.variable_scope('local2'):
        reshape = tf.reshape(norm1, [FLAGS.batch_size, -1])
        dim = reshape.get_shape()[1].value
        weights = _variable_with_weight_decay('weights', shape=[dim, NUM_CLASSES], stddev=0.1, wd=0.004)
        return tf.matmul(reshape, weights)


def loss(logits, labels):
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int64), logits=logits, name='cross_entropy_per_example')
    tf.add_to_collection('losses', tf.reduce_mean(cross_entropy, name='cross_entropy'))
    return tf.add_n(tf.get_collection('losses'), name='total_loss')


def train(total_loss, global_step):
    loss_averages = tf.train.ExponentialMovingAverage(0.9, name='avg')
    loss_averages_op = loss_averages.apply(tf.get_collection('losses') + [total_loss])
    with tf.control_dependencies([loss_averages_op]):
        opt = tf.train.GradientDescentOptimizer(0.2)
        grads = opt.compute_gradients(total_loss)
    apply_gradient_op = opt.apply_gradients(grads, global_step=global_step)
    variable_averages = tf.train.ExponentialMovingAverage(0.99, global_step)
    with tf.control_dependencies([apply_gradient_op]):
        return variable_averages.apply(tf.trainable_variables())


def main(argv=None):
    with tf.Graph().as_default():
        global_step = tf.train.get_or_create_global_step()
        images, labels = inputs()
        logits = inference(images)
        total_loss = loss(logits, labels)
        top_k_op = tf.nn.in_top_k(logits, labels, 1)
        train_op = train(total_loss, global_step)
        right = []

        class _LoggerHook(tf.train.SessionRunHook):
            """Logs loss and runtime."""

            def begin(self):
                self._step = -1
                self._start_time = time.time()

            def before_run(self, run_context):
                self._step += 1
                return tf.train.SessionRunArgs([total_loss, top_k_op])  # Asks for loss value.

            def after_run(self, run_context, run_values):
                loss_value, correct = run_values.results
                right.append(correct.mean())
                if self._step % FLAGS.log_frequency == 0:
                    duration = time.time() - self._start_time
                    self._start_time = time.time()
                    tf.logging.info('%s: step %d, loss = %.2f (%.3f sec)', datetime.now(),
                                    self._step, loss_value, duration)

        with tf.train.MonitoredTrainingSession(
                checkpoint_dir=FLAGS.train_dir,
                hooks=[tf.train.StopAtStepHook(last_step=FLAGS.max_steps),
                       tf.train.NanTensorHook(total_loss),
                       _LoggerHook()]) as mon_sess:
            while not mon_sess.should_stop():
                mon_sess.run(train_op)
    averages = [n for n, _ in tf.train.list_variables(FLAGS.train_dir) if n.endswith("Average")]
    print("averages", averages)
    print("result steps=%d right at the end: %s" % (len(right), np.mean(right[-10:]) > 0.9))


if __name__ == '__main__':
    tf.app.run()
