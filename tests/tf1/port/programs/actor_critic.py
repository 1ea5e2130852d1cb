"""Asynchronous advantage actor-critic: workers in threads, each with its own copy of a global network."""
import threading
from time import sleep

import numpy as np
import tensorflow as tf

GAMMA = 0.9
MAX_EPISODES = 120


def update_target_graph(from_scope, to_scope):
    """Copies one set of variables to another."""
    from_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, from_scope)
    to_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, to_scope)
    op_holder = []
    for from_var, to_var in zip(from_vars, to_vars):
        op_holder.append(to_var.assign(from_var))
    return op_holder


def discount(x, gamma):
    result, total = np.zeros(len(x), np.float32), 0.0
    for i in reversed(range(len(x))):
        total = x[i] + gamma * total
        result[i] = total
    return result


class Bandits(object):
    """The state says which of three arms pays; an episode has four pulls."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def reset(self):
        self.left = 4
        self.arm = self.rng.randint(3)
        return np.eye(3)[self.arm]

    def step(self, action):
        reward = 1.0 if action == self.arm else -0.5
        self.left -= 1
        self.arm = self.rng.randint(3)
        return np.eye(3)[self.arm], reward, self.left == 0


class AC_Network(object):
    def __init__(self, scope, trainer):
        with tf.variable_scope(scope):
            self.inputs = tf.placeholder(shape=[None, 3], dtype=tf.float32)
            hidden = tf.layers.dense(self.inputs, 12, activation=tf.nn.elu)
            self.policy = tf.layers.dense(hidden, 3, activation=tf.nn.softmax)
            self.value = tf.layers.dense(hidden, 1)

            # Only the worker networks need ops for loss functions and gradient updating.
            if scope != 'global':
                self.actions = tf.placeholder(shape=[None], dtype=tf.int32)
                self.actions_onehot = tf.one_hot(self.actions, 3, dtype=tf.float32)
                self.target_v = tf.placeholder(shape=[None], dtype=tf.float32)
                self.advantages = tf.placeholder(shape=[None], dtype=tf.float32)
                responsible = tf.reduce_sum(self.policy * self.actions_onehot, [1])
                value_loss = 0.5 * tf.reduce_sum(
                    tf.square(self.target_v - tf.reshape(self.value, [-1])))
                self.entropy = -tf.reduce_sum(self.policy * tf.log(self.policy + 1e-8))
                policy_loss = -tf.reduce_sum(tf.log(responsible + 1e-8) * self.advantages)
                self.loss = 0.5 * value_loss + policy_loss - self.entropy * 0.01
                local_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope)
                self.gradients = tf.gradients(self.loss, local_vars)
                self.var_norms = tf.global_norm(local_vars)
                grads, self.grad_norms = tf.clip_by_global_norm(self.gradients, 40.0)
                global_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, 'global')
                self.apply_grads = trainer.apply_gradients(zip(grads, global_vars))


class Worker():
    def __init__(self, number, trainer, global_episodes):
        self.name = "worker_" + str(number)
        self.env = Bandits(number)
        self.rng = np.random.RandomState(100 + number)
        self.global_episodes = global_episodes
        self.increment = self.global_episodes.assign_add(1)
        self.local_AC = AC_Network(self.name, trainer)
        self.update_local_ops = update_target_graph('global', self.name)
        self.episode_rewards = []

    def train(self, rollout, sess, gamma):
        observations, actions, rewards, values = map(np.array, zip(*rollout))
        discounted = discount(rewards, gamma)
        feed_dict = {self.local_AC.target_v: discounted,
                     self.local_AC.inputs: observations,
                     self.local_AC.actions: actions,
                     self.local_AC.advantages: discounted - values}
        loss, norm, _ = sess.run([self.local_AC.loss, self.local_AC.grad_norms,
                                  self.local_AC.apply_grads], feed_dict=feed_dict)
        return loss / len(rollout), norm

    def work(self, gamma, sess, coord, saver):
        episode_count = sess.run(self.global_episodes)
        with sess.as_default(), sess.graph.as_default():
            while not coord.should_stop():
                sess.run(self.update_local_ops)
                episode_buffer, done = [], False
                s = self.env.reset()
                while not done:
                    # Take an action using probabilities from policy network output.
                    a_dist, v = sess.run([self.local_AC.policy, self.local_AC.value],
                                         feed_dict={self.local_AC.inputs: [s]})
                    a = self.rng.choice(3, p=a_dist[0] / a_dist[0].sum())
                    s1, r, done = self.env.step(a)
                    episode_buffer.append((s, a, r, v[0, 0]))
                    s = s1
                self.episode_rewards.append(sum(step[2] for step in episode_buffer))
                self.train(episode_buffer, sess, gamma)
                episode_count = sess.run(self.increment)
                if self.name == 'worker_0' and len(self.episode_rewards) % 20 == 0:
                    saver.save(sess, './a3c/model-' + str(episode_count) + '.cptk')
                if episode_count >= MAX_EPISODES * 3:
                    coord.request_stop()


tf.reset_default_graph()
tf.set_random_seed(1)

with tf.device("/cpu:0"):
    global_episodes = tf.Variable(0, dtype=tf.int32, name='global_episodes', trainable=False)
    trainer = tf.train.AdamOptimizer(learning_rate=0.02)
    master_network = AC_Network('global', None)  # Generate global network
    workers = []
    # Create worker classes
    for i in range(3):
        workers.append(Worker(i, trainer, global_episodes))
    saver = tf.train.Saver(max_to_keep=2)

with tf.Session() as sess:
    coord = tf.train.Coordinator()
    sess.run(tf.global_variables_initializer())

    # This is where the asynchronous magic happens.
    worker_threads = []
    for worker in workers:
        worker_work = lambda: worker.work(GAMMA, sess, coord, saver)
        t = threading.Thread(target=(worker_work))
        t.start()
        sleep(0.01)
        worker_threads.append(t)
    coord.join(worker_threads)
    chosen = sess.run(master_network.policy, {master_network.inputs: np.eye(3)}).argmax(1)
    episodes = sess.run(global_episodes)

print("workers", all(len(worker.episode_rewards) > 10 for worker in workers))
print("checkpoint", tf.train.latest_checkpoint('./a3c').endswith('.cptk'))
print("result policy %s after enough episodes: %s" % (chosen, episodes >= 3 * MAX_EPISODES))
