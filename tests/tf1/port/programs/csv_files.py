"""Reads CSV files line by line through queues, shuffles them into batches, and fits a classifier."""
from __future__ import division, print_function

import csv
import glob
import os

import numpy as np
import tensorflow as tf

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_string('data_dir', 'flowers', 'Where the files are.')
flags.DEFINE_integer('num_epochs', 20, 'How often each line is read.')
flags.DEFINE_integer('batch_size', 10, 'Lines per batch.')

NAMES = ['round', 'long', 'spiked']


def write_files():
    """Three files with a header and lines of two measures and a name."""
    rng = np.random.RandomState(2)
    tf.gfile.MakeDirs(FLAGS.data_dir)
    for number in range(3):
        with open(os.path.join(FLAGS.data_dir, 'part%d.csv' % number), 'w') as f:
            writer = csv.writer(f, lineterminator='\n')
            writer.writerow(['width', 'height', 'kind'])
            for _ in range(20):
                kind = rng.randint(3)
                x, y = [(0, 0), (2, 0), (0, 2)][kind] + 0.3 * rng.randn(2)
                writer.writerow(['%.3f' % x, '%.3f' % y, NAMES[kind]])


def read_line(filename_queue):
    reader = tf.TextLineReader(skip_header_lines=1)
    key, value = reader.read(filename_queue)
    # Default values, in case of empty columns. Also specifies the type of the decoded result.
    width, height, kind = tf.decode_csv(value, record_defaults=[[0.0], [0.0], ['round']])
    label = tf.argmax(tf.cast(tf.equal(tf.constant(NAMES), kind), tf.int32))
    return tf.stack([width, height]), label, key


def input_pipeline():
    filenames = sorted(glob.glob(os.path.join(FLAGS.data_dir, '*.csv')))
    filename_queue = tf.train.string_input_producer(
        filenames, num_epochs=FLAGS.num_epochs, shuffle=True, seed=1)
    example, label, key = read_line(filename_queue)
    min_after_dequeue = 30
    capacity = min_after_dequeue + 3 * FLAGS.batch_size
    return tf.train.shuffle_batch(
        [example, label, key], batch_size=FLAGS.batch_size, capacity=capacity,
        min_after_dequeue=min_after_dequeue, seed=3)


def train():
    examples, labels, keys = input_pipeline()
    logits = tf.layers.dense(examples, len(NAMES))
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    accuracy = tf.reduce_mean(tf.to_float(tf.equal(tf.argmax(logits, 1), labels)))
    train_op = tf.train.AdagradOptimizer(0.5).minimize(loss)

    seen, right = set(), []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])

        # Start populating the filename queue.
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(coord=coord)
        try:
            while not coord.should_stop():
                _, value, names = sess.run([train_op, accuracy, keys])
                seen.update(name.decode() for name in names)
                right.append(value)
        except tf.errors.OutOfRangeError:
            print('Done training -- epoch limit reached')
        finally:
            coord.request_stop()
        coord.join(threads)
    return seen, right


def main(_):
    write_files()
    seen, right = train()
    print('lines', len(seen), sorted(seen)[0].split(os.sep)[-1])
    print('result batches=%d right at the end: %s' % (len(right), np.mean(right[-20:]) > 0.9))


if __name__ == '__main__':
    tf.app.run()
