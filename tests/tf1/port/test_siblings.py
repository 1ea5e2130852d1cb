"""``asyncmon.tf1.port``: a program of several files, ported one by one in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("libcst", reason="the port needs libcst: pip install 'asyncmon[port]'")

from asyncmon.tf1.port.porting import port

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "helpers.py": """\
import tensorflow as tf
import model
def init(sess):
    sess.run(tf.global_variables_initializer())
def plain(sess):
    return sess.graph
""",
    "model.py": """\
import tensorflow as tf
import helpers
class Model(object):
    def sample(self, sess, n):
        return sess.run(n)
    def size(self):
        return 3
class Owner(object):
    def __init__(self):
        self.sess = tf.Session()
        self.sess.run(1)
class Loud(tf.train.SessionRunHook):
    pass
def create(session):
    helpers.init(session)
    return Model()
""",
    "train.py": """\
import tensorflow as tf
import helpers as h
from model import Model, Owner, create, Loud
class Louder(Loud):
    def begin(self):
        self.n = 0
class Better(Model):
    def twice(self, sess):
        return self.sample(sess, 1) + super().sample(sess, self.size())
def main(_):
    with tf.Session() as sess:
        m = Model()
        o = Owner()
        h.init(sess)
        h.plain(sess)
        other = create(sess)
        print(m.sample(sess, 2).sum(), m.size())
""",
}

TRAIN = """\
import asyncmon.tf1 as tf
import helpers as h
from model import Model, Owner, create, Loud
class Louder(Loud):
    async def begin(self):
        self.n = 0
class Better(Model):
    async def twice(self, sess):
        return await self.sample(sess, 1) + await super().sample(sess, self.size())
async def main(_):
    async with tf.Session() as sess:
        m = Model()
        o = await Owner()
        await h.init(sess)
        h.plain(sess)
        other = await create(sess)
        print((await m.sample(sess, 2)).sum(), m.size())
"""


@pytest.mark.parametrize("order", ["train.py first", "train.py last"])
def test_functions_of_other_files_are_awaited(order: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name in sorted(FILES, reverse=order == "train.py first"):
        ported = port((tmp_path / name).read_bytes(), tmp_path)
        assert ported.notes == ()
        (tmp_path / name).write_bytes(ported.source)
    assert (tmp_path / "train.py").read_text() == TRAIN
    for name in FILES:
        assert port((tmp_path / name).read_bytes(), tmp_path).source == (tmp_path / name).read_bytes()


def test_files_of_a_package_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "pkg" / "sub"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text(FILES["helpers.py"].replace("import model\n", ""))
    for line in (
        "from . import a",
        "from .a import init",
        "import pkg.sub.a as a",
        "from pkg.sub import a",
        "from .a import *",
        "from pkg.sub.a import *",
    ):
        call = "init" if "init" in line or "*" in line else "a.init"
        text = f"import tensorflow as tf\n{line}\ndef f(s):\n    {call}(s)\n"
        assert f"    await {call}(s)" in port(text, folder).source.decode(), line


def test_a_file_that_cannot_be_read_is_as_one_of_another_package(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print 'Python 2'\n")
    ported = port("import tensorflow as tf\nimport old\ndef f(sess):\n    old.go(sess)\n", tmp_path)
    assert [note.line for note in ported.notes] == [4]
