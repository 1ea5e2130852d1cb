"""A Supervisor with its own services: a summary loop, a watcher, and a stop by a service."""
import tempfile

import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_integer("max_steps", 60, "Steps to train.")
flags.DEFINE_float("learning_rate", 0.2, "Of gradient descent.")
flags.DEFINE_string("train_dir", "supervised", "Where events and checkpoints go.")
FLAGS = flags.FLAGS

log = []


def build():
    target = tf.constant([3.0, -1.0])
    w = tf.Variable(tf.zeros([2]), name="w")
    loss = tf.reduce_sum(tf.square(w - target), name="loss")
    global_step = tf.Variable(0, name="global_step", trainable=False)
    train_op = tf.train.GradientDescentOptimizer(FLAGS.learning_rate).minimize(
        loss, global_step=global_step)
    tf.summary.scalar("loss", loss)
    return w, loss, global_step, train_op


def watch(sess, sv, global_step):
    """Called again and again, beside the training."""
    step = sess.run(global_step)
    log.append(int(step))
    if step >= FLAGS.max_steps:
        sv.request_stop()


def train():
    with tf.Graph().as_default():
        w, loss, global_step, train_op = build()
        summary_op = tf.summary.merge_all()
        sv = tf.train.Supervisor(
            logdir=FLAGS.train_dir, summary_op=None, global_step=global_step,
            save_model_secs=0, saver=tf.train.Saver(max_to_keep=3))
        with sv.managed_session() as sess:
            sv.loop(0.005, watch, args=(sess, sv, global_step))
            while not sv.should_stop():
                with sv.stop_on_exception():
                    _, step = sess.run([train_op, global_step])
                    if step % 20 == 0:
                        sv.summary_computed(sess, sess.run(summary_op), step)
                        sv.saver.save(sess, sv.save_path, global_step=step)
            final = sess.run(w)
        sv.stop()
    return final


def restore():
    with tf.Graph().as_default():
        w, loss, global_step, _ = build()
        sv = tf.train.Supervisor(logdir=FLAGS.train_dir, summary_op=None, save_model_secs=0)
        with sv.managed_session("", start_standard_services=False) as sess:
            step = tf.train.global_step(sess, global_step)
            return step, sess.run(loss)


def failing():
    """An error in the loop leaves by the coordinator."""
    with tf.Graph().as_default():
        build()
        sv = tf.train.Supervisor(logdir=tempfile.mkdtemp(), summary_op=None)
        try:
            with sv.managed_session() as sess:
                with sv.stop_on_exception():
                    sess.run("loss:0")
                    raise ValueError("it broke")
        except ValueError as e:
            return sv.should_stop(), str(e)


def main(_):
    final = train()
    step, loss = restore()
    print("watched", log[0] <= log[-1], log[-1] >= FLAGS.max_steps)
    print("failed", failing())
    print("result w=[%.2f, %.2f] restored at a multiple of 20: %s, loss %.3f" % (
        final[0], final[1], step % 20 == 0, loss))


if __name__ == "__main__":
    tf.app.run()
