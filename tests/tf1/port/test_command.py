"""``python -m asyncmon port``: files, options, exit status."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from asyncmon.cli import main
from tests.doc_page import programs, shell

PAGE = Path(__file__).parents[3] / "docs" / "porting.md"

OLD = """\
import tensorflow as tf

with tf.Session() as sess:
    print(sess.run(1))  # one
"""


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


def test_tabs_mixed_with_spaces_are_refused(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old.write_text("def f():\n    if 1:\n\tpass\n")
    assert main(["port", str(old)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{old}:3: tabs are mixed with spaces")
    assert "expand" in err


@pytest.mark.parametrize("line", ["x = 0777", "exec 'x'", "raise E, 'x'", "print >>f, 3,", "a <> b"])
def test_syntax_of_python_2_names_the_line(
    line: str, old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old.write_text(f"import tensorflow as tf\nf = a = b = E = 1\n{line}\n")
    assert main(["port", str(old)]) in (1, 2)
    err = capsys.readouterr().err
    assert err.startswith(f"{old}:3: ")
    assert "2to3" in err


def test_a_missing_folder_of_the_output_is_named(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = old.parent / "no"
    assert main(["port", str(old), "-o", str(folder / "new.py")]) == 2
    assert capsys.readouterr().err == f"{folder}: there is no such folder: make it first\n"


def test_a_folder_is_ported_whole(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = old.parent / "base", old.parent / "new"
    for name, text in {
        "pkg/__init__.py": "",
        "pkg/util.py": "def add(a, b):\n    return a + b\n",
        "pkg/model.py": "from .base import Base\nclass Model(Base):\n    def step(self): return 1\n",
        "pkg/base.py": "class Base(object):\n    def step(self): return self.sess.run(1)\n",
        "train.py": f"{OLD}from pkg.model import Model\nprint(Model().step())\n",
        "data/words.txt": "a b\n",
        ".git/config": "",
        "pkg/__pycache__/x.pyc": "",
    }.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert main(["port", str(base), "-o", str(new)]) == 0
    assert capsys.readouterr().err == ".git: skipped\npkg/__pycache__: skipped\n"
    found = {str(p.relative_to(new)): p.read_text() for p in new.rglob("*") if p.is_file()}
    assert sorted(found) == [
        "data/words.txt", "pkg/__init__.py", "pkg/base.py", "pkg/model.py", "pkg/util.py", "train.py"
    ]  # fmt: skip
    assert "async def step(self): return 1" in found["pkg/model.py"]
    assert "    print(await Model().step())" in found["train.py"]
    assert main(["port", str(new), "-i"]) == 0
    assert found == {str(p.relative_to(new)): p.read_text() for p in new.rglob("*") if p.is_file()}


def test_a_file_of_a_folder_that_is_not_python_3_is_copied_and_listed(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (old.parent / "two.py").write_text("x = 1\nprint 'two'\n")
    new = old.parent / "new"
    assert main(["port", str(old.parent), "-o", str(new)]) == 1
    assert capsys.readouterr().err.startswith(f"{old.parent / 'two.py'}:2: copied: not Python 3")
    assert (new / "two.py").read_bytes() == (old.parent / "two.py").read_bytes()
    assert "asyncmon" in (new / "old.py").read_text()


def test_a_folder_needs_a_place(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", str(old.parent)]) == 2
    assert "is a folder: give the one to write" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", str(tmp_path / "x.py")]) == 2
    assert "x.py" in capsys.readouterr().err


def test_the_help_is_that_of_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "104")
    (block,) = (one for one in programs(PAGE)[0] if "--help" in one.text)
    command, shown = block.text.split("\n", 1)
    printed = shell(command.removeprefix("$ "))
    if sys.version_info >= (3, 13):  # which writes `-o, --output NEW.py`, and other columns
        shown, printed = (
            re.sub(r"(-\w) \S+, --", r"\1, --", " ".join(x.split())) for x in (shown, printed)
        )
    assert shown == printed
