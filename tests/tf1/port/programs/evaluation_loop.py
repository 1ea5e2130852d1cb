"""A trainer that writes checkpoints, and an evaluator that follows them."""
import os
import time

import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.WARN)

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string('checkpoint_dir', 'followed', """Where to read checkpoints.""")
tf.app.flags.DEFINE_integer('max_steps', 30, """Number of batches to run.""")


def data():
    x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]
    return x, 2.0 * x + 1.0


def inference(x):
    w = tf.get_variable("w", [1, 1], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    return tf.matmul(x, w) + b


class _TimeHook(tf.train.SessionRunHook):
    """Measures the time of each run."""

    def begin(self):
        self._step = -1
        self.seconds = []

    def before_run(self, run_context):
        self._step += 1
        self._start_time = time.time()
        return tf.train.SessionRunArgs(tf.get_collection("loss")[0])  # Asks for loss value.

    def after_run(self, run_context, run_values):
        self.seconds.append(time.time() - self._start_time)
        self.last_loss = run_values.results


def train():
    with tf.Graph().as_default():
        x, y = data()
        global_step = tf.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(inference(tf.constant(x)) - y))
        tf.add_to_collection("loss", loss)
        rate = tf.train.exponential_decay(0.5, global_step, 10, 0.9, staircase=True)
        train_op = tf.train.GradientDescentOptimizer(rate).minimize(loss, global_step)
        timing = _TimeHook()
        with tf.train.MonitoredTrainingSession(
                checkpoint_dir=FLAGS.checkpoint_dir,
                hooks=[tf.train.StopAtStepHook(last_step=FLAGS.max_steps),
                       tf.train.NanTensorHook(loss),
                       timing],
                save_checkpoint_secs=None,
                save_checkpoint_steps=10,
                config=tf.ConfigProto(log_device_placement=False)) as mon_sess:
            while not mon_sess.should_stop():
                mon_sess.run(train_op)
        return len(timing.seconds), timing.last_loss


def eval_once(saver, path, loss, writer, summary_op):
    with tf.Session() as sess:
        saver.restore(sess, path)
        global_step = path.split('/')[-1].split('-')[-1]
        value, text = sess.run([loss, summary_op])
        writer.add_summary(text, int(global_step))
        return int(global_step), value


def evaluate(stop_at):
    found = []
    with tf.Graph().as_default():
        x, y = data()
        loss = tf.reduce_mean(tf.abs(inference(tf.constant(x)) - y))
        tf.summary.scalar('eval_loss', loss)
        summary_op = tf.summary.merge_all()
        saver = tf.train.Saver()
        writer = tf.summary.FileWriter(os.path.join(FLAGS.checkpoint_dir, "eval"))
        for path in tf.train.checkpoints_iterator(FLAGS.checkpoint_dir, timeout=5):
            found.append(eval_once(saver, path, loss, writer, summary_op))
            if found[-1][0] >= stop_at:
                break
        writer.close()
    return found


def main(argv=None):  # pylint: disable=unused-argument
    steps, loss = train()
    found = evaluate(FLAGS.max_steps)
    names = [name for name, shape in tf.train.list_variables(FLAGS.checkpoint_dir)]
    print("variables", names)
    print("latest", os.path.basename(tf.train.latest_checkpoint(FLAGS.checkpoint_dir)))
    print("result runs=%d last loss %.5f, evaluated at %d: %.4f" % (
        steps, loss, found[-1][0], found[-1][1]))


if __name__ == '__main__':
    tf.app.run()
