"""Linear regression with feed_dict; the weights are saved, and restored in a second session."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import os

import numpy as np
import tensorflow as tf

LEARNING_RATE = 0.3
EPOCHS = 60
DISPLAY_STEP = 20
CHECKPOINT = os.path.join("checkpoints", "regression")

# Training data
rng = np.random.RandomState(1)
train_X = np.linspace(-1.0, 1.0, 17).astype(np.float32)
train_Y = (3.0 * train_X - 0.5 + 0.05 * rng.randn(17)).astype(np.float32)
n_samples = train_X.shape[0]

# Graph inputs
X = tf.placeholder("float", name="X")
Y = tf.placeholder("float", name="Y")

# Model
W = tf.Variable(0.3, name="weight")
b = tf.Variable(0.1, name="bias")
pred = tf.add(tf.multiply(X, W), b)

# Mean squared error
cost = tf.reduce_sum(tf.pow(pred - Y, 2)) / (2 * n_samples)
optimizer = tf.train.GradientDescentOptimizer(LEARNING_RATE).minimize(cost)

init = tf.global_variables_initializer()
saver = tf.train.Saver({"w": W, "b": b}, max_to_keep=2)

with tf.Session() as sess:
    sess.run(init)

    # Fit all training data, one sample at a time
    for epoch in range(EPOCHS):
        for (x, y) in zip(train_X, train_Y):
            sess.run(optimizer, feed_dict={X: x, Y: y})

        # Display logs
        if (epoch + 1) % DISPLAY_STEP == 0:
            c = sess.run(cost, feed_dict={X: train_X, Y: train_Y})
            print("Epoch:", "%04d" % (epoch + 1), "cost=", "{:.6f}".format(c),
                  "W=", "%.4f" % sess.run(W), "b=", "%.4f" % sess.run(b))
            saver.save(sess, CHECKPOINT, global_step=epoch + 1)

    training_cost = sess.run(cost, feed_dict={X: train_X, Y: train_Y})
    print("Training cost= %.5f" % training_cost)

# Start again from the checkpoint.
with tf.Session() as sess:
    state = tf.train.get_checkpoint_state(os.path.dirname(CHECKPOINT))
    assert state and state.model_checkpoint_path
    saver.restore(sess, state.model_checkpoint_path)
    test_X = np.asarray([-2.0, 0.25, 2.0], np.float32)
    test_Y = 3.0 * test_X - 0.5
    testing_cost = sess.run(
        tf.reduce_sum(tf.pow(pred - Y, 2)) / (2 * test_X.shape[0]),
        feed_dict={X: test_X, Y: test_Y})  # same function as the cost above
    print("Kept:", [os.path.basename(path) for path in state.all_model_checkpoint_paths])
    print("Testing cost= %.5f" % testing_cost)
    print("Absolute mean square loss difference: %.5f" % abs(training_cost - testing_cost))
    print("result W=%.3f b=%.3f" % (W.eval(), b.eval()))
