"""What the port leaves as it is, is listed by line with the reason."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.tf1.port import names
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
        ("import other\nother.make().run(1)", 3, "`other.make().run` is awaited by its name"),
        ("def f(sess):\n  return map(lambda x: sess.run(x), 'ab')", 3, "passed to `map`"),
        ("def f(x): tf.Session().run(x)\ndef g(x): return sorted(x, key=f)", 3, "passed to `sorted`"),
        ("import time\ndef f():\n  time.sleep(1)\ndef g(sess):\n  f()\n  sess.run(1)", 4, "holds"),
        ("def f(sess, lock):\n  with lock:\n    sess.run(1)", 3, "asyncio.Lock"),
        ("from tensorflow.examples import adding_problem", 2, "the reader of MNIST"),
        ("import queue\nq = queue.Queue()\ndef f(sess):\n  sess.run(q.get())", 5, "`q.get` holds"),
        ("from tensorflow import keras", 2, "use tf.layers and tf.train optimizers"),
        ("import tensorflow.contrib.ffmpeg as ffmpeg", 2, "of tf.contrib"),
        ("tf.data.Dataset", 2, "asyncmon.data and sess.iterate"),
        ("for i in xrange(3): pass", 2, "run 2to3 first"),
        ("def f(a, b):\n  b.run(x)\n", 3, "`b.run` is awaited by its name"),
        ("import threading\nclass T(threading.Thread):\n  def run(self):\n    tf.Session().run(1)",
         3, "`T` derives from threading.Thread"),
        ("import atexit\ndef f(sess):\n  atexit.register(sess.close)", 4, "`sess.close` is async"),
        ("import contextlib\nwith contextlib.closing(tf.Session()) as sess:\n  pass", 3, "async with"),
        ("from jobs import job\n@job\ndef f(sess):\n  sess.run(1)", 4, "@job awaits it"),
        ("import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    tf.Session().run(1)",
         3, "IsolatedAsyncioTestCase"),
        ("tf.Session().run(1)\ndef main(_): pass\ntf.app.run(main)", 4, "loop of its own"),
        ("def gen(sess):\n  yield sess.run(1)\ndef f(s):\n  return zip(gen(s), 'ab')", 5, "`zip` of"),
        ("import subprocess\np = subprocess.Popen('a')\ndef f(sess):\n  sess.run(1)\n  p.wait()", 6,
         "`p.wait` holds the event loop: await asyncio.to_thread"),
        ("from concurrent.futures import ThreadPoolExecutor as T\nasync def f():\n  with T() as pool:\n"
         "    done = pool.submit(len, 'a')\n    done.result()", 6, "`done.result` holds"),
        ("import multiprocessing.pool as m\nasync def f():\n  m.ThreadPool(2).apply_async(f).get()", 4,
         "get` holds"),
        ("import numpy as np\nnp.asscalar(3)", 3, "`numpy.asscalar` is not in numpy"),
        ("from collections import Mapping", 2, "`collections.Mapping` is not in Python 3."),
        ("import time as t\nt.clock()", 3, "`time.clock` is not in Python 3."),
        ("flags = tf.app.flags\nfor k in flags.FLAGS.__flags: pass", 3, "flag_values_dict()"),
        ("from tensorflow.core.debug import debug_service_pb2", 2, "TensorFlow's own inside"),
        ("from tensorflow.python.lib.io import file_io", 2, "tf.gfile has its functions"),
        ("import StringIO", 2, "`StringIO` is Python 2: run 2to3 first"),
        ("from urllib2 import urlopen", 2, "`urllib2` is Python 2"),
        ("import numpy, cPickle as pickle", 2, "`cPickle` is Python 2"),
        ("from itertools import izip", 2, "`itertools.izip` is Python 2"),
        ("import sys\nsys.maxint", 3, "`sys.maxint` is Python 2"),
        ("{}.iteritems()", 2, "`iteritems` is Python 2"),
        ("import sys\nprint >>sys.stderr, 3", 3, "`print >>` is Python 2"),
        ("import signal\ndef f(sess):\n  sess.run(1); signal.pause()", 4, "signal handler sets"),
        ("import threading as t\ndef f(sess):\n  sess.run(1)\n  t.Event().wait()", 5, "asyncio.Event"),
        ("from threading import Lock\ndef f(sess):\n  sess.run(1)\n  Lock().acquire()", 5, "asyncio.L"),
        ("from queue import Queue\ndef f(sess):\n  sess.run(1)\n  Queue(3).put(1)", 5, "to_thread"),
        ("from six.moves import queue\ndef f(sess):\n  queue.Queue(3).put(sess.run(1))", 4, "holds"),
        ("import select as s\ndef g(): s.select([], [])\ndef f(sess):\n  sess.run(g())", 3, "holds"),
        ("def f(sess, q):\n  sess.run(q.get(timeout=9))", 3, "`q.get` holds"),
        ("def g(e): e.wait()\ndef h(e): g(e)\ndef f(sess, e):\n  sess.run(h(e))", 2, "`e.wait` holds"),
        ("def f(a):\n  a.join()", 3, "`a.join` is not known: await it if a Coordinator, LooperTask"),
        ("def f(a):\n  a.save('x')", 3, "`a.save` is not known"),
        ("def f(a):\n  [x.stop() for x in a]", 3, "`x.stop` is not known"),
        ("class A:\n  def go(self): tf.Session().run(1)\nclass B:\n  def go(self): pass\n"
         "def f(x):\n  x.go()", 7, "`x.go` is not known: await it if it has become async"),
        ("def f(sv):\n  c = sv.managed_session()\n  c.__enter__()", 4, "by hand: use `async with`"),
        ("eval(input())", 2, "is not followed"),
        ("exec('sess.run(1)')", 2, "is not followed"),
        ("def f(sess):\n  getattr(sess, 'run')(1)", 3, "is not followed"),
        ("import contextlib\ndef f(s, sess):\n  s.enter_context(tf.Session())", 4, "does not enter"),
        ("class A:\n  @property\n  def x(self):\n    return self.sess.run(1)\ndef f(a):\n  a.x", 7,
         "`a.x` runs a session"),
    ],
)  # fmt: skip
def test_what_is_left_is_listed(text: str, line: int, words: str) -> None:
    found = notes(f"import tensorflow as tf\n{text}\n")
    assert [number for number, why in found if words in why] == [line], found


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntry:\n  now = time.perf_counter\nexcept AttributeError:\n  now = time.clock",
        "import concurrent, os.path as p\nconcurrent.futures, p.join, os.path",
        "import numpy as np\nnp.float32, np.random.rand, np.linalg.norm",
        "import logging\nlogging.mine = 3",
        "class A(object):\n  def decode(self, sess):\n    sess.run(1)\nfor x in y:\n  x[0].decode()",
    ],
)
def test_names_that_are_there_are_not_listed(text: str) -> None:
    assert notes(f"import tensorflow as tf\n{text}\n") == []


def test_every_awaited_method_of_tf1_of_an_unknown_object_is_awaited_and_noted() -> None:
    assert {"run", "join", "save", "stop", "restore", "flush", "close"} <= names.AWAITED.keys()
    for name in names.AWAITED:
        made = port(f"def f(x):\n    x.{name}(1)\n")
        awaited = f"await x.{name}(1)".encode() in made.source
        assert awaited == (name not in names.COMMON), name
        noted = [(note.line, "take the await out" in note.text) for note in made.notes]
        assert noted == [(2, awaited)] or (awaited and "_" in name and not noted), name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("input('x')", "await asyncio.to_thread(input, 'x')"),
        ("subprocess.check_call(['ls'])", "await asyncio.to_thread(subprocess.check_call, ['ls'])"),
        ("x = q.get(timeout=3)", "x = await asyncio.to_thread(q.get, timeout=3)"),
        ("e.wait(2.0)", "await asyncio.to_thread(e.wait, 2.0)"),
        ("time.sleep(1)", "await asyncio.sleep(1)"),
        ("sys.stdin.readline()", "await asyncio.to_thread(sys.stdin.readline)"),
        ("q.get(False)", "q.get(False)"),
        ("lock.acquire(blocking=False)", "lock.acquire(blocking=False)"),
        ("queue.Queue().put(3)", "queue.Queue().put(3)"),
    ],
)
def test_a_blocking_call_with_an_async_form_is_replaced(before: str, after: str) -> None:
    head = "import asyncio, queue, subprocess, sys, threading, time\nimport asyncmon.tf1 as tf\n"
    head += "q, e, lock = queue.Queue(), threading.Event(), threading.Lock()\n"
    text = f"{head}def f(sess):\n    sess.run(1)\n    {before}\n"
    ported = port(text.encode())
    assert (ported.notes, ported.source.decode().splitlines()[-1]) == ((), f"    {after}")
    assert port(ported.source).source == ported.source


def test_what_python_3_has_too_is_not_listed() -> None:
    assert not notes("""\
        import six, sys
        try:
            import cPickle as pickle
        except ImportError:
            import pickle
        if sys.version_info[0] < 3:
            import urllib2
        from functools import reduce
        six.iteritems({}), reduce(max, [1]), six.moves.urllib.parse.quote("a")
        """)


@pytest.mark.parametrize(
    "text",
    [
        "def f(env):\n    env.reset()\n",
        "import threading\nclass T(threading.Thread):\n    def go(self):\n        self.start()\n",
    ],
)
def test_a_method_of_a_known_class_is_not_listed(text: str) -> None:
    assert notes(text) == []


def test_a_missing_name_that_gets_a_session_is_listed_once() -> None:
    text = "import tensorflow as tf\ndef f(sess):\n  tf.graph_util.convert(sess, sess.run(1))\n"
    assert [line for line, _ in notes(text)] == [3]


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
