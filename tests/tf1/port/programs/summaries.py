"""An autoencoder that writes scalars, histograms and images for training and test."""
import argparse
import glob
import os
import sys

import numpy as np
import tensorflow as tf

FLAGS = None


def variable_summaries(var):
    """Attach a lot of summaries to a Tensor (for TensorBoard visualization)."""
    with tf.name_scope('summaries'):
        mean = tf.reduce_mean(var)
        tf.summary.scalar('mean', mean)
        with tf.name_scope('stddev'):
            stddev = tf.sqrt(tf.reduce_mean(tf.square(var - mean)))
        tf.summary.scalar('stddev', stddev)
        tf.summary.histogram('histogram', var)


def nn_layer(input_tensor, input_dim, output_dim, layer_name, act=tf.nn.sigmoid):
    with tf.name_scope(layer_name):
        with tf.name_scope('weights'):
            start = np.random.RandomState(input_dim).randn(input_dim, output_dim) * 0.5
            weights = tf.Variable(start.astype(np.float32))
            variable_summaries(weights)
        biases = tf.Variable(tf.constant(0.1, shape=[output_dim]))
        preactivate = tf.matmul(input_tensor, weights) + biases
        tf.summary.histogram('pre_activations', preactivate)
        return act(preactivate, name='activation')


def train():
    codes = np.eye(16, dtype=np.float32)
    with tf.name_scope('input'):
        x = tf.placeholder(tf.float32, [None, 16], name='x-input')
    tf.summary.image('input', tf.reshape(x, [-1, 4, 4, 1]), 2)

    hidden = nn_layer(x, 16, 6, 'encoder')
    tf.summary.histogram('code', hidden)
    y = nn_layer(hidden, 6, 16, 'decoder', act=tf.identity)

    with tf.name_scope('cross_entropy'):
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=x, logits=y))
    tf.summary.scalar('cross_entropy', loss)
    with tf.name_scope('train'):
        train_step = tf.train.AdamOptimizer(FLAGS.learning_rate).minimize(loss)
    with tf.name_scope('accuracy'):
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(x, 1), tf.argmax(y, 1)), tf.float32))
    tf.summary.scalar('accuracy', accuracy)

    # Merge all the summaries and write them out
    merged = tf.summary.merge_all()
    with tf.Session() as sess:
        train_writer = tf.summary.FileWriter(FLAGS.log_dir + '/train', sess.graph)
        test_writer = tf.summary.FileWriter(FLAGS.log_dir + '/test')
        tf.global_variables_initializer().run()

        for i in range(FLAGS.max_steps):
            if i % 50 == 0:
                summary, acc = sess.run([merged, accuracy], feed_dict={x: codes})
                test_writer.add_summary(summary, i)
                print('Accuracy at step %s: %s' % (i, acc))
            elif i % 100 == 99:
                # Record execution stats
                run_metadata = tf.RunMetadata()
                summary, _ = sess.run([merged, train_step], feed_dict={x: codes},
                                      options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
                                      run_metadata=run_metadata)
                train_writer.add_summary(summary, i)
            else:
                sess.run(train_step, feed_dict={x: codes})
        final = sess.run(accuracy, feed_dict={x: codes})
        train_writer.close()
        test_writer.close()
    return final


def read_back():
    """Count the tags of what was written."""
    (path,) = glob.glob(os.path.join(FLAGS.log_dir, 'test', '*tfevents*'))
    tags, steps = set(), []
    for event in tf.train.summary_iterator(path):
        for value in event.summary.value:
            tags.add(value.tag)
        if event.summary.value:
            steps.append(event.step)
    return sorted(tags), steps


def main(_):
    if tf.gfile.Exists(FLAGS.log_dir):
        tf.gfile.DeleteRecursively(FLAGS.log_dir)
    tf.gfile.MakeDirs(FLAGS.log_dir)
    final = train()
    tags, steps = read_back()
    print("tags", len(tags), tags[:4])
    print("result accuracy %.2f steps %s" % (final, steps))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--max_steps', type=int, default=300, help='Number of steps to run trainer.')
    parser.add_argument('--learning_rate', type=float, default=0.05)
    parser.add_argument('--log_dir', type=str, default='logs', help='Summaries log directory')
    FLAGS, unparsed = parser.parse_known_args()
    tf.app.run(main=main, argv=[sys.argv[0]] + unparsed)
