"""A little library of hooks around one training loop: timing, feeding, decay, early stopping, listeners."""
import collections
import time

import numpy as np
import tensorflow as tf
from tensorflow.python.training import basic_session_run_hooks
from tensorflow.python.training import session_run_hook
from tensorflow.python.training.session_run_hook import SessionRunArgs

EVENTS = []


class NamedHook(session_run_hook.SessionRunHook):
    """Remembers which of its methods were called."""

    name = "named"

    def _log(self, what):
        EVENTS.append("%s.%s" % (self.name, what))

    def begin(self):
        self._log("begin")

    def after_create_session(self, session, coord):
        self._log("created")

    def end(self, session):
        self._log("end")


class ExamplesPerSecondHook(NamedHook):
    """Counts examples between two points in time."""

    name = "rate"

    def __init__(self, batch_size, every_n_steps=10):
        self._batch_size = batch_size
        self._timer = basic_session_run_hooks.SecondOrStepTimer(every_steps=every_n_steps)
        self.rates = []

    def begin(self):
        super(ExamplesPerSecondHook, self).begin()
        self._global_step_tensor = tf.train.get_global_step()
        if self._global_step_tensor is None:
            raise RuntimeError("Global step should be created to use this hook.")

    def before_run(self, run_context):
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context, run_values):
        global_step = run_values.results
        if self._timer.should_trigger_for_step(global_step):
            elapsed_time, elapsed_steps = self._timer.update_last_triggered_step(global_step)
            if elapsed_time is not None:
                self.rates.append(elapsed_steps * self._batch_size / max(elapsed_time, 1e-9))


class DecayHook(session_run_hook.SessionRunHook):
    """Sets the learning rate by feeding it."""

    def __init__(self, rate, schedule):
        self._rate = rate
        self._schedule = schedule
        self._step = 0

    def before_run(self, run_context):
        self._step += 1
        return SessionRunArgs(fetches=None, feed_dict={self._rate: self._schedule(self._step)})


class EarlyStopping(NamedHook):
    """Stops when the loss on other data has not improved."""

    name = "stop"

    def __init__(self, loss, feed, patience):
        self._loss, self._feed, self._patience = loss, feed, patience
        self._best = float("inf")
        self._bad = 0

    def _evaluate(self, session):
        return session.run(self._loss, feed_dict=self._feed)

    def after_run(self, run_context, run_values):
        loss = self._evaluate(run_context.session)
        if loss < self._best - 1e-4:
            self._best, self._bad = loss, 0
            return
        self._bad += 1
        if self._bad >= self._patience:
            run_context.request_stop()


class Recorder(tf.train.CheckpointSaverListener):
    """Keeps the value of a variable at each checkpoint."""

    def __init__(self, tensor):
        self._tensor = tensor
        self.saved = collections.OrderedDict()

    def before_save(self, session, global_step_value):
        EVENTS.append("before_save %d" % global_step_value)

    def after_save(self, session, global_step_value):
        self.saved[int(global_step_value)] = session.run(self._tensor)[0]


def main():
    rng = np.random.RandomState(0)
    features = rng.randn(64, 3).astype(np.float32)
    targets = features.dot(np.array([[1.0], [-2.0], [0.5]], np.float32))

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 3])
        y = tf.placeholder(tf.float32, [None, 1])
        rate = tf.placeholder_with_default(0.1, [])
        w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
        train_op = tf.train.GradientDescentOptimizer(rate).minimize(
            loss, global_step=tf.train.get_or_create_global_step())

        recorder = Recorder(w[:, 0])
        speed = ExamplesPerSecondHook(64, every_n_steps=5)
        hooks = [
            speed,
            DecayHook(rate, lambda step: 0.4 / (1 + 0.02 * step)),
            EarlyStopping(loss, {x: features, y: targets}, patience=3),
            tf.train.StopAtStepHook(last_step=500),
            tf.train.CheckpointSaverHook("hooked", save_steps=10, listeners=[recorder]),
        ]
        start = time.time()
        steps = 0
        with tf.train.SingularMonitoredSession(hooks=hooks) as sess:
            while not sess.should_stop():
                sess.run(train_op, feed_dict={x: features, y: targets})
                steps += 1
                if steps == 1:
                    time.sleep(0.01)
        assert time.time() - start < 60

    print("events", EVENTS[:5], EVENTS[-3:])
    print("checkpoints", sorted(recorder.saved)[:3], len(speed.rates) > 0)
    last = list(recorder.saved.values())[-1]
    print("result steps=%d stopped_early=%s w0=%.2f" % (steps, steps < 500, last))


if __name__ == '__main__':
    main()
