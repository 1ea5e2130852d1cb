"""Values as text, as the original writes them: ``[[1 2][3...]...]``."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["shown"]


def shown(value: Any, summarize: int) -> str:
    """Return the first elements of a value; all of them where ``summarize`` is negative."""
    array = np.asarray(value)
    limit = array.size if summarize < 0 else summarize
    elements = map(_element, islice(array.flat, limit))
    more = "..." if array.size > limit else ""
    if not array.ndim:
        return f"[{''.join(elements)}{more}]"
    return f"[{''.join(_rows(array.shape, elements, limit, 0))}{more}]"


def _rows(shape: tuple[int, ...], elements: Iterator[str], limit: int, start: int) -> Iterator[str]:
    """Yield what is seen of an array of this shape, the first element of which is the ``start``-th."""
    if len(shape) == 1:
        yield " ".join(islice(elements, shape[0]))
        return
    inner = int(np.prod(shape[1:]))
    for i in range(start, start + shape[0] * inner, inner or 1):
        if i >= limit:
            return
        yield "["
        yield from _rows(shape[1:], elements, limit, i)
        if len(shape) == 2 and i + inner > limit:
            yield "..."
        yield "]"


def _element(x: Any) -> str:
    if isinstance(x, bytes):
        return x.decode(errors="backslashreplace")
    if isinstance(x, bool | np.bool_):
        return str(int(x))
    if isinstance(x, np.floating):
        wide = x.dtype.itemsize == 8
        number = np.float64(x) if wide else np.float32(x)
        text = f"{number:.{15 if wide else 6}g}"
        return text if type(number)(text) == x or np.isnan(x) else f"{number:.{17 if wide else 9}g}"
    return str(x)
