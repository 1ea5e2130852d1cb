"""Torch's kernels on the same memory: ``SessionConfig(kernels="torch")``.

Torch's CPU kernels compute convolution, pooling, their gradients and large products of single and
double precision. Their inputs and results are arrays that torch and numpy share. numpy computes all
other ops, other dtypes, and the pooling of images that are padded on one side only.

Only a session with these kernels imports this module.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import torch

from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.numerics.blas import single_threaded_blas
from asyncmon.graph.numerics.kernels import replacing
from asyncmon.graph.numerics.windows import Windows, check_gradient, check_rank, checked_windows

_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
_WORTH_IT = 1 << 20  # multiplications: for fewer, the call of torch costs more than it saves
_aten: Any = torch.ops.aten
_onednn_linear: Any = None  # what torch.compile uses for products
if torch.backends.mkldnn.is_available():
    _onednn_linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)

with warnings.catch_warnings():  # torch warns of read-only arrays, once; here they are only read
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(b"\0", np.uint8))


@contextmanager
def torch_kernels(threads: int) -> Iterator[None]:
    """Run the kernels of this thread by torch inside ``with``, on this number of threads."""
    before = torch.get_num_threads()
    if before != threads:
        torch.set_num_threads(threads)
    try:
        with single_threaded_blas(), replacing(KERNELS), torch.no_grad():
            yield
    finally:
        if before != threads:
            torch.set_num_threads(before)


def _fits(*arrays: Array) -> bool:
    """Return whether torch can compute with arrays without copying them."""
    first = arrays[0].dtype
    return (
        first in _TYPES
        and all(array.dtype == first and array.size for array in arrays)
        and all(s >= 0 and s % first.itemsize == 0 for array in arrays for s in array.strides)
    )


def _images(array: Array) -> torch.Tensor:
    return torch.from_numpy(array).permute(0, 3, 1, 2)


def _filters(array: Array) -> torch.Tensor:
    return torch.from_numpy(array).permute(3, 2, 0, 1)


def _array(found: torch.Tensor, out: Array | None, order: tuple[int, ...] = (0, 2, 3, 1)) -> Array:
    """Return images as an array, in ``out`` if given, whose pages are mapped already."""
    found = found.permute(order)
    if out is None:
        return found.contiguous().numpy()
    torch.from_numpy(out).copy_(found)
    return out


def _even(windows: Windows) -> list[int] | None:
    """Return the padding of rows and columns on each side; None where the sides differ."""
    (top, bottom), (left, right) = windows.around
    return [top, left] if top == bottom and left == right else None


def _padded(images: torch.Tensor, windows: Windows) -> tuple[torch.Tensor, list[int]]:
    """Return images and the padding left to the convolution; pad images where the sides differ."""
    around = _even(windows)
    if around is not None:
        return images, around
    (top, bottom), (left, right) = windows.around
    return torch.nn.functional.pad(images, (left, right, top, bottom)), [0, 0]


def _convolve(images: Array, filters: Array, out: Array | None = None, **attrs: Any) -> Array:
    if not _fits(images, filters) or images.shape[3] != filters.shape[2]:
        return NotImplemented
    windows = Windows(images.shape, filters.shape[:2], **attrs)
    x, around = _padded(_images(images), windows)
    if x.shape[1] == 1 and 1 in windows.counts:  # the strides are ambiguous, and oneDNN mistakes them
        x = x.reshape(-1).reshape(x.shape)
    found = torch.conv2d(x, _filters(filters), None, windows.strides, around, windows.dilations)
    return _array(found, out)


def _gradient(
    which: int, images: Array, filters: torch.Tensor, grad: Array, windows: Windows
) -> torch.Tensor:
    """Return the gradient of images (0) or filters (1), of which only the shape is used."""
    x, around = _padded(_images(images), windows)
    found: tuple[torch.Tensor, ...] = _aten.convolution_backward(
        _images(grad), x, filters, None, windows.strides, around, windows.dilations, False,
        [0, 0], 1, [which == 0, which == 1, False],
    )  # fmt: skip
    return found[which]


def _filter_gradient(
    images: Array, sizes: Array, grad: Array, out: Array | None = None, **attrs: Any
) -> Array:
    if not _fits(images, grad):
        return NotImplemented
    windows = checked_windows(images.shape, shape := tuple(sizes.tolist()), grad, **attrs)
    filters = torch.empty((shape[3], shape[2], *shape[:2]), dtype=torch.from_numpy(grad).dtype)
    return _array(_gradient(1, images, filters, grad, windows), out, (2, 3, 1, 0))


def _input_gradient(
    sizes: Array, filters: Array, grad: Array, out: Array | None = None, **attrs: Any
) -> Array:
    if not _fits(filters, grad):
        return NotImplemented
    windows = checked_windows(shape := tuple(sizes.tolist()), filters.shape, grad, **attrs)
    images = np.empty(shape, grad.dtype) if out is None else out
    found = _gradient(0, images, _filters(filters), grad, windows)
    if _even(windows) is None:
        (top, _), (left, _) = windows.around
        found = found[:, :, top : top + shape[1], left : left + shape[2]]
    return _array(found, images)


def _pooling(windows: Windows, *arrays: Array) -> Any:
    """Return windows, strides and padding for torch; None where it cannot compute them."""
    around = _even(windows)
    if around is None or not _fits(*arrays):
        return None
    if any(2 * p > size for p, size in zip(around, windows.size, strict=True)):
        return None
    return windows.size, windows.strides, around


def _window_max(x: Array, out: Array | None = None, **attrs: Any) -> Array:
    pooling = _pooling(Windows(x.shape, **attrs), x)
    if pooling is None:
        return NotImplemented
    return _array(_aten.max_pool2d_with_indices(_images(x), *pooling)[0], out)


def _window_max_grad(x: Array, y: Array, grad: Array, out: Array | None = None, **attrs: Any) -> Array:
    pooling = _pooling(Windows(x.shape, **attrs), x, grad)
    if pooling is None:
        return NotImplemented
    result = np.empty_like(x) if out is None else out
    places = _aten.max_pool2d_with_indices(_images(x), *pooling)[1]
    _aten.max_pool2d_with_indices_backward.grad_input(
        _images(grad), _images(x), *pooling, [1, 1], False, places, grad_input=_images(result)
    )
    return result


def _window_mean(x: Array, out: Array | None = None, **attrs: Any) -> Array:
    pooling = _pooling(Windows(x.shape, **attrs), x)
    if pooling is None:
        return NotImplemented
    return _array(_aten.avg_pool2d(_images(x), *pooling, False, False), out)


def _window_mean_grad(shape: Array, grad: Array, out: Array | None = None, **attrs: Any) -> Array:
    sizes = tuple(shape.tolist())
    check_rank("Images", sizes)
    windows = Windows(sizes, **attrs)
    check_gradient(grad, windows, sizes[3])
    pooling = _pooling(windows, grad)
    if pooling is None:
        return NotImplemented
    result = np.empty(sizes, grad.dtype) if out is None else out
    _aten.avg_pool2d_backward.grad_input(
        _images(grad), _images(result), *pooling, False, False, None, grad_input=_images(result)
    )
    return result


def _product(a: Array, b: Array, out: Array | None = None) -> Array:
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2] or not _fits(a, b):
        return NotImplemented
    if b.shape[-1] * prod(a.shape) < _WORTH_IT:
        return NotImplemented
    if _onednn_linear is not None and a.ndim == b.ndim == 2 and a.dtype == np.float32:
        # On processors other than Intel's it takes half the time of torch.mm.
        x, weights = torch.from_numpy(a), torch.from_numpy(b).t()
        return _onednn_linear(x, weights, None, "none", [], "").numpy()
    if out is None:
        return torch.matmul(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    torch.matmul(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))
    return out


KERNELS: dict[str, Any] = {
    "convolve": _convolve,
    "filter_gradient": _filter_gradient,
    "input_gradient": _input_gradient,
    "window_max": _window_max,
    "window_max_grad": _window_max_grad,
    "window_mean": _window_mean,
    "window_mean_grad": _window_mean_grad,
    "product": _product,
}
