"""``asyncmon.tf1.port``: what is not changed is listed by line, with the reason; and the command."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("libcst", reason="the port needs libcst: pip install 'asyncmon[port]'")

from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.cli import main
from asyncmon.tf1.port.porting import port

if TYPE_CHECKING:
    from pathlib import Path

OLD = """\
import tensorflow as tf

with tf.Session() as sess:
    print(sess.run(1))  # one
"""


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
    assert notes(OLD) == []


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


# -- the command


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.py"
    path.write_text(OLD)
    path.chmod(0o754)
    return path


def test_it_prints_the_port(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", str(old)]) == 0
    assert "    async with tf.Session() as sess:\n        print(await sess.run(1))  # one\n" in (
        capsys.readouterr().out
    )
    assert old.read_text() == OLD


def test_it_writes_elsewhere_or_in_place(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = old.with_name("new.py")
    assert main(["port", str(old), "-o", str(new)]) == 0
    assert old.read_text() == OLD
    assert main(["port", str(old), "-o", str(old)]) == 2
    assert "use -i" in capsys.readouterr().err
    assert old.read_text() == OLD
    assert main(["port", str(old), "-i"]) == 0
    assert old.read_bytes() == new.read_bytes()
    assert old.stat().st_mode & 0o777 == 0o754
    assert sorted(os.listdir(old.parent)) == ["new.py", "old.py"]


def test_it_prints_a_diff(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", str(old), "--diff"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"--- {old}\n+++ {old}\n@@")
    assert "-import tensorflow as tf\n+import asyncio\n+import asyncmon.tf1 as tf\n" in out


def test_what_is_left_makes_the_status_one(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old.write_text("import tensorflow as tf\nf = lambda s: s.eval()[0]\n")
    assert main(["port", str(old)]) == 1
    assert capsys.readouterr().err.startswith(f"{old}:2: a lambda cannot await")


def test_python_2_is_refused(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old.write_text("import tensorflow as tf\n\nprint 'loss', 3\n")
    assert main(["port", str(old), "-i"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{old}:3: not Python 3")
    assert "2to3" in err
    assert "print 'loss'" in old.read_text()


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", str(tmp_path / "x.py")]) == 2
    assert "x.py" in capsys.readouterr().err


def test_without_libcst_it_says_what_to_install(old: Path) -> None:
    code = (
        "import sys; sys.modules['libcst'] = None\n"
        "from asyncmon.cli import main\nsys.exit(main(['port', sys.argv[1]]))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(old)], capture_output=True, text=True, check=False
    )
    assert (out.returncode, out.stderr) == (2, "`port` needs libcst: pip install 'asyncmon[port]'\n")
