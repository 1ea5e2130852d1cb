"""A simulation without learning, after the tutorial on partial differential equations."""
import numpy as np
import tensorflow as tf

sess = tf.InteractiveSession()


def make_kernel(a):
    """Transform a 2D array into a convolution kernel"""
    a = np.asarray(a)
    a = a.reshape(list(a.shape) + [1, 1])
    return tf.constant(a, dtype=1)


def simple_conv(x, k):
    """A simplified 2D convolution operation"""
    x = tf.expand_dims(tf.expand_dims(x, 0), -1)
    y = tf.nn.conv2d(x, k, [1, 1, 1, 1], padding='SAME')
    return y[0, :, :, 0]


def laplace(x):
    """Compute the 2D laplacian of an array"""
    laplace_k = make_kernel([[0.5, 1.0, 0.5],
                             [1.0, -6., 1.0],
                             [0.5, 1.0, 0.5]])
    return simple_conv(x, laplace_k)


N = 40

# Initial conditions -- some drops hit a pond
u_init = np.zeros([N, N], dtype=np.float32)
ut_init = np.zeros([N, N], dtype=np.float32)
drops = np.random.RandomState(7)
for n in range(10):
    a, b = drops.randint(0, N, 2)
    u_init[a, b] = drops.uniform()

eps = tf.placeholder(tf.float32, shape=())
damping = tf.placeholder(tf.float32, shape=())

U = tf.Variable(u_init)
Ut = tf.Variable(ut_init)

# Discretized PDE update rules
U_ = U + eps * Ut
Ut_ = Ut + eps * (laplace(U) - damping * Ut)

# Operation to update the state, when both new values are there
with tf.control_dependencies([U_, Ut_]):
    step = tf.group(
        U.assign(U_),
        Ut.assign(Ut_))

tf.global_variables_initializer().run()

frames = []
for i in range(200):
    # Step simulation
    step.run({eps: 0.03, damping: 0.04})
    if i % 50 == 0:
        frames.append(U.eval().mean())

print("frames", ["%.5f" % frame for frame in frames])
energy = (U.eval() ** 2).sum() + (Ut.eval() ** 2).sum()
print("result mean %.5f max %.4f energy %.4f" % (U.eval().mean(), np.abs(U.eval()).max(), energy))
sess.close()
