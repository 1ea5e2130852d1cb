"""``tf.gfile`` and ``tf.compat``, compared by hand with TensorFlow 2.15's ``tf.compat.v1``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import asyncmon.tf1 as tf
from asyncmon.tf1 import gfile


def test_text_is_utf_8_and_positions_are_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with gfile.GFile(path, "w") as file:
        file.write("héllo\nzwei\n")
    assert path.read_bytes() == "héllo\nzwei\n".encode()
    with gfile.Open(str(path)) as file:
        assert (file.read(3), file.tell(), file.readline()) == ("hé", 3, "llo\n")
        assert (file.readlines(), file.readline(), file.size()) == (["zwei\n"], "", 12)
        assert (file.name, file.mode, file.seekable()) == (str(path), "r", True)
        file.seek(offset=-5, whence=2)
        assert file.next() == "zwei\n"
        with pytest.raises(StopIteration):
            file.next()
        file.seek(position=0)
        assert list(file) == ["héllo\n", "zwei\n"]
        with pytest.raises(TypeError, match="offset argument required"):
            file.seek()
    with gfile.FastGFile(path, "rb") as file:
        assert file.read() == path.read_bytes()


def test_files_are_written_appended_to_and_changed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for mode, text in [("w", "12"), ("a", b"34"), ("r+", "9")]:
        with gfile.GFile(path, mode) as file:
            file.write(text)
            file.flush()
    assert path.read_text() == "9234"
    with gfile.GFile(path, "w+") as file:
        file.write("abc")
        assert file.size() == 3
        file.seek(0)
        assert file.read() == "abc"
    file = gfile.GFile(path)
    assert file.read() == "abc"
    file.close()
    assert file.read() == "abc"  # a closed file is opened again
    del file


def test_a_file_is_opened_when_it_is_used(tmp_path: Path) -> None:
    missing = gfile.GFile(tmp_path / "none")
    with pytest.raises(tf.errors.NotFoundError, match=r"none; No such file or directory"):
        missing.read()
    with pytest.raises(tf.errors.FailedPreconditionError, match="Is a directory"):
        gfile.GFile(tmp_path).read()
    with pytest.raises(tf.errors.PermissionDeniedError, match="not for writing"):
        gfile.GFile(tmp_path / "f").write("x")
    with pytest.raises(tf.errors.PermissionDeniedError, match="not for reading"):
        gfile.GFile(tmp_path / "f", "w").read()
    with pytest.raises(tf.errors.InvalidArgumentError, match="mode must be one of"):
        gfile.GFile(tmp_path / "f", "q")


def test_directories_are_made_listed_and_removed(tmp_path: Path) -> None:
    d = str(tmp_path)
    gfile.MkDir(f"{d}/a")
    gfile.MkDir(f"{d}/a")
    gfile.MakeDirs(f"{d}/b/c")
    gfile.MakeDirs(f"{d}/b/c")
    Path(d, "b", "f").touch()
    Path(d, "b", ".hidden").touch()
    assert sorted(gfile.ListDirectory(d)) == ["a", "b"]
    assert (gfile.IsDirectory(d), gfile.IsDirectory(f"{d}/b/f"), gfile.Exists(f"{d}/no")) == (1, 0, 0)
    assert gfile.Exists(f"{d}/b/f")
    assert sorted(gfile.Glob(f"{d}/b/*")) == [f"{d}/b/.hidden", f"{d}/b/c", f"{d}/b/f"]
    assert gfile.Glob([f"{d}/a", f"{d}/b/?", f"{d}/no*"]) in (
        [f"{d}/a", f"{d}/b/c", f"{d}/b/f"],
        [f"{d}/a", f"{d}/b/f", f"{d}/b/c"],
    )
    first, *_ = gfile.Walk(d)
    assert (first[0], sorted(first[1]), first[2]) == (d, ["a", "b"], [])
    assert [where for where, _, _ in gfile.Walk(f"{d}/b", in_order=False)] == [f"{d}/b/c", f"{d}/b"]
    assert list(gfile.Walk(f"{d}/no")) == []
    gfile.DeleteRecursively(f"{d}/b")
    assert gfile.ListDirectory(d) == ["a"]
    Path(d, "a", "f").touch()
    gfile.DeleteRecursively(f"{d}/a/f")
    assert gfile.ListDirectory(f"{d}/a") == []


def test_files_are_copied_renamed_and_measured(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    Path(a).write_text("text")
    gfile.Copy(a, b)
    for move in (gfile.Copy, gfile.Rename):
        with pytest.raises(tf.errors.AlreadyExistsError, match="file already exists"):
            move(a, b)
    gfile.Copy(a, b, overwrite=True)
    gfile.Rename(a, b, overwrite=True)
    assert not gfile.Exists(a)
    found = gfile.Stat(b)
    assert (found.length, found.is_directory) == (4, False)
    assert found.mtime_nsec == Path(b).stat().st_mtime_ns
    assert gfile.Stat(tmp_path).is_directory
    gfile.Remove(b)
    assert not gfile.Exists(b)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda d: gfile.MkDir(f"{d}/x/y"), tf.errors.NotFoundError),
        (lambda d: gfile.ListDirectory(f"{d}/x"), tf.errors.NotFoundError),
        (lambda d: gfile.ListDirectory(f"{d}/file"), tf.errors.NotFoundError),
        (lambda d: gfile.Copy(f"{d}/x", f"{d}/y"), tf.errors.NotFoundError),
        (lambda d: gfile.Copy(f"{d}/file", f"{d}/x/y"), tf.errors.NotFoundError),
        (lambda d: gfile.Copy(d, f"{d}/y"), tf.errors.InvalidArgumentError),
        (lambda d: gfile.Rename(f"{d}/x", f"{d}/y"), tf.errors.NotFoundError),
        (lambda d: gfile.Remove(d), tf.errors.FailedPreconditionError),
        (lambda d: gfile.Remove(f"{d}/x"), tf.errors.NotFoundError),
        (lambda d: gfile.DeleteRecursively(f"{d}/x"), tf.errors.NotFoundError),
        (lambda d: gfile.Stat(f"{d}/x"), tf.errors.NotFoundError),
        (lambda d: gfile.MakeDirs(f"{d}/file/y"), tf.errors.FailedPreconditionError),
        (lambda d: gfile.Exists("gs://bucket/x"), tf.errors.UnimplementedError),
    ],
)
def test_errors_are_those_of_tf(tmp_path: Path, call: Any, error: type[Exception]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(error):
        call(str(tmp_path))


def test_text_and_bytes_are_converted() -> None:
    compat = tf.compat
    assert compat.as_bytes("hé") == compat.as_bytes("hé".encode()) == b"h\xc3\xa9"
    assert compat.as_bytes("hé", "latin1") == b"h\xe9"
    assert compat.as_bytes(bytearray(b"x")) == b"x"
    for to_text in (compat.as_text, compat.as_str, compat.as_str_any):
        assert to_text(b"h\xc3\xa9") == to_text("hé") == "hé"
    assert (compat.as_str_any(5), compat.as_str_any(None)) == ("5", "None")
    for convert in (compat.as_bytes, compat.as_text, compat.as_str):
        with pytest.raises(TypeError, match=re.escape("Expected binary or unicode string, got 5")):
            convert(5)
    assert isinstance(1, compat.integral_types)
    assert isinstance(1.0, compat.real_types)
    assert isinstance(1j, compat.complex_types)
    assert isinstance("x", compat.bytes_or_text_types)


def test_the_first_write_creates_a_file_that_is_to_be_changed(tmp_path: Path) -> None:
    with gfile.GFile(tmp_path / "new", "r+") as file:
        with pytest.raises(tf.errors.NotFoundError):
            file.read()
        file.write("abc")
        file.seek(0)
        assert file.read() == "abc"
