"""``asyncmon.tf1.port`` finds sessions by data flow, by use and by name."""

from __future__ import annotations

import pytest

from asyncmon.tf1.port.porting import port


def awaited(text: str) -> list[int]:
    """Return the numbers of the lines that are awaited in the port."""
    source = port("import tensorflow as tf\n" + text).source.decode()
    body = source[source.index("import asyncmon") :].splitlines()
    return [number for number, line in enumerate(body) if "await " in line]


@pytest.mark.parametrize(
    "text",
    [
        "def f(a: tf.Session):\n  a.run(1)",
        "def f(a: 'tf.Session'):\n  a.run(1)",
        "def f(a=tf.Session()):\n  a.run(1)",
        "def f(b, *, a: tf.train.MonitoredSession):\n  a.run(1)",
        "def f():\n  a: tf.Session = None; a.run(1)",
        "def f():\n  print((a := tf.Session()), a.run(1))",
        "def f():\n  a, b = tf.Session(), 3; a.run(1)",
        "def f():\n  d = {'a': tf.Session()}; d['a'].run(1)",
        "def f():\n  d = {}; d['a'] = tf.Session(); d['a'].run(1)",
        "def f():\n  d = [(1, tf.Session())]; d[0][1].run(1)",
        "def f():\n  d = [[tf.Session()]][0:1]; [a.run(1) for b in d for a in b]",
        "def f():\n  d = {k: tf.Session() for k in 'ab'}; [a.run(1) for a in d.values()]",
        "def f(x):\n  (tf.Session() if x else tf.InteractiveSession()).run(1)",
        "def f(x):\n  (x or tf.Session()).run(1)",
        "def f(x):\n  a = b = tf.Session(); b.run(1)",
        "def f(x):\n  tf.get_default_session().run(1)",
        "def f(x):\n  for i, a in enumerate([tf.Session()]): a.run(i)",
        "def f(x):\n  for i, a in zip('ab', [tf.Session()]): a.run(i)",
        "def f(x):\n  x.run(x, feed_dict={})",
        "def f(x):\n  x.run(tf.constant(1))",
        "def f(x):\n  x.eval()",
        "def f(x):\n  x.my_session.run(1)",
        "def f(x):\n  x._train_saver.save(1, 'x')",
        "def f(x):\n  x.run_step_fn(1)",
        "def f(x):\n  tf.gradients(x, x)[0].eval()",
        "def f(x):\n  (-tf.constant(1) * 2).eval()",
        "def f(sess=None):\n  sess.run(1)",
        "class A:\n  def __init__(self): self.sess = None\n  def f(self): self.sess.run(1)",
        "def f():\n  d = {'a': tf.Session()}; d.get('a').run(1)",
        "def f():\n  d = {'a': tf.Session()}\n  for k, s in d.items(): s.run(1)",
        "from everything import *\ndef f():\n  sess.run(1)",
        "def f(x):\n  tf.train.Supervisor().saver.save(x, 'x')",
        "S = tf.Session\ndef f():\n  S().run(1)",
        "class A:\n  s = tf.Session()\ndef f(): A.s.run(1)",
        "class A:\n  s = tf.Session()\ndef f(): A().s.run(1)",
        "class A:\n  @property\n  def s(self): return tf.Session()\ndef f(): A().s.run(1)",
        "class A:\n  @classmethod\n  def make(cls):\n    cls.s = tf.Session(); cls.s.run(1)",
        "class A:\n  @staticmethod\n  def make(a): a.run(1)\nA.make(tf.Session())",
        "import functools\ndef g(a): a.run(1)\ndef f(): functools.partial(g, tf.Session())",
        "def g(a): a.run(1)\ndef f(): g(a=tf.Session())",
        "def g():\n  global s; s = tf.Session()\ndef f(): s.run(1)",
        "def g():\n  s = None\n  def h():\n    nonlocal s; s = tf.Session()\n  def f(): s.run(1)",
        "def g(coord): tf.train.LooperThread.loop(coord, 1, h, (tf.Session(),))\ndef h(a): a.run(1)",
        "def g(coord): coord.create_task(h, tf.Session())\ndef h(a): a.run(1)",
        "def h(a, b): b.run(1)\ns = tf.train.Scaffold(init_fn=h)",
        "def h(b): b.run(1)\ns = tf.train.Supervisor(init_fn=h)",
        "import other\nclass A(other.B):\n  def f(self): self.sess.run(1)",
    ],
)
def test_a_session_is_followed(text: str) -> None:
    assert awaited(text), port("import tensorflow as tf\n" + text).source.decode()


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess\ndef f(sess_x): subprocess.run('x')",
        "def f(sess): return sess.graph",
        "def f(saver): return saver.last_checkpoints",
        "def f(x): x.save(); x.close(); x.join(); x.flush()",
        "def f(x): x.eval",
        "import pandas as pd\ndef f(): pd.DataFrame().eval('a')",
        "class A:\n  def run(self): pass\n  def eval(self): pass\ndef f(): A().run() + A().eval()",
        "def f():\n  sess = 3; sess.run(1)",
        "def f(writer): writer.flush()",
        "def f(): tf.logging.flush(); tf.app.flags.FLAGS.run()",
        "def f():\n  with tf.Graph().as_default() as g: g.finalize()",
    ],
)
def test_what_is_no_session_is_left_alone(text: str) -> None:
    assert awaited(text) == []
