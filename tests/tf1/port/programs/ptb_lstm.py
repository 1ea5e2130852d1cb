"""A language model of two LSTM layers under a Supervisor; state is carried from batch to batch."""
import time

import numpy as np
import tensorflow as tf

flags = tf.flags
logging = tf.logging

flags.DEFINE_string("save_path", "ptb", "Model output directory.")
flags.DEFINE_integer("epochs", 4, "Epochs to train.")
FLAGS = flags.FLAGS


class SmallConfig(object):
    """Small config."""
    init_scale = 0.2
    learning_rate = 1.0
    max_grad_norm = 5
    num_layers = 2
    num_steps = 6
    hidden_size = 16
    max_epoch = 2
    keep_prob = 0.9
    lr_decay = 0.8
    batch_size = 8
    vocab_size = 5


def ptb_producer(raw_data, batch_size, num_steps):
    """Iterates over (x, y) where y is x moved by one."""
    batch_len = len(raw_data) // batch_size
    data = np.reshape(raw_data[:batch_size * batch_len], [batch_size, batch_len])
    for i in range((batch_len - 1) // num_steps):
        part = slice(i * num_steps, (i + 1) * num_steps)
        yield data[:, part], data[:, 1:][:, part]


class PTBModel(object):
    """The PTB model."""

    def __init__(self, is_training, config):
        self.config = config
        shape = [config.batch_size, config.num_steps]
        self.input_data = tf.placeholder(tf.int32, shape)
        self.targets = tf.placeholder(tf.int32, shape)

        def lstm_cell():
            cell = tf.nn.rnn_cell.BasicLSTMCell(config.hidden_size, forget_bias=0.0,
                                                state_is_tuple=True)
            if is_training and config.keep_prob < 1:
                cell = tf.nn.rnn_cell.DropoutWrapper(cell, output_keep_prob=config.keep_prob)
            return cell

        cell = tf.nn.rnn_cell.MultiRNNCell([lstm_cell() for _ in range(config.num_layers)],
                                           state_is_tuple=True)
        self._initial_state = cell.zero_state(config.batch_size, tf.float32)
        embedding = tf.get_variable("embedding", [config.vocab_size, config.hidden_size])
        inputs = tf.nn.embedding_lookup(embedding, self.input_data)
        outputs, self._final_state = tf.nn.dynamic_rnn(cell, inputs,
                                                       initial_state=self._initial_state)
        output = tf.reshape(outputs, [-1, config.hidden_size])
        softmax_w = tf.get_variable("softmax_w", [config.hidden_size, config.vocab_size])
        softmax_b = tf.get_variable("softmax_b", [config.vocab_size])
        logits = tf.matmul(output, softmax_w) + softmax_b
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
            logits=logits, labels=tf.reshape(self.targets, [-1]))
        self._cost = cost = tf.reduce_sum(loss) / config.batch_size
        if not is_training:
            return

        self._lr = tf.Variable(0.0, trainable=False)
        tvars = tf.trainable_variables()
        grads, _ = tf.clip_by_global_norm(tf.gradients(cost, tvars), config.max_grad_norm)
        optimizer = tf.train.GradientDescentOptimizer(self._lr)
        self._train_op = optimizer.apply_gradients(
            zip(grads, tvars), global_step=tf.train.get_or_create_global_step())
        self._new_lr = tf.placeholder(tf.float32, shape=[], name="new_learning_rate")
        self._lr_update = tf.assign(self._lr, self._new_lr)

    def assign_lr(self, session, lr_value):
        session.run(self._lr_update, feed_dict={self._new_lr: lr_value})

    @property
    def initial_state(self):
        return self._initial_state

    @property
    def cost(self):
        return self._cost

    @property
    def final_state(self):
        return self._final_state

    @property
    def lr(self):
        return self._lr

    @property
    def train_op(self):
        return self._train_op


def run_epoch(session, model, data, eval_op=None, verbose=False):
    """Runs the model on the given data."""
    start_time = time.time()
    costs = 0.0
    iters = 0
    state = session.run(model.initial_state)

    fetches = {"cost": model.cost, "final_state": model.final_state}
    if eval_op is not None:
        fetches["eval_op"] = eval_op

    for step, (x, y) in enumerate(ptb_producer(data, model.config.batch_size, model.config.num_steps)):
        feed_dict = {model.input_data: x, model.targets: y}
        for i, (c, h) in enumerate(model.initial_state):
            feed_dict[c] = state[i].c
            feed_dict[h] = state[i].h
        vals = session.run(fetches, feed_dict)
        state = vals["final_state"]
        costs += vals["cost"]
        iters += model.config.num_steps
        if verbose and step % 10 == 0:
            logging.info("%d perplexity: %.3f speed: %.0f wps", step, np.exp(costs / iters),
                         iters * model.config.batch_size / (time.time() - start_time))
    return np.exp(costs / iters)


def main(_):
    data = np.tile([0, 1, 2, 3, 4], 256).astype(np.int32)
    config = SmallConfig()
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        initializer = tf.random_uniform_initializer(-config.init_scale, config.init_scale)
        with tf.name_scope("Train"), tf.variable_scope("Model", reuse=None, initializer=initializer):
            m = PTBModel(is_training=True, config=config)
        with tf.name_scope("Test"), tf.variable_scope("Model", reuse=True, initializer=initializer):
            mtest = PTBModel(is_training=False, config=config)

        sv = tf.train.Supervisor(logdir=FLAGS.save_path, summary_op=None)
        with sv.managed_session() as session:
            for i in range(FLAGS.epochs):
                lr_decay = config.lr_decay ** max(i + 1 - config.max_epoch, 0.0)
                m.assign_lr(session, config.learning_rate * lr_decay)
                print("Epoch: %d Learning rate: %.3f" % (i + 1, session.run(m.lr)))
                perplexity = run_epoch(session, m, data, eval_op=m.train_op, verbose=True)
            test_perplexity = run_epoch(session, mtest, data)
            sv.saver.save(session, FLAGS.save_path + "/final", global_step=sv.global_step)
    print("saved", tf.train.latest_checkpoint(FLAGS.save_path))
    print("result perplexities below 3 and 2: %s %s" % (perplexity < 3, test_perplexity < 2))


if __name__ == "__main__":
    tf.app.run()
