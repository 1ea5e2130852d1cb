"""Queues by hand: threads that enqueue, a queue runner, a coordinator that ends them."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf

BATCH_SIZE = 8
NUM_THREADS = 3


def examples(seed):
    """Yields points of two classes."""
    rng = np.random.RandomState(seed)
    while True:
        label = rng.randint(2)
        yield rng.randn(2) + (2.0 if label else -2.0), label


def enqueue_loop(sess, coord, enqueue_op, placeholders, seed):
    """Runs in a thread until the coordinator stops."""
    feature, label = placeholders
    try:
        for point, which in examples(seed):
            if coord.should_stop():
                break
            sess.run(enqueue_op, feed_dict={feature: point, label: which})
    except tf.errors.CancelledError:
        pass  # the queue was closed
    except Exception as e:
        coord.request_stop(e)


def train():
    graph = tf.Graph()
    with graph.as_default():
        feature = tf.placeholder(tf.float32, shape=[2])
        label = tf.placeholder(tf.float32, shape=[])
        queue = tf.RandomShuffleQueue(
            capacity=64, min_after_dequeue=16, dtypes=[tf.float32, tf.float32], shapes=[[2], []])
        enqueue_op = queue.enqueue([feature, label])
        size = queue.size()
        close = queue.close(cancel_pending_enqueues=True)

        features, labels = queue.dequeue_many(BATCH_SIZE)
        w = tf.Variable(tf.zeros([2, 1]))
        b = tf.Variable(tf.zeros([1]))
        logits = tf.squeeze(tf.matmul(features, w) + b, [1])
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=labels))
        train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        init = tf.global_variables_initializer()

    with tf.Session(graph=graph) as sess:
        sess.run(init)
        coord = tf.train.Coordinator()
        threads = []
        for i in range(NUM_THREADS):
            t = threading.Thread(target=enqueue_loop,
                                 args=(sess, coord, enqueue_op, (feature, label), i))
            t.setDaemon(True)
            threads.append(t)
        for t in threads:
            t.start()
        try:
            for step in range(80):
                if coord.should_stop():
                    break
                _, value = sess.run([train_op, loss])
        finally:
            # Request a stop, close the queue, and join.
            coord.request_stop()
            sess.run(close)
            coord.join(threads, stop_grace_period_secs=5)
        print("alive", [t.is_alive() for t in threads], "queued", sess.run(size) >= 0)
        return sess.run([w, b])


def count():
    """A queue runner of the graph, started by hand; the data has an end."""
    with tf.Graph().as_default(), tf.Session() as sess:
        queue = tf.FIFOQueue(10, tf.int32, shapes=[[]])
        counter = tf.Variable(0, name="counter")
        number = counter.assign_add(1)
        runner = tf.train.QueueRunner(queue, [queue.enqueue(number)])
        tf.train.add_queue_runner(runner)
        total = queue.dequeue_many(5)
        sess.run(tf.global_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        batches = []
        while len(batches) < 4:
            batches.append(sess.run(total))
        coord.request_stop()
        coord.join(threads)
        return np.concatenate(batches)


if __name__ == "__main__":
    w, b = train()
    numbers = count()
    print("counted", len(numbers), numbers.min() >= 1)
    print("result weights are positive: %s" % bool((w > 0.1).all()))
