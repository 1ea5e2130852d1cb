"""What the port leaves as it is, is listed by line with the reason."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("libcst", reason="the port needs libcst: pip install 'asyncmon[port]'")

from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.tf1.port.porting import port


def notes(text: str) -> list[tuple[int, str]]:
    return [(note.line, note.text) for note in port(textwrap.dedent(text).encode()).notes]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("class A:\n  @property\n  def x(self):\n    return self.sess.run(1)", 5, "property `x`"),
        ("class A:\n  def __del__(self):\n    self.sess.close()", 4, "`__del__` cannot await"),
        ("class A:\n  def __len__(self):\n    return self.sess.run(1)", 4, "`__len__` cannot await"),
        ("class A:\n  x = tf.Session().run(1)", 3, "body of class `A`"),
        ("f = lambda sess: sess.run(1)[0]", 2, "a lambda cannot await"),
        ("def f(sess):\n  g = (sess.run(i) for i in 'ab')\n  return g", 3, "generator expression"),
        ("def f(sess):\n  yield sess.run(1)\n  return 3", 3, "generator `f` returns a value"),
        ("import utils\ndef f(sess):\n  utils.evaluate(sess)", 4, "`utils.evaluate` is not of"),
        ("import other\nother.make().run(1)", 3, "`other.make().run` is not known"),
        ("def f(sess):\n  return map(lambda x: sess.run(x), 'ab')", 3, "passed to `map`"),
        ("def f(x): tf.Session().run(x)\ndef g(x): return sorted(x, key=f)", 3, "passed to `sorted`"),
        ("import time\ndef f():\n  time.sleep(1)\ndef g(sess):\n  f()\n  sess.run(1)", 4, "holds"),
        ("def f(sess, lock):\n  with lock:\n    sess.run(1)", 3, "asyncio.Lock"),
        ("from tensorflow.examples.tutorials.mnist import input_data", 2, "no example data"),
        ("import queue\nq = queue.Queue()\ndef f(sess):\n  sess.run(q.get())", 5, "`q.get` holds"),
        ("from tensorflow import keras", 2, "use tf.layers and tf.train optimizers"),
        ("import tensorflow.contrib.slim as slim", 2, "of tf.contrib"),
        ("tf.data.Dataset", 2, "asyncmon.data and sess.iterate"),
        ("for i in xrange(3): pass", 2, "run 2to3 first"),
        ("def f(a, b):\n  b.run(x)\n", 3, "`b.run` is not known"),
        ("import threading\nclass T(threading.Thread):\n  def run(self):\n    tf.Session().run(1)",
         3, "`T` derives from threading.Thread"),
        ("import atexit\ndef f(sess):\n  atexit.register(sess.close)", 4, "`sess.close` is async"),
        ("import contextlib\nwith contextlib.closing(tf.Session()) as sess:\n  pass", 3, "async with"),
        ("from jobs import job\n@job\ndef f(sess):\n  sess.run(1)", 4, "@job awaits it"),
        ("import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    tf.Session().run(1)",
         3, "IsolatedAsyncioTestCase"),
        ("tf.Session().run(1)\ndef main(_): pass\ntf.app.run(main)", 4, "loop of its own"),
        ("def gen(sess):\n  yield sess.run(1)\ndef f(s):\n  return zip(gen(s), 'ab')", 5, "`zip` of"),
    ],
)  # fmt: skip
def test_what_is_left_is_listed(text: str, line: int, words: str) -> None:
    found = notes(f"import tensorflow as tf\n{text}\n")
    assert [number for number, why in found if words in why] == [line], found


def test_a_finished_port_lists_nothing() -> None:
    assert notes("import tensorflow as tf\nwith tf.Session() as sess:\n  sess.run(1)") == []


PIECES = [
    "class H{n}(tf.train.SessionRunHook):\n    def before_run(self, c):\n        return None\n",
    "def f{n}(sess):\n    # why\n    return sess.run({n})[0]\n",
    "def g{n}(sess):\n    for x in [f{n}(sess), sess.run(1)]:\n        yield x.eval()\n",
    "def f{n}(s):\n    return [f{m}(s) for i in range(3)]\n",
    "class A{n}:\n    def __init__(self):\n        self.s = tf.Session()\n        self.s.run({n})\n",
    "class A{n}(A{m}):\n    def go(self):\n        return A{n}().s.run(1), lambda: f{m}(self.s)\n",
    "with tf.Graph().as_default(), tf.Session() as sess:\n    print(f{m}(sess))\n",
    "sess = tf.Session()\nfor i in g{n}(sess):\n    print(i)\n",
    "if __name__ == '__main__':\n    f{m}(tf.Session())\n",
    "t = threading.Thread(target=f{n}, args=(tf.Session(),))\nt.start()\nt.join()\n",
    "x = tf.Session().run([1])[0]  # first\n\n\n# then\ny = sum(f{n}(s) for s in x)\n",
    "def h{n}():\n    with tf.device('/cpu'):\n        time.sleep(1); f{m}(tf.Session())\n",
]


@given(st.lists(st.tuples(st.sampled_from(PIECES), st.integers(0, 2), st.integers(0, 2)), max_size=8))
@settings(max_examples=20)
def test_any_program_is_python_after_it_and_is_then_left_alone(
    pieces: list[tuple[str, int, int]],
) -> None:
    text = "import threading, time\nimport tensorflow as tf\n\n"
    text += "\n".join(piece.format(n=n, m=m) for piece, n, m in pieces)
    once = port(text.encode()).source
    compile(once, "new.py", "exec")
    assert port(once).source == once
    for comment in ("# why", "# first", "# then"):
        assert once.decode().count(comment) == text.count(comment)
