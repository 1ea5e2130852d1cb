"""Two optimizers in one step function: run_step_fn, StepContext and request_stop."""
import numpy as np
import tensorflow as tf

BATCH = 64
MEAN = 4.0


def generator(z, reuse=False):
    with tf.variable_scope("generator", reuse=reuse):
        scale = tf.get_variable("scale", [], initializer=tf.constant_initializer(0.5))
        shift = tf.get_variable("shift", [], initializer=tf.constant_initializer(0.0))
        return z * scale + shift


def discriminator(x, reuse=False):
    with tf.variable_scope("discriminator", reuse=reuse):
        hidden = tf.layers.dense(x, 16, activation=tf.nn.tanh, name="hidden",
                                 kernel_initializer=tf.random_normal_initializer(stddev=0.5, seed=4))
        return tf.layers.dense(hidden, 1, name="logit",
                               kernel_initializer=tf.random_normal_initializer(stddev=0.5, seed=5))


def cross_entropy(logits, value):
    labels = tf.ones_like(logits) * value
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def build():
    z = tf.placeholder(tf.float32, [None, 1], name="z")
    real = tf.placeholder(tf.float32, [None, 1], name="real")
    fake = generator(z)
    real_logits = discriminator(real)
    fake_logits = discriminator(fake, reuse=True)
    d_loss = cross_entropy(real_logits, 0.9) + cross_entropy(fake_logits, 0.0)
    g_loss = cross_entropy(fake_logits, 1.0)
    d_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="discriminator")
    g_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="generator")
    step = tf.train.get_or_create_global_step()
    d_train = tf.train.AdamOptimizer(0.02).minimize(d_loss, var_list=d_vars)
    g_train = tf.train.AdamOptimizer(0.02).minimize(g_loss, global_step=step, var_list=g_vars)
    return z, real, fake, d_train, g_train, d_loss, g_loss


class CountingHook(tf.train.SessionRunHook):
    runs = 0

    def after_run(self, run_context, run_values):
        self.runs += 1


def main(_):
    rng = np.random.RandomState(3)
    z, real, fake, d_train, g_train, d_loss, g_loss = build()
    counting = CountingHook()
    history = []

    def batch():
        return {z: rng.randn(BATCH, 1), real: MEAN + 0.5 * rng.randn(BATCH, 1)}

    def step_fn(step_context):
        # The discriminator is trained twice, without hooks.
        for _ in range(2):
            step_context.session.run(d_train, feed_dict=batch())
        _, loss = step_context.run_with_hooks([g_train, g_loss], feed_dict=batch())
        history.append(loss)
        if len(history) >= 250:
            step_context.request_stop()
        return loss

    with tf.train.MonitoredTrainingSession(hooks=[counting], log_step_count_steps=None) as sess:
        first = sess.run_step_fn(step_fn)
        while not sess.should_stop():
            sess.run_step_fn(step_fn)

    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        untrained = sess.run(fake, feed_dict={z: rng.randn(500, 1)}).mean()
    print("first loss is finite: %s, hook runs: %d" % (np.isfinite(first), counting.runs))
    print("untrained mean near 0: %s" % (abs(untrained) < 0.2))
    print("result steps=%d" % len(history))


if __name__ == "__main__":
    tf.app.run(main=main)
