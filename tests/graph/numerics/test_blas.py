"""BLAS kept to one thread while somebody asks for it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from asyncmon.graph.numerics import blas
from asyncmon.graph.numerics.blas import blas_threads, single_threaded_blas

needs_openblas = pytest.mark.skipif(
    not blas_threads.is_controllable, reason="numpy is not built with OpenBLAS"
)


def threads() -> int:
    functions = blas.blas_threads._functions
    assert functions is not None
    return int(functions[0]())


@needs_openblas
def test_one_thread_inside_and_as_many_as_before_outside() -> None:
    before = threads()
    with single_threaded_blas():
        assert threads() == 1
        with single_threaded_blas():
            assert threads() == 1
        assert threads() == 1
    assert threads() == before


@needs_openblas
def test_the_last_one_lets_go() -> None:
    before = threads()
    first, second = single_threaded_blas(), single_threaded_blas()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == 1
    second.__exit__(None, None, None)
    assert threads() == before


@needs_openblas
def test_an_error_lets_go() -> None:
    before = threads()
    with pytest.raises(ValueError, match="no"), single_threaded_blas():
        raise ValueError("no")
    assert threads() == before


def test_without_openblas_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas.blas_threads, "_functions", None)
    assert not blas_threads.is_controllable
    with single_threaded_blas():
        np.dot(np.ones((3, 3)), np.ones((3, 3)))


def test_a_library_without_the_names_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _path: object())
    assert not blas._Threads().is_controllable


FORKS = """
import os, threading
from asyncmon.graph.numerics import blas
keep, let_go = threading.Event(), threading.Event()
def hold():
    with blas.single_threaded_blas(), blas.blas_threads._mutex:
        keep.set()
        let_go.wait()
blas.blas_threads._functions[1](3)
thread = threading.Thread(target=hold)
thread.start()
keep.wait()
child = os.fork()
if not child:
    with blas.single_threaded_blas():
        inside = blas.blas_threads._functions[0]()
    os._exit(10 * inside + blas.blas_threads._functions[0]())
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
