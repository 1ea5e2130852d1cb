"""Asynchronous replicas in one process: each worker has a copy of the model and a thread of its own.

The parameters live on a "parameter server": a variable scope that every worker shares.
"""
import threading
import time

import numpy as np
import tensorflow as tf

NUM_WORKERS = 3
MAX_STEPS = 150


class ParameterServer(object):
    def __init__(self, shape):
        with tf.variable_scope("ps"), tf.device("/cpu:0"):
            self.w = tf.get_variable("w", shape, initializer=tf.zeros_initializer())
            self.global_step = tf.get_variable(
                "step", [], dtype=tf.int64, initializer=tf.zeros_initializer(), trainable=False)
        self.optimizer = tf.train.GradientDescentOptimizer(0.1)


class Worker(object):
    """A local copy of the model that pulls parameters and pushes gradients."""

    def __init__(self, index, server):
        self.index = index
        self.rng = np.random.RandomState(index)
        with tf.variable_scope("worker_%d" % index), tf.device("/cpu:0"):
            self.local = tf.get_variable(
                "w", server.w.get_shape(), initializer=tf.zeros_initializer(), trainable=False)
            self.x = tf.placeholder(tf.float32, [None, 2], name="x")
            self.y = tf.placeholder(tf.float32, [None, 1], name="y")
            self.loss = tf.reduce_mean(tf.square(tf.matmul(self.x, self.local) - self.y))
        self.pull = self.local.assign(server.w)
        gradient, = tf.gradients(self.loss, [self.local])
        (gradient,), _ = tf.clip_by_global_norm([gradient], 10.0)
        self.push = server.optimizer.apply_gradients(
            [(gradient, server.w)], global_step=server.global_step)
        self.steps = 0

    def batch(self):
        x = self.rng.randn(16, 2).astype(np.float32)
        return {self.x: x, self.y: x.dot([[2.0], [-3.0]])}

    def work(self, sess, coord, global_step):
        with coord.stop_on_exception():
            while not coord.should_stop():
                sess.run(self.pull)
                _, step = sess.run([self.push, global_step], feed_dict=self.batch())
                self.steps += 1
                if step >= MAX_STEPS:
                    coord.request_stop()


class Monitor(object):
    """Samples the loss from time to time."""

    def __init__(self, worker):
        self.worker = worker
        self.losses = []

    def watch(self, sess, coord):
        while not coord.should_stop():
            self.losses.append(sess.run(self.worker.loss, feed_dict=self.worker.batch()))
            time.sleep(0.002)


def main(_):
    server = ParameterServer([2, 1])
    workers = [Worker(i, server) for i in range(NUM_WORKERS)]
    monitor = Monitor(workers[0])
    init = tf.global_variables_initializer()
    coord = tf.train.Coordinator()

    with tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1)) as sess:
        sess.run(init)
        # Start the workers.
        worker_threads = []
        for worker in workers:
            t = threading.Thread(target=worker.work, args=(sess, coord, server.global_step),
                                 name="worker-%d" % worker.index)
            t.start()
            worker_threads.append(t)
        watcher = threading.Thread(target=monitor.watch, args=(sess, coord))
        watcher.daemon = True
        watcher.start()

        coord.join(worker_threads)
        watcher.join()
        w, step = sess.run([server.w, server.global_step])

    print("every worker worked: %s" % all(worker.steps for worker in workers))
    print("watched: %s" % (len(monitor.losses) > 0))
    print("result w=[%.1f, %.1f] enough steps: %s" % (w[0, 0], w[1, 0], step >= MAX_STEPS))


if __name__ == "__main__":
    tf.app.run()
