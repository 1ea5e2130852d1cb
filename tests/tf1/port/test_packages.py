"""A package of TF1's time, ported by the folder alone, is trained and then evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("absl", reason="tf.app and tf.flags need absl-py: pip install 'asyncmon[tf1]'")

from asyncmon.cli import main
from tests import forked

FILES = {
    "common.py": """\
        import tensorflow as tf
        slim = tf.contrib.slim
        FLAGS = tf.app.flags.FLAGS
        tf.app.flags.DEFINE_string("log_root", "log", "checkpoints")

        def load_newest(saver, sess):
            state = tf.train.get_checkpoint_state(FLAGS.log_root)
            saver.restore(sess, state.model_checkpoint_path)
            return state.model_checkpoint_path
        """,
    "nets/__init__.py": "from .mlp import MlpClassifier\n",
    "nets/mlp.py": """\
        from tensorflow.core.framework import summary_pb2
        from common import *

        class MlpClassifier(object):
            def __init__(self, inputs, labels):
                self._inputs, self._labels = inputs, labels
                self.step = slim.get_or_create_global_step()
                penalty = slim.l2_regularizer(1e-4)
                with slim.arg_scope([slim.fully_connected], weights_regularizer=penalty):
                    net = slim.fully_connected(inputs, 16, scope='hidden')
                    self.logits = slim.fully_connected(net, 2, activation_fn=None, scope='out')
                tf.losses.softmax_cross_entropy(slim.one_hot_encoding(labels, 2), self.logits)
                self.loss = tf.losses.get_total_loss()
                right = tf.equal(tf.argmax(self.logits, 1), tf.to_int64(labels))
                self.accuracy = tf.reduce_mean(tf.to_float(right))
                self.train_op = tf.train.AdamOptimizer(0.02).minimize(self.loss, self.step)

            def train_step(self, sess):
                return sess.run([self.train_op, self.loss, self.step])[1:]

            def evaluate(self, sess, points, classes):
                return sess.run(self.accuracy, {self._inputs: points,
                                                self._labels: classes})

            @staticmethod
            def summary(**values):
                return summary_pb2.Summary(value=[
                    summary_pb2.Summary.Value(tag=k, simple_value=v) for k, v in values.items()])
        """,
    "data.py": """\
        import numpy as np
        from common import tf, slim

        def points(n, seed=0):
            found = np.random.RandomState(seed).uniform(-1, 1, (n, 2)).astype(np.float32)
            return found, (found.prod(1) > 0).astype(np.int32)

        def queue():
            one = tf.train.slice_input_producer(list(points(500)), seed=1)
            batch = tf.train.batch(one, 50, capacity=200)
            return slim.prefetch_queue.prefetch_queue(batch, capacity=4)
        """,
    "loop.py": """\
        import signal, os
        from data import points

        def fit(sv, sess, classifier, writer):
            try:
                while not sv.should_stop():
                    loss, step = classifier.train_step(sess)
                    if step % 50 == 0:
                        accuracy = classifier.evaluate(sess, *points(50, 3))
                        writer.add_summary(classifier.summary(loss=loss, accuracy=accuracy), step)
                    if step == 300:
                        os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                sv.saver.save(sess, sv.save_path, global_step=step)
                print('interrupted at', step)
        """,
    "train.py": """\
        from common import *
        import data
        from loop import fit
        from nets import MlpClassifier

        def main(_):
            tf.set_random_seed(5)
            classifier = MlpClassifier(*data.queue().dequeue())
            sv = tf.train.Supervisor(logdir=FLAGS.log_root,
                                     global_step=classifier.step,
                                     save_model_secs=0)
            with sv.managed_session() as sess:
                fit(sv, sess, classifier, sv.summary_writer)

        if __name__ == '__main__':
            tf.app.run()
        """,
    "evaluate.py": """\
        from common import *
        from data import points
        from nets import MlpClassifier

        inputs = tf.placeholder(tf.float32, [None, 2])
        labels = tf.placeholder(tf.int32, [None])
        classifier = MlpClassifier(inputs, labels)
        saver = tf.train.Saver()
        with tf.Session() as sess:
            path = load_newest(saver, sess)
            print('restored', path, classifier.evaluate(sess, *points(1000, 7)) > 0.9)
        """,
}


def run(folder: Path, name: str) -> str:
    ran = forked.run(folder / name, cwd=folder, options=("-W", "error::RuntimeWarning"))
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.stdout


def test_a_package_ported_with_status_0_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        path = tmp_path / "old" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line.removeprefix("        ") for line in text.splitlines(keepends=True)]
        path.write_text("".join(lines))
    new = tmp_path / "new"
    status = main(["port", str(tmp_path / "old"), "-o", str(new)])
    assert (status, capsys.readouterr().err) == (0, ""), "nothing is left to do by hand"
    assert run(new, "train.py") == "interrupted at 300\n"
    assert run(new, "evaluate.py") == "restored log/model.ckpt-300 True\n"
