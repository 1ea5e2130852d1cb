"""Deep Q-learning on a chain: replay memory, a target network, an epsilon that decays."""
from collections import deque
import random

import numpy as np
import tensorflow as tf

STATES = 6
ACTIONS = 2


class Config(object):
    gamma = 0.9
    batch_size = 32
    memory_size = 500
    learning_rate = 0.01
    target_update = 25
    episodes = 80


class Chain:
    """The left end pays a little, the right end much; the other states nothing."""

    def reset(self):
        self.state, self.steps = 1, 0
        return self.state

    def step(self, action):
        self.steps += 1
        self.state += 1 if action else -1
        if self.state == 0:
            return self.state, 0.1, True
        if self.state == STATES - 1:
            return self.state, 1.0, True
        return self.state, 0.0, self.steps > 40


class QNetwork:
    def __init__(self, scope):
        with tf.variable_scope(scope):
            self.states = tf.placeholder(tf.int32, [None], name="states")
            one_hot = tf.one_hot(self.states, STATES)
            hidden = tf.layers.dense(one_hot, 16, tf.nn.relu, name="hidden")
            self.q = tf.layers.dense(hidden, ACTIONS, name="q")
        self.variables = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope)


class DQN:
    def __init__(self, config):
        self.config = config
        self.memory = deque(maxlen=config.memory_size)
        self.online = QNetwork("online")
        self.target = QNetwork("target")
        self.copy = [t.assign(o) for t, o in zip(self.target.variables, self.online.variables)]
        self._add_loss()
        self.losses = []

    def _add_loss(self):
        self.actions = tf.placeholder(tf.int32, [None])
        self.wanted = tf.placeholder(tf.float32, [None])
        chosen = tf.reduce_sum(self.online.q * tf.one_hot(self.actions, ACTIONS), axis=1)
        self.loss = tf.losses.huber_loss(self.wanted, chosen)
        self.train_op = tf.train.AdamOptimizer(self.config.learning_rate).minimize(
            self.loss, var_list=self.online.variables)

    @property
    def ready(self):
        return len(self.memory) >= self.config.batch_size

    def best(self, sess, state):
        return int(np.argmax(sess.run(self.online.q, {self.online.states: [state]})[0]))

    def choose(self, sess, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(ACTIONS)
        return self.best(sess, state)

    def learn(self, sess):
        states, actions, rewards, nexts, done = map(
            np.array, zip(*random.sample(self.memory, self.config.batch_size)))
        future = sess.run(self.target.q, {self.target.states: nexts}).max(axis=1)
        feed_dict = {
            self.online.states: states,
            self.actions: actions,
            self.wanted: rewards + self.config.gamma * future * (1 - done),
        }
        _, loss = sess.run([self.train_op, self.loss], feed_dict=feed_dict)
        self.losses.append(loss)


def run_episode(sess, agent, env, epsilon):
    state, done, total = env.reset(), False, 0.0
    while not done:
        action = agent.choose(sess, state, epsilon)
        following, reward, done = env.step(action)
        agent.memory.append((state, action, reward, following, float(done)))
        state, total = following, total + reward
        if agent.ready:
            agent.learn(sess)
            if len(agent.losses) % agent.config.target_update == 0:
                sess.run(agent.copy)
    return total


def main():
    random.seed(1)
    tf.set_random_seed(2)
    env, config = Chain(), Config()
    agent = DQN(config)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(agent.copy)
        for episode in range(config.episodes):
            run_episode(sess, agent, env, epsilon=max(0.1, 1.0 - episode / 40.0))
        policy = [agent.best(sess, state) for state in range(1, STATES - 1)]
        same = all((a == b).all() for a, b in zip(*sess.run(
            [agent.online.variables, agent.target.variables])))
    print("finite", bool(np.isfinite(agent.losses).all()), "target differs", not same)
    print("result policy %s" % policy)


if __name__ == "__main__":
    main()
