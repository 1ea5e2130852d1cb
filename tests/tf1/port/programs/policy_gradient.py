"""REINFORCE on a small corridor: an agent that owns its session."""
import numpy as np
import tensorflow as tf


class Corridor(object):
    """Walk right to the goal; each step costs a little."""

    LENGTH = 5

    def __init__(self):
        self.place = 0
        self.count = 0

    def reset(self):
        self.place, self.count = 0, 0
        return self._state()

    def step(self, action):
        self.count += 1
        self.place = max(0, self.place + (1 if action == 1 else -1))
        done = self.place >= self.LENGTH or self.count >= 30
        reward = 1.0 if self.place >= self.LENGTH else -0.05
        return self._state(), reward, done

    def _state(self):
        state = np.zeros(self.LENGTH + 1, np.float32)
        state[self.place] = 1.0
        return state

    def close(self):
        self.place = None


class PolicyGradientAgent(object):
    def __init__(self, hparams, sess=None):
        self._hparams = hparams
        # build the graph
        self._input = tf.placeholder(tf.float32, shape=[None, hparams['input_size']])
        hidden = tf.layers.dense(self._input, hparams['hidden_size'], activation=tf.nn.relu,
                                 kernel_initializer=tf.random_normal_initializer(stddev=0.1, seed=1))
        logits = tf.layers.dense(hidden, hparams['num_actions'],
                                 kernel_initializer=tf.random_normal_initializer(stddev=0.1, seed=2))
        self._probs = tf.nn.softmax(logits)
        self._acts = tf.placeholder(tf.int32)
        self._advantages = tf.placeholder(tf.float32)
        chosen = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=self._acts)
        loss = tf.reduce_mean(chosen * self._advantages)
        self._train = tf.train.RMSPropOptimizer(hparams['learning_rate']).minimize(loss)

        self._s = sess or tf.Session()
        self._s.run(tf.global_variables_initializer())

    def act(self, observation, rng):
        probs = self.probabilities(observation)
        return rng.choice(len(probs), p=probs / probs.sum())

    def probabilities(self, observation):
        # get one action, by sampling
        return self._s.run(self._probs, feed_dict={self._input: [observation]})[0]

    def train_step(self, obs, acts, advantages):
        batch_feed = {self._input: obs, self._acts: acts, self._advantages: advantages}
        self._s.run(self._train, feed_dict=batch_feed)

    def close(self):
        self._s.close()


def policy_rollout(env, agent, rng):
    """Run one episode."""
    observation, done = env.reset(), False
    obs, acts, rews = [], [], []
    while not done:
        obs.append(observation)
        action = agent.act(observation, rng)
        observation, reward, done = env.step(action)
        acts.append(action)
        rews.append(reward)
    return obs, acts, rews


def process_rewards(rews):
    """Rewards -> Advantages for one episode."""
    return [sum(rews[i:]) for i in range(len(rews))]


def main():
    env = Corridor()
    rng = np.random.RandomState(0)
    hparams = {'input_size': Corridor.LENGTH + 1, 'hidden_size': 16, 'num_actions': 2,
               'learning_rate': 0.05}
    agent = PolicyGradientAgent(hparams)
    for batch in range(60):
        b_obs, b_acts, b_rews = [], [], []
        for _ in range(8):
            obs, acts, rews = policy_rollout(env, agent, rng)
            b_obs.extend(obs)
            b_acts.extend(acts)
            b_rews.extend(process_rewards(rews))
        advantages = np.array(b_rews)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-10)
        agent.train_step(b_obs, b_acts, advantages)
    right = [agent.probabilities(state)[1] for state in np.eye(Corridor.LENGTH + 1)[:-1]]
    lengths = [len(policy_rollout(env, agent, rng)[0]) for _ in range(10)]
    env.close()
    agent.close()
    print("lengths", lengths)
    print("result goes right: %s, mean length below 9: %s" % (min(right) > 0.6, np.mean(lengths) < 9))


if __name__ == "__main__":
    main()
