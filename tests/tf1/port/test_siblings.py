"""``asyncmon.tf1.port``: a program of several files, ported one by one in any order."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncmon.tf1.port.package import port_folder
from asyncmon.tf1.port.porting import port

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


PACKAGE = {
    "nets/__init__.py": "from .base import Net\nfrom nets.ops import *\n",
    "nets/base.py": "class Net(object):\n    def step(self, sess): return sess.run(1)\n",
    "nets/ops.py": "import tensorflow as tf\nslim = tf.contrib.slim\n",
    "data.py": "import queue\nq = queue.Queue()\nclass Feeder(object):\n    def take(self):\n"
    "        return wait()\n    def size(self):\n        return q.qsize()\n"
    "def wait():\n    return q.get()\n",
    "loop.py": "def loop(sess, net, feeder, env):\n    while env.step(net.step(sess)):\n"
    "        feeder.take(), feeder.size()\n",
    "train.py": "from nets import *\nimport data\nfrom loop import loop\n"
    "def main(env):\n    with tf.Session() as sess:\n        tf.no_such(slim.no_such)\n"
    "        loop(sess, Net(), data.Feeder(), env)\n        data.wait()\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        (tmp_path / "old" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "old" / name).write_text(text)
    return tmp_path / "old"


def test_the_plans_of_all_files_of_a_folder_agree(package: Path) -> None:
    listed: list[str] = []
    shown: list[str] = []
    assert port_folder(package, package.with_name("new"), listed.append, shown.append) == 1
    assert shown[0] == "1 of 6 files read"
    assert shown[-1] == "6 of 6 files ported"
    loop = (package.with_name("new") / "loop.py").read_text()
    assert loop.startswith("async def loop(")
    assert "env.step(await net.step(sess))" in loop  # by the name of the class, Net
    train = (package.with_name("new") / "train.py").read_text()
    assert "    async with tf.Session() as sess:\n" in train
    assert "        await loop(sess, Net(), data.Feeder(), env)\n" in train
    found = [line.removeprefix(f"{package}/").partition(": ")[::2] for line in listed]
    assert [(place, why.split(": ")[0][:40]) for place, why in found] == [
        ("data.py:9", "`q.get` holds the event loop"),
        ("loop.py:2", "`env.step` is not known"),
        ("loop.py:3", "`feeder.take` holds the event loop"),
        ("train.py:6", "`slim.no_such`"),
        ("train.py:6", "`tf.no_such`"),
        ("train.py:8", "`data.wait` holds the event loop"),
    ]


def test_a_method_of_an_unknown_object_is_awaited_by_the_name_of_its_class_or_a_session() -> None:
    text = "class BigModel(object):\n    def act(self, sess):\n        return sess.run(1)\n"
    text += "def f(sess, %s):\n"
    for name, args, awaited in [
        ("model", "1", True), ("big_model2", "1", True), ("x", "sess", True), ("env", "1", False),
        ("x", "1", False), ("mo", "1", False),
    ]:  # fmt: skip
        ported = port(f"import tensorflow as tf\n{text % name}    {name}.act({args})\n")
        assert (f"await {name}.act({args})" in ported.source.decode()) == awaited, name
        assert [note.line for note in ported.notes] == ([] if awaited else [6])


def test_objects_of_other_files_are_followed_and_sessions_at_import_listed(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import tensorflow as tf\nclass Agent(object):\n    def act(self):\n"
        "        return sess.run(x)\n"
        "x, agent = tf.constant(3.0), Agent()\nsess = tf.Session()\n"
        "if __name__ == '__main__':\n    agent.act()\n"
    )
    for head, before in (("import net", "net."), ("from net import *", "")):
        calls = [f"{before}{call}" for call in ("sess.run(1)", "x.eval()", "agent.act()")]
        ported = port("\n".join([head, *calls, ""]), tmp_path)
        assert ported.notes == ()
        assert all(f"await {call}" in ported.source.decode() for call in calls)
    with (tmp_path / "net.py").open("a") as file:
        file.write("agent.act()\n")
    for line in ("import net", "from net import sess", "from . import net"):
        (note,) = port(f"{line}\n", tmp_path).notes
        assert (note.line, note.text.startswith(("`net` runs", "`.net` runs"))) == (1, True)
