"""Pre-train, then fine-tune from the checkpoint: Scaffold, session creators, a hook that needs the graph."""
import os

import numpy as np
import tensorflow as tf

PRETRAINED = "pretrained"
TUNED = "tuned"


def features(images, trainable=True):
    with tf.variable_scope("features"):
        w = tf.get_variable("w", [4, 3], initializer=tf.constant_initializer(0.1),
                            trainable=trainable, regularizer=lambda v: 0.001 * tf.nn.l2_loss(v))
        return tf.nn.tanh(tf.matmul(images, w))


def head(net, outputs, name):
    with tf.variable_scope(name):
        w = tf.get_variable("w", [3, outputs], initializer=tf.constant_initializer(0.2))
        b = tf.get_variable("b", [outputs], initializer=tf.zeros_initializer())
        return tf.matmul(net, w) + b


def inputs(seed, outputs):
    rng = np.random.RandomState(seed)
    x = rng.randn(48, 4).astype(np.float32)
    y = np.tanh(x.dot(rng.randn(4, outputs))).astype(np.float32)
    return tf.constant(x), tf.constant(y)


def objective(prediction, y):
    tf.add_to_collection(tf.GraphKeys.LOSSES, tf.reduce_mean(tf.square(prediction - y)))
    losses = tf.get_collection(tf.GraphKeys.LOSSES)
    regularization = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    return tf.add_n(losses + regularization, name="total_loss")


class LossHistory(tf.train.SessionRunHook):
    def begin(self):
        self.total = tf.get_default_graph().get_tensor_by_name("total_loss:0")
        self.history = []

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.total)

    def after_run(self, run_context, run_values):
        self.history.append(run_values.results)
        if np.isnan(run_values.results):
            run_context.request_stop()

    def end(self, session):
        self.last = session.run(self.total)


def pretrain():
    with tf.Graph().as_default():
        x, y = inputs(0, 2)
        loss = objective(head(features(x), 2, "old_head"), y)
        step = tf.train.get_or_create_global_step()
        train_op = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, step)
        saver = tf.train.Saver(sharded=False, max_to_keep=1)
        scaffold = tf.train.Scaffold(saver=saver)
        creator = tf.train.ChiefSessionCreator(scaffold=scaffold, checkpoint_dir=PRETRAINED)
        hooks = [
            tf.train.CheckpointSaverHook(PRETRAINED, save_steps=50, scaffold=scaffold),
            tf.train.StopAtStepHook(num_steps=50),
        ]
        with tf.train.MonitoredSession(session_creator=creator, hooks=hooks) as session:
            while not session.should_stop():
                session.run(train_op)


def finetune():
    with tf.Graph().as_default():
        x, y = inputs(1, 1)
        net = features(x, trainable=False)
        loss = objective(head(net, 1, "new_head"), y)
        step = tf.train.get_or_create_global_step()
        train_op = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, step)

        kept = [v for v in tf.global_variables() if v.op.name.startswith("features")]
        restorer = tf.train.Saver(kept)
        found = tf.train.latest_checkpoint(PRETRAINED)

        def load_pretrain(scaffold, sess):
            restorer.restore(sess, found)

        history = LossHistory()
        scaffold = tf.train.Scaffold(init_fn=load_pretrain, summary_op=None)
        with tf.train.MonitoredTrainingSession(
                scaffold=scaffold, checkpoint_dir=TUNED, save_checkpoint_secs=None,
                save_checkpoint_steps=20, log_step_count_steps=10,
                hooks=[history, tf.train.StopAtStepHook(last_step=40)]) as session:
            tuned_from = session.run(kept[0])
            while not session.should_stop():
                session.run(train_op)
        return tuned_from, history, found


if __name__ == "__main__":
    pretrain()
    start, history, found = finetune()
    before = tf.train.load_variable(PRETRAINED, "features/w")
    after = tf.train.load_variable(TUNED, "features/w")
    print("found", os.path.basename(found), "new names",
          [name for name, _ in tf.train.list_variables(TUNED) if "head/" in name and "Mom" not in name])
    print("features kept", bool(np.allclose(before, after)), bool(np.allclose(before, start)))
    print("result runs=%d loss fell: %s, last %.4f" % (
        len(history.history), history.last < history.history[0], history.last))
