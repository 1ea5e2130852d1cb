"""basic_train_loop: a step function, a supervisor, an error from which it recovers."""
import os

import tensorflow as tf

LOGDIR = "looped"


class Failure(object):
    """Raises AbortedError once."""

    def __init__(self, at):
        self.at = at
        self.raised = 0

    def check(self, step):
        if step == self.at and not self.raised:
            self.raised += 1
            raise tf.errors.AbortedError(None, None, "the parameter server was restarted")


def train_step_fn(sess, train_op, step, sv, failure, limit=20):
    """One step with its own save, so that nothing is lost."""
    _, value = sess.run([train_op, step])
    if value % 5 == 0:
        sv.saver.save(sess, sv.save_path, global_step=step)
    failure.check(value)
    if value >= limit:
        sv.request_stop()
    calls.append(int(value))


calls = []


def main(unused_argv):
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        w = tf.get_variable("w", [], initializer=tf.constant_initializer(8.0))
        with tf.control_dependencies([w.assign(w * 0.5)]):
            train_op = tf.assign_add(step, 1)
        failure = Failure(at=7)
        sv = tf.train.Supervisor(logdir=LOGDIR, save_model_secs=3600, summary_op=None)
        tf.train.basic_train_loop(sv, train_step_fn, args=(train_op, step, sv, failure),
                                  kwargs={"limit": 12})
        assert sv.should_stop()

    reader = tf.train.load_checkpoint(LOGDIR)
    print("calls", calls[:6], "...", calls[-1])
    print("files", sorted(name.split(".")[1] for name in os.listdir(LOGDIR) if "ckpt-10" in name)[0])
    print("result failed=%d saved step %d w=%.6f" % (
        failure.raised, reader.get_tensor("global_step"), reader.get_tensor("w")))


if __name__ == "__main__":
    tf.app.run()
