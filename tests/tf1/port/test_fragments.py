"""Fragments in the style of TF1's documents, each ported by the tool and run; in the order of the spec.

``seen`` collects what a fragment is about. The graph of ``HEAD`` counts one step per ``train_op``; its
``loss`` falls from 16.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

import asyncmon.tf1 as tf
from asyncmon.tf1.port.porting import port

HEAD = """\
import tensorflow as tf
import numpy as np
import os, threading, time

global_step = tf.train.get_or_create_global_step()
w = tf.Variable(4.0, name="w")
loss = tf.square(w, name="loss")
train_op = tf.train.GradientDescentOptimizer(0.25).minimize(loss, global_step=global_step)
"""

FRAGMENTS: dict[str, tuple[str, Any]] = {
    "a scaffold (SC)": ("""
        assign = w.assign(2.0)

        def init_fn(scaffold, session):
            session.run(assign)

        local = tf.Variable(7, collections=[tf.GraphKeys.LOCAL_VARIABLES])
        scaffold = tf.train.Scaffold(
            init_op=tf.global_variables_initializer(),
            init_fn=init_fn,
            local_init_op=tf.local_variables_initializer(),
            saver=tf.train.Saver([w]))
        with tf.train.MonitoredTrainingSession(scaffold=scaffold) as sess:
            seen.extend(sess.run([w, local]))
        """, [2.0, 7]),
    "session creators (CR)": ("""
        creator = tf.train.ChiefSessionCreator(checkpoint_dir="chief", config=tf.ConfigProto())
        hooks = [tf.train.CheckpointSaverHook("chief", save_steps=1)]
        with tf.train.MonitoredSession(session_creator=creator, hooks=hooks) as sess:
            sess.run(train_op)
        seen.append(os.path.basename(tf.train.latest_checkpoint("chief")))

        class Raw(tf.train.SessionCreator):
            def create_session(self):
                session = tf.Session()
                session.run(tf.global_variables_initializer())
                return session

        with tf.train.MonitoredSession(session_creator=Raw()) as sess:
            seen.append(sess.run(w))
        """, ["model.ckpt-1", 4.0]),
    "an error in the body leaves it (MS)": ("""
        class Cleanup(tf.train.SessionRunHook):
            def end(self, session):
                seen.append("end")

        try:
            with tf.train.MonitoredSession(hooks=[Cleanup()]) as sess:
                sess.run(train_op)
                raise ValueError("no")
        except ValueError as error:
            seen.append(str(error))
        with tf.train.MonitoredSession(hooks=[Cleanup()]) as sess:
            raise tf.errors.OutOfRangeError(None, None, "the end")
        seen.append(sess.should_stop())
        """, ["no", "end", True]),
    "run_step_fn with a method and a lambda (SF)": ("""
        class Trainer(object):
            def __init__(self):
                self.count = 0

            def step(self, step_context):
                self.count += 1
                step_context.run_with_hooks(train_op)
                return self.count

        trainer = Trainer()
        with tf.train.SingularMonitoredSession() as session:
            session.run_step_fn(trainer.step)
            seen.append(session.run_step_fn(trainer.step))
            seen.append(session.run_step_fn(lambda context: context.run_with_hooks(w)))
        """, [2, 1.0]),
    "an exception of a thread is raised by join (CO)": ("""
        def failing(coord):
            with coord.stop_on_exception():
                raise ValueError("broken")

        def waiting(coord):
            coord.wait_for_stop()

        def run():
            coord = tf.train.Coordinator()
            t = threading.Thread(target=failing, args=(coord,))
            t.daemon = True
            t.start()
            other = threading.Thread(target=waiting, args=(coord,))
            other.start()
            coord.register_thread(other)
            try:
                coord.join([t], stop_grace_period_secs=5)
            except ValueError as e:
                seen.append(str(e))
            seen.append(other.is_alive())

        run()
        """, ["broken", False]),
    "a looper (LO)": ("""
        def tick(coord, text):
            seen.append(text)
            if len(seen) == 3:
                coord.request_stop()

        coord = tf.train.Coordinator()
        looper = tf.train.LooperThread.loop(coord, 0.001, tick, args=(coord, "tick"))
        coord.join()
        """, ["tick"] * 3),
    "a session manager (SM)": ("""
        manager = tf.train.SessionManager()
        sess = manager.prepare_session("", init_op=tf.global_variables_initializer(),
                                       saver=tf.train.Saver(), checkpoint_dir="sm")
        seen.append(sess.run(w))
        sess.close()
        """, [4.0]),
    "a supervisor with services of one's own (SV)": ("""
        def my_additional_summaries(sv, sess):
            seen.append(float(sess.run(loss)))
            sv.summary_computed(sess, sess.run(tf.get_collection("mine")[0]))
            sv.request_stop()

        tf.add_to_collection("mine", tf.summary.scalar("the_loss", loss))
        sv = tf.train.Supervisor(logdir="sv2", summary_op=None, save_model_secs=0)
        with sv.managed_session() as sess:
            # Call my_additional_summaries() every 1200s, or 20mn,
            sv.loop(1200, my_additional_summaries, args=(sv, sess))
            while not sv.should_stop():
                sess.run(loss)
        for name in os.listdir("sv2"):
            if "tfevents" in name:
                for event in tf.train.summary_iterator(os.path.join("sv2", name)):
                    seen.extend(v.tag for v in event.summary.value if "/" not in v.tag)
        """, [16.0, "the_loss"]),
    "a supervisor without its context (SV)": ("""
        sv = tf.train.Supervisor(logdir=None)
        sess = sv.PrepareSession("")
        with sv.StopOnException():
            seen.append(sess.run(w))
        sv.Stop()
        seen.append(sv.ShouldStop())
        sess.close()
        """, [4.0, True]),
    "basic_train_loop (BL)": ("""
        def train_step_fn(session, sv, last):
            session.run(train_op)
            if tf.train.global_step(session, global_step) >= last:
                sv.request_stop()
                seen.append("stopped")

        sv = tf.train.Supervisor()
        tf.train.basic_train_loop(sv, train_step_fn, args=(sv,), kwargs={"last": 3})
        """, ["stopped"]),
    "checkpoint state (CK)": ("""
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            tf.train.Saver().save(sess, "ck/model")
        ckpt = tf.train.get_checkpoint_state("ck")
        if ckpt and ckpt.model_checkpoint_path:
            seen.append(os.path.basename(ckpt.model_checkpoint_path))
        for path in tf.train.checkpoints_iterator("ck", timeout=0):
            seen.append(tf.train.checkpoint_exists(path))
        reader = tf.train.load_checkpoint("ck")
        seen.append(reader.get_variable_to_shape_map()["w"])
        """, ["model", True, []]),
    "a listener of checkpoints (HK)": ("""
        class ExampleCheckpointSaverListener(tf.train.CheckpointSaverListener):
            def begin(self):
                # You can add ops to the graph here.
                self.your_tensor = tf.identity(w)

            def before_save(self, session, global_step_value):
                seen.append(("before", int(global_step_value)))

            def after_save(self, session, global_step_value):
                seen.append(session.run(self.your_tensor))

            def end(self, session, global_step_value):
                seen.append("end")

        listener = ExampleCheckpointSaverListener()
        saver_hook = tf.train.CheckpointSaverHook("listened", save_steps=10, listeners=[listener])
        with tf.train.MonitoredTrainingSession(chief_only_hooks=[saver_hook]) as sess:
            sess.run(train_op)
        """, [("before", 0), 4.0, ("before", 1), 2.0, "end"]),
    "queue runners (QU, QR)": ("""
        # Create a queue, and an op that enqueues examples one at a time in the queue.
        queue = tf.RandomShuffleQueue(capacity=20, min_after_dequeue=2,
                                      dtypes=[tf.float32], shapes=[[2]])
        example = tf.random_uniform([2])
        enqueue_op = queue.enqueue(example)
        # Create a training graph that starts by dequeuing a batch of examples.
        inputs = queue.dequeue_many(4)
        # Create a queue runner that will run 4 threads in parallel to enqueue examples.
        qr = tf.train.QueueRunner(queue, [enqueue_op] * 4)

        # Launch the graph.
        sess = tf.Session()
        # Create a coordinator, launch the queue runner threads.
        coord = tf.train.Coordinator()
        enqueue_threads = qr.create_threads(sess, coord=coord, start=True)
        # Run the training loop, controlling termination with the coordinator.
        for step in range(10):
            if coord.should_stop():
                break
            seen.append(sess.run(inputs).shape)
        # When done, ask the threads to stop.
        coord.request_stop()
        # And wait for them to actually do it.
        coord.join(enqueue_threads)
        seen[:] = set(seen)
        sess.close()
        """, [(4, 2)]),
    "InteractiveSession and default sessions (SE)": ("""
        sess = tf.InteractiveSession()
        a = tf.constant(5.0)
        c = a * tf.constant(6.0)
        # We can just use 'c.eval()' without passing 'sess'
        seen.append(c.eval())
        tf.global_variables_initializer().run()
        sess.close()
        with tf.Session().as_default() as other:
            assert tf.get_default_session() is other
            seen.append(c.eval(feed_dict={a: 2.0}))
            other.close()
        """, [30.0, 12.0]),
    "errors by name (ER)": ("""
        with tf.Session() as sess:
            try:
                sess.run(w)
            except tf.errors.FailedPreconditionError as e:
                seen.append("uninitialized value" in e.message)
        try:
            tf.train.Saver().restore(tf.Session(), "nowhere/model")
        except ValueError as e:
            seen.append(str(e).startswith("The passed save_path is not a valid checkpoint"))
        """, [True, True]),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_runs_when_it_is_ported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = FRAGMENTS[name]
    ported = port(HEAD + textwrap.dedent(text))
    assert ported.notes == ()
    assert port(ported.source).source == ported.source
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []
    with tf.Graph().as_default():
        code = compile(ported.source, os.fspath(tmp_path / "fragment.py"), "exec")
        exec(code, {"__name__": "__main__", "seen": seen})
    expected = [there if want is None else want for want, there in zip(expected, seen, strict=True)]
    assert seen == expected
