"""``y = a * x + b * y``, in one pass where BLAS can."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import numpy as np
import pytest

from asyncmon.graph.kernels import axpby as module
from asyncmon.graph.kernels.axpby import axpby, axpy, xpby
from asyncmon.graph.kernels.blas import find

LARGE = 1 << 15
DTYPES = [np.float16, np.float32, np.float64]
needs_blas = pytest.mark.skipif(
    module._FUNCTIONS[np.dtype(np.float32)] is None, reason="this BLAS has no axpby"
)


def arrays(size: int, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(size)
    return rng.standard_normal(size).astype(dtype), rng.standard_normal(size).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 100, LARGE - 1, LARGE, LARGE + 13])
@pytest.mark.parametrize(("a", "b"), [(0.1, 0.9), (-2.0, 1.0), (1.0, 0.5), (0.0, 0.5), (0.5, 0.0)])
def test_it_is_the_sum(dtype: Any, size: int, a: float, b: float) -> None:
    x, y = arrays(size, dtype)
    wanted = a * x.astype(np.float64) + b * y.astype(np.float64)
    kept = x.copy()
    axpby(dtype(a), x, dtype(b), y)
    epsilon = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(y, wanted, rtol=4 * epsilon, atol=8 * epsilon)
    np.testing.assert_array_equal(x, kept)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 100, LARGE + 13])
def test_where_one_factor_is_one(dtype: Any, size: int) -> None:
    x, y = arrays(size, dtype)
    for function, a, b in (
        (lambda: axpy(dtype(0.5), x, y), 0.5, 1),
        (lambda: xpby(x, dtype(0.5), y), 1, 0.5),
    ):
        wanted = a * x.astype(np.float64) + b * y.astype(np.float64)
        function()
        epsilon = float(np.finfo(dtype).eps)
        np.testing.assert_allclose(y, wanted, rtol=4 * epsilon, atol=8 * epsilon)


@pytest.mark.parametrize("size", [100, LARGE])
def test_the_scratch_may_be_x(size: int) -> None:
    x, y = arrays(size, np.float32)
    wanted = 0.5 * x + 0.25 * y
    axpby(0.5, x, 0.25, y, x)
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (0.0, 0.5), (1.0, 0.0)])
def test_a_factor_of_zero_hides_no_nan(a: float, b: float) -> None:
    x, y = np.full(LARGE, np.nan, np.float32), np.full(LARGE, np.nan, np.float32)
    axpby(a, x, b, y)
    assert np.isnan(y).all()


def test_an_array_that_cannot_be_written_to_is_read() -> None:
    x, y = arrays(LARGE, np.float32)
    x.setflags(write=False)
    wanted = x + 2 * y
    axpby(1.0, x, 2.0, y)
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cut", [np.s_[::2], np.s_[::-1]])
def test_arrays_with_gaps(cut: Any) -> None:
    x, y = (array[cut] for array in arrays(2 * LARGE, np.float32))
    wanted = 3 * x + 2 * y
    axpby(3.0, x, 2.0, y)
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-5)


def test_matrices() -> None:
    x, y = (array.reshape(256, -1) for array in arrays(LARGE, np.float64))
    wanted = 3 * x + 2 * y
    axpby(3.0, x, 2.0, y)
    np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-12)


def test_without_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FUNCTIONS", {})
    x, y = arrays(LARGE, np.float32)
    wanted = np.float32(3) * x + np.float32(2) * y
    axpby(np.float32(3), x, np.float32(2), y)
    np.testing.assert_array_equal(y, wanted)


def test_a_library_without_the_function_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _path: object())
    assert module._function("cblas_saxpby", np.float32, ctypes.c_float) is None


@needs_blas
def test_a_function_that_does_something_else_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._function("cblas_saxpby", np.float32, ctypes.c_float) is not None

    def nothing(*_arguments: Any) -> None: ...

    monkeypatch.setattr(module, "find", lambda _name: (nothing, ctypes.c_int))
    assert module._function("cblas_saxpby", np.float32, ctypes.c_float) is None


@pytest.mark.parametrize("shape", [(), (1,), (LARGE - 1,), (2, LARGE)])
def test_arrays_of_other_sizes_are_not_read_beyond_their_end(shape: tuple[int, ...]) -> None:
    x, y = np.ones(shape, np.float32), np.zeros(LARGE, np.float32)
    for function in (lambda: axpby(2.0, x, 1.0, y), lambda: axpy(2.0, x, y), lambda: xpby(x, 2.0, y)):
        try:
            function()
        except ValueError:
            assert shape not in ((), (1,))
    assert set(y) <= {0.0, 2.0, 4.0, 9.0}


def test_factors_for_each_element() -> None:
    x, y = arrays(LARGE, np.float32)
    factors = np.linspace(0, 1, LARGE, dtype=np.float32)
    wanted = factors * x + y
    axpy(factors, x, y)
    np.testing.assert_array_equal(y, wanted)


def test_a_numpy_that_cannot_be_looked_into_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: str) -> None:
        raise OSError("no")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert find("cblas_saxpby") is None


def test_what_no_library_has_is_not_found() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find("cblas_no_such_function") is None
