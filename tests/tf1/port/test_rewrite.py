"""``asyncmon.tf1.port``: snippets before and after, each of which is then left as it is."""

from __future__ import annotations

import textwrap

import pytest

from asyncmon.tf1.port.porting import port

HEAD = "import tensorflow as tf\n"
OURS = "import asyncmon.tf1 as tf\n"


def ported(text: str) -> str:
    """Return the port of a text, which is the same when it is ported again."""
    once = port(text.encode()).source
    again = port(once)
    assert again.source == once
    return once.decode()


def body(text: str) -> str:
    """Return the port of statements in a function that gets a session, without the function."""
    inner = textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")
    lines = ported(f"{HEAD}\ndef f(sess, op, tensor=tf.constant(1)):\n{inner}\n").splitlines()
    start = next(i for i, line in enumerate(lines) if "def f(" in line)
    assert lines[start].startswith("async def f("), lines
    return textwrap.dedent("\n".join(lines[start + 1 :])).strip("\n")


def whole(text: str) -> str:
    """Return the port of a module that imports TensorFlow, without its import."""
    after = ported(HEAD + textwrap.dedent(text))
    assert OURS in after
    return after.replace(OURS, "", 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import tensorflow as tf", "import asyncmon.tf1 as tf"),
        ("import tensorflow", "import asyncmon.tf1 as tensorflow"),
        ("import tensorflow.compat.v1 as tf", "import asyncmon.tf1 as tf"),
        ("from tensorflow.compat import v1 as tf", "import asyncmon.tf1 as tf"),
        ("import tensorflow as tf, os  # both", "import asyncmon.tf1 as tf\nimport os  # both"),
        (
            "import tensorflow.compat.v1\ntensorflow.compat.v1.train.Saver()",
            "import asyncmon.tf1 as tensorflow\ntensorflow.train.Saver()",
        ),
        ("from tensorflow.contrib import layers", "from asyncmon.tf1.contrib import layers"),
        ("import tensorflow.contrib.rnn as rnn", "from asyncmon.tf1.contrib import rnn"),
        ("from tensorflow.python.platform import gfile", "from asyncmon.tf1 import gfile"),
        ("from tensorflow import train", "from asyncmon.tf1 import train"),
        ("from tensorflow import layers as L, nn", "from asyncmon.tf1 import layers as L, nn"),
        (
            "from tensorflow.python.ops import array_ops as a, math_ops as m\nm.add(a.zeros([2]), 1)",
            "import asyncmon.tf1 as a\nimport asyncmon.tf1 as m\nm.add(a.zeros([2]), 1)",
        ),
        (
            "from tensorflow.core.framework import summary_pb2\nsummary_pb2.Summary()",
            "import asyncmon.tf1 as summary_pb2\nsummary_pb2.Summary()",
        ),
        (
            "from tensorflow.examples.tutorials.mnist import input_data",
            "from asyncmon.tf1 import input_data",
        ),
        (
            "from tensorflow.core.example.example_pb2 import Example",
            "from asyncmon.tf1.train import Example",
        ),
        (
            "import tensorflow as tf\nfrom tensorflow.python.ops import math_ops\nf(math_ops)",
            "import asyncmon.tf1 as tf\nimport asyncmon.tf1 as math_ops\nf(math_ops)",
        ),
        (
            "from tensorflow.python.ops import math_ops\nmath_ops.add(1, 2)",
            "import asyncmon.tf1 as math_ops\nmath_ops.add(1, 2)",
        ),
        (
            "import tensorflow as tf\ntf.train.queue_runner.add_queue_runner(None)",
            "import asyncmon.tf1 as tf\ntf.train.add_queue_runner(None)",
        ),
        (
            "import tensorflow as tf\ntf.gradients(x, aggregation_method=tf.AggregationMethod.ADD_N)",
            "import asyncmon.tf1 as tf\ntf.gradients(x)",
        ),
        (
            "from tensorflow.python.training import session_run_hook",
            "import asyncmon.tf1.train as session_run_hook",
        ),
        (
            "from tensorflow.python.training.session_run_hook import SessionRunHook",
            "from asyncmon.tf1.train import SessionRunHook",
        ),
        ("from tensorflow.python.framework import ops", "import asyncmon.tf1 as ops"),
        (
            "from tensorflow.python.framework.errors import OutOfRangeError",
            "from asyncmon.errors import OutOfRangeError",
        ),
        (
            "from tensorflow.python.ops import math_ops, nn_ops",
            "import asyncmon.tf1 as math_ops\nimport asyncmon.tf1.nn as nn_ops",
        ),
        ("import numpy as np", "import numpy as np"),
        ("import tensorflow as tf\ntf.disable_v2_behavior()\n", "import asyncmon.tf1 as tf"),
        (
            "import tensorflow as tf\ntf.compat.v1.disable_v2_behavior()\ntf.compat.v1.train.Saver()",
            "import asyncmon.tf1 as tf\ntf.train.Saver()",
        ),
    ],
)
def test_the_import_is_rewritten(before: str, after: str) -> None:
    assert ported(before).rstrip("\n") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sess.run(op)", "await sess.run(op)"),
        ("return sess.run(op)[0]", "return (await sess.run(op))[0]"),
        ("x = (sess.run(op))[0]", "x = (await sess.run(op))[0]"),
        ("n = sess.run(op).shape[0]", "n = (await sess.run(op)).shape[0]"),
        ("n = -sess.run(op) ** 2", "n = -await sess.run(op) ** 2"),
        ("a, b = sess.run([op, op])", "a, b = await sess.run([op, op])"),
        ("print('%d' % sess.run(op))", "print('%d' % await sess.run(op))"),
        ("print(f'{sess.run(op)}')", "print(f'{await sess.run(op)}')"),
        ("assert not sess.run(op), sess.run(op)", "assert not await sess.run(op), await sess.run(op)"),
        ("x = [sess.run(o) for o in op]", "x = [await sess.run(o) for o in op]"),
        ("x = {k: sess.run(o) for k, o in op}", "x = {k: await sess.run(o) for k, o in op}"),
        ("x = sum(sess.run(o) for o in op)", "x = sum([await sess.run(o) for o in op])"),
        ("x = sum(o for o in sess.run(op))", "x = sum(o for o in await sess.run(op))"),
        ("tensor.eval()", "await tensor.eval()"),
        ("tf.get_variable('v', [1]).load([1.0])", "await tf.get_variable('v', [1]).load([1.0])"),
        ("tf.reduce_sum(tensor + 1).eval(session=sess)[0]",
         "(await tf.reduce_sum(tensor + 1).eval(session=sess))[0]"),
        ("tf.global_variables_initializer().run()", "await tf.global_variables_initializer().run()"),
        ("run = sess.run\nrun(op)", "run = sess.run\nawait run(op)"),
        ("sessions = [tf.Session()]\nfor s in sessions:\n    s.close()",
         "sessions = [tf.Session()]\nfor s in sessions:\n    await s.close()"),
        ("with tf.Session() as s:  # new\n    s.run(op)",
         "async with tf.Session() as s:  # new\n    await s.run(op)"),
        ("with sess.as_default():\n    sess.run(op)",
         "with sess.as_default():\n    await sess.run(op)"),
        ("with tf.Graph().as_default(), tf.device('/cpu:0'), tf.Session() as s, tf.name_scope('n'):\n"
         "    # inside\n\n    s.run(op)",
         "with tf.Graph().as_default(), tf.device('/cpu:0'):\n"
         "    async with tf.Session() as s:\n        with tf.name_scope('n'):\n"
         "            # inside\n\n            await s.run(op)"),
        ("path = tf.train.Saver().save(sess, 'x')", "path = await tf.train.Saver().save(sess, 'x')"),
        ("c = tf.train.get_checkpoint_state('d')\nc = c.model_checkpoint_path",
         "c = await tf.train.get_checkpoint_state('d')\nc = c.model_checkpoint_path"),
        ("tf.train.Saver().restore(sess, tf.train.latest_checkpoint('d'))",
         "await tf.train.Saver().restore(sess, await tf.train.latest_checkpoint('d'))"),
        ("for path in tf.train.checkpoints_iterator('d'):\n    sess.run(op)",
         "async for path in tf.train.checkpoints_iterator('d'):\n    await sess.run(op)"),
        ("w = tf.summary.FileWriter('d')\nw.add_summary(sess.run(op), 1)\nw.close()",
         "w = tf.summary.FileWriter('d')\nw.add_summary(await sess.run(op), 1)\nawait w.close()"),
        ("coord = tf.train.Coordinator()\n"
         "threads = tf.train.start_queue_runners(sess=sess, coord=coord)\n"
         "coord.request_stop()\ncoord.join(threads, ignore_live_threads=True)",
         "coord = tf.train.Coordinator()\n"
         "threads = tf.train.start_queue_runners(sess=sess, coord=coord)\n"
         "coord.request_stop()\nawait coord.join(threads, ignore_live_tasks=True)"),
        ("with tf.train.MonitoredTrainingSession() as mon:\n    while not mon.should_stop():\n"
         "        mon.run_step_fn(lambda context: context.run_with_hooks(op))",
         "async with tf.train.MonitoredTrainingSession() as mon:\n    while not mon.should_stop():\n"
         "        await mon.run_step_fn(lambda context: context.run_with_hooks(op))"),
        ("sv = tf.train.Supervisor()\nwith sv.managed_session() as s, sv.stop_on_exception():\n"
         "    sv.summary_computed(s, s.run(op))\n    sv.saver.save(s, sv.save_path)",
         "sv = tf.train.Supervisor()\nasync with sv.managed_session() as s:\n"
         "    with sv.stop_on_exception():\n"
         "        await sv.summary_computed(s, await s.run(op))\n"
         "        await sv.saver.save(s, sv.save_path)"),
        ("mon = tf.train.MonitoredTrainingSession()\nmon.run(op)\nmon.close()",
         "mon = await tf.train.MonitoredTrainingSession().start()\n"
         "await mon.run(op)\nawait mon.close()"),
        ("mon = tf.train.MonitoredSession()\nwith mon as s:\n    s.run(op)",
         "mon = tf.train.MonitoredSession()\nasync with mon as s:\n    await s.run(op)"),
        ("s = tf.Session().__enter__()\ns.run(op)",
         "s = await tf.Session().__aenter__()\nawait s.run(op)"),
        ("fn = sess.make_callable(op)\nfn()", "fn = sess.make_callable(op)\nawait fn()"),
    ],
)  # fmt: skip
def test_calls_are_awaited(before: str, after: str) -> None:
    assert body(before) == after


def test_what_has_to_do_with_no_session_stays() -> None:
    text = HEAD + (
        "import subprocess, threading\nimport numpy as np\n"
        "def f(path, df, xs):\n"
        "    subprocess.run(['ls'])\n    ', '.join(xs)\n    f = open(path)\n    f.flush()\n"
        "    f.close()\n"
        "    np.save(path, xs)\n    t = threading.Thread(target=f)\n    t.start()\n    t.join()\n"
        "    with open(path) as g, tf.variable_scope('v'):\n        g.flush()\n"
    )
    assert ported(text) == text.replace(HEAD, OURS)


def test_functions_that_call_them_become_async() -> None:
    assert whole("""
        def low(sess):
            return sess.run(1)

        def middle(sess):
            # the sum
            return low(sess)[0] + 1

        def plain(x):
            return x

        def main(_):
            with tf.Session() as sess:
                print(plain(middle(sess)))

        if __name__ == "__main__":
            main(0)
        """) == textwrap.dedent("""
        import asyncio
        async def low(sess):
            return await sess.run(1)

        async def middle(sess):
            # the sum
            return (await low(sess))[0] + 1

        def plain(x):
            return x

        async def main(_):
            async with tf.Session() as sess:
                print(plain(await middle(sess)))

        if __name__ == "__main__":
            asyncio.run(main(0))
        """).replace("\nimport asyncio\n", "import asyncio\n\n", 1)


def test_methods_and_objects_are_followed() -> None:
    after = whole("""
        class Model(object):
            def __init__(self, sess):
                self.sess = sess
                self.saver = tf.train.Saver()

            def step(self, x):
                return self.sess.run(x)[0]

            def save(self):
                self.saver.save(self.sess, "x")

        class Better(Model):
            def step(self, x):
                return 2 * super(Better, self).step(x)

        def train(models):
            for model in models:
                model.step(1)
                model.save()

        with tf.Session() as sess:
            train([Model(sess), Better(sess)])
        """)
    assert "    def __init__(self, sess):" in after
    assert "        return (await self.sess.run(x))[0]" in after
    assert "        await self.saver.save(self.sess" in after
    assert "        return 2 * await super(Better, self).step(x)" in after
    assert "        await model.step(1)\n        await model.save()" in after
    assert after.endswith(
        "async def main():\n    global sess\n    async with tf.Session() as sess:\n"
        "        await train([Model(sess), Better(sess)])\n\n\nasyncio.run(main())\n"
    )


def test_a_constructor_that_awaits_is_awaited() -> None:
    after = whole("""
        class Agent(object):
            # how it begins
            def __init__(self):
                self.sess = tf.Session()
                self.sess.run(tf.global_variables_initializer())

        def main():
            agent = Agent()
            agent.sess.close()
        """)
    assert after == textwrap.dedent("""
        class Agent(object):
            # how it begins
            async def __new__(cls, *args, **kwargs):
                self = super().__new__(cls)
                await self.__init__(*args, **kwargs)
                return self

            async def __init__(self):
                self.sess = tf.Session()
                await self.sess.run(tf.global_variables_initializer())

        async def main():
            agent = await Agent()
            await agent.sess.close()
        """)


def test_the_methods_of_hooks_and_listeners_become_async() -> None:
    after = whole("""
        class Base(tf.train.SessionRunHook):
            def begin(self):
                self.step = 0

            def helper(self):
                return self.step

        class Hook(Base):
            def begin(self):
                super().begin()

            def before_run(self, run_context):  # asks
                return tf.train.SessionRunArgs(self.helper())

            def end(self, session):
                tf.train.SessionRunHook.end(self, session)
                session.run(1)

        class Listener(tf.train.CheckpointSaverListener):
            def after_save(self, session, global_step_value):
                self.saved = global_step_value
        """)
    assert after.count("async def") == 5
    assert "    def helper(self):" in after
    assert "        await super().begin()" in after
    assert "async def before_run(self, run_context):  # asks" in after
    assert (
        "        await tf.train.SessionRunHook.end(self, session)\n        await session.run(1)"
        in after
    )


def test_generators_become_async() -> None:
    after = whole("""
        def batches(sess, op):
            while True:
                yield sess.run(op)

        def use(sess, op):
            for batch in batches(sess, op):
                print(batch)
            first = next(batches(sess, op))
            return list(batches(sess, op)), [b for b in batches(sess, op)]
        """)
    assert "async def batches" in after
    assert "    async for batch in batches(sess, op):" in after
    assert "    first = await anext(batches(sess, op))" in after
    assert "list([item async for item in batches(sess, op)]), [b async for b in batches" in after


def test_a_context_manager_becomes_async() -> None:
    after = whole("""
        from contextlib import contextmanager

        @contextmanager
        def timed(sess):
            yield sess.run(1)

        def f(sess):
            with timed(sess) as t:
                print(t)
        """)
    assert "@contextlib.asynccontextmanager\nasync def timed" in after
    assert "import contextlib\n" in after
    assert "    async with timed(sess) as t:" in after


def test_a_class_that_is_entered_becomes_async() -> None:
    after = whole("""
        class Runner(object):
            def __enter__(self):
                self.sess = tf.Session()
                return self

            def __exit__(self, *args):
                self.sess.close()

            def __call__(self, x):
                return self.sess.run(x)

        def f():
            with Runner() as run:
                return run(1)
        """)
    assert "    async def __aenter__(self):" in after
    assert "    async def __aexit__(self, *args):" in after
    assert "    async with Runner() as run:\n        return await run(1)" in after


def test_sleep_in_an_async_function_is_awaited() -> None:
    after = whole("""
        import time

        def f(sess):
            time.sleep(2)
            sess.run(1)

        def g():
            time.sleep(2)
        """)
    assert after.count("await asyncio.sleep(2)") == 1
    assert after.count("    time.sleep(2)") == 1


def test_continuation_lines_and_comments_stay() -> None:
    text = "def f(sess, x):\n    a = sess.run([x],  # c\n                 {})[0]\n"
    after = "async def f(sess, x):\n    a = (await sess.run([x],  # c\n                 {}))[0]\n"
    assert ported(text) == after


def test_tabs_and_line_ends_stay() -> None:
    text = "import tensorflow as tf\r\nwith tf.Session() as s:\r\n\tif s:\r\n\t\ts.run(1)\t# one\r\n"
    assert port(text.encode()).source == (
        b"import asyncio\r\nimport asyncmon.tf1 as tf\r\n\r\n\r\nasync def main():\r\n"
        b"\tglobal s\r\n\tasync with tf.Session() as s:\r\n\t\tif s:\r\n"
        b"\t\t\tawait s.run(1)\t# one\r\n\r\n\r\n"
        b"asyncio.run(main())\r\n"
    )
