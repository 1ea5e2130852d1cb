"""BLAS kept to one thread while somebody asks for it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from asyncmon.graph.kernels import blas
from asyncmon.graph.kernels.blas import can_be_kept, kept_to_one_thread

needs_openblas = pytest.mark.skipif(not can_be_kept(), reason="numpy is not built with OpenBLAS")


def threads() -> int:
    functions = blas.keeper._functions
    assert functions is not None
    return int(functions[0]())


@needs_openblas
def test_one_thread_inside_and_as_many_as_before_outside() -> None:
    before = threads()
    with kept_to_one_thread():
        assert threads() == 1
        with kept_to_one_thread():
            assert threads() == 1
        assert threads() == 1
    assert threads() == before


@needs_openblas
def test_the_last_one_lets_go() -> None:
    before = threads()
    first, second = kept_to_one_thread(), kept_to_one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == 1
    second.__exit__(None, None, None)
    assert threads() == before


@needs_openblas
def test_an_error_lets_go() -> None:
    before = threads()
    with pytest.raises(ValueError, match="no"), kept_to_one_thread():
        raise ValueError("no")
    assert threads() == before


def test_without_openblas_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas.keeper, "_functions", None)
    assert not can_be_kept()
    with kept_to_one_thread():
        np.dot(np.ones((3, 3)), np.ones((3, 3)))


def test_a_library_without_the_names_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _path: object())
    assert blas._functions() is None


FORKS = """
import os, threading
from asyncmon.graph.kernels import blas
keep, let_go = threading.Event(), threading.Event()
def hold():
    with blas.kept_to_one_thread(), blas.keeper._mutex:
        keep.set()
        let_go.wait()
blas.keeper._functions[1](3)
thread = threading.Thread(target=hold)
thread.start()
keep.wait()
child = os.fork()
if not child:
    with blas.kept_to_one_thread():
        inside = blas.keeper._functions[0]()
    os._exit(10 * inside + blas.keeper._functions[0]())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
let_go.set()
thread.join()
"""


@needs_openblas
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_begins_anew() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, timeout=15
    )
    assert run.stdout == "13\n", run.stderr
