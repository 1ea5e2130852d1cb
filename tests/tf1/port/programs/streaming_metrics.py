"""Evaluation by streaming metrics: update ops, local variables, final ops, and a logging hook."""
import numpy as np
import tensorflow as tf

BATCH = 10
COUNT = 60


def batches():
    """Scores of a classifier that is right four times in five."""
    rng = np.random.RandomState(5)
    labels = rng.randint(2, size=COUNT)
    wrong = rng.rand(COUNT) < 0.2
    predictions = np.where(wrong, 1 - labels, labels)
    scores = np.clip(predictions * 0.6 + 0.2 + 0.1 * rng.randn(COUNT), 0, 1)
    for start in range(0, COUNT, BATCH):
        part = slice(start, start + BATCH)
        yield labels[part], predictions[part], scores[part].astype(np.float32)


class FeedBatches(tf.train.SessionRunHook):
    """Feeds one batch after another, and stops after the last one."""

    def __init__(self, placeholders, source):
        self._placeholders = placeholders
        self._batches = list(source)
        self._next = 0

    def before_run(self, run_context):
        batch = self._batches[self._next]
        self._next += 1
        return tf.train.SessionRunArgs(None, feed_dict=dict(zip(self._placeholders, batch)))

    def after_run(self, run_context, run_values):
        if self._next == len(self._batches):
            run_context.request_stop()


def evaluate():
    labels = tf.placeholder(tf.int64, [None], "labels")
    predictions = tf.placeholder(tf.int64, [None], "predictions")
    scores = tf.placeholder(tf.float32, [None], "scores")

    metrics = {
        "accuracy": tf.metrics.accuracy(labels, predictions),
        "precision": tf.metrics.precision(labels, predictions),
        "recall": tf.metrics.recall(labels, predictions),
        "auc": tf.metrics.auc(labels, scores),
        "mse": tf.metrics.mean_squared_error(tf.to_float(labels), scores),
        "mean_score": tf.metrics.mean(scores),
    }
    names_to_values = {name: value for name, (value, _) in metrics.items()}
    names_to_updates = {name: update for name, (_, update) in metrics.items()}
    update_op = tf.group(*names_to_updates.values())
    tf.get_variable("weights", [2], initializer=tf.zeros_initializer())

    final_ops = tf.train.FinalOpsHook(final_ops=names_to_values)
    hooks = [
        FeedBatches([labels, predictions, scores], batches()),
        tf.train.LoggingTensorHook({"accuracy so far": names_to_values["accuracy"]}, every_n_iter=2),
        final_ops,
    ]
    counted = 0
    with tf.train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(update_op)
            counted += 1
    return counted, final_ops.final_ops_values


def by_hand():
    """The same accuracy without a session that is monitored."""
    with tf.Graph().as_default():
        labels = tf.placeholder(tf.int64, [None])
        predictions = tf.placeholder(tf.int64, [None])
        accuracy, update = tf.metrics.accuracy(labels, predictions)
        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            running = [sess.run(update, {labels: l, predictions: p}) for l, p, _ in batches()]
            value = accuracy.eval()
            assert value == running[-1]
            return value


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    counted, values = evaluate()
    for name in sorted(values):
        print("%s = %.4f" % (name, values[name]))
    print("result runs=%d same accuracy: %s" % (counted, np.isclose(values["accuracy"], by_hand())))


if __name__ == "__main__":
    tf.app.run()
