"""BLAS on one thread inside ``single_threaded_blas``."""

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


@needs_openblas
def test_one_thread_inside_and_as_many_as_before_outside() -> None:
    before = blas_threads.limit
    with single_threaded_blas():
        assert blas_threads.limit == 1
        with single_threaded_blas():
            assert blas_threads.limit == 1
        assert blas_threads.limit == 1
    assert blas_threads.limit == before


@needs_openblas
def test_the_last_user_restores_the_setting() -> None:
    before = blas_threads.limit
    first, second = single_threaded_blas(), single_threaded_blas()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads.limit == 1
    second.__exit__(None, None, None)
    assert blas_threads.limit == before


@needs_openblas
def test_an_error_restores_the_setting() -> None:
    before = blas_threads.limit
    with pytest.raises(ValueError, match="no"), single_threaded_blas():
        raise ValueError("no")
    assert blas_threads.limit == before


def test_without_openblas_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_threads, "_functions", None)
    assert not blas_threads.is_controllable
    with single_threaded_blas():
        np.dot(np.ones((3, 3)), np.ones((3, 3)))


def test_a_library_without_the_names_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _path: object())
    assert not blas.BlasThreads().is_controllable


FORKS = """
import os, threading
from asyncmon.graph.numerics import blas
keep, let_go = threading.Event(), threading.Event()
def hold():
    with blas.single_threaded_blas(), blas.blas_threads._mutex:
        keep.set()
        let_go.wait()
blas.blas_threads.limit = 3
thread = threading.Thread(target=hold)
thread.start()
keep.wait()
child = os.fork()
if not child:
    with blas.single_threaded_blas():
        inside = blas.blas_threads.limit
    os._exit(10 * inside + blas.blas_threads.limit)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
let_go.set()
thread.join()
"""


@needs_openblas
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_restores_the_setting() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, timeout=15
    )
    assert run.stdout == "13\n", run.stderr
