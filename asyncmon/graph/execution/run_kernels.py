"""The kernels of runs: context managers around their computation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec

from asyncmon.graph.numerics.blas import single_threaded_blas
from asyncmon.graph.numerics.parallel import CORES, split_products
from asyncmon.session_config import SessionConfig

logger = logging.getLogger(__name__)

Context = Callable[[], AbstractContextManager[None]]


def around_runs(config: SessionConfig) -> tuple[Context | None, Context]:
    """Return the context managers of a run's computation, without and with large products.

    Raises:
        ImportError: the config selects torch's kernels, and torch is not installed.
    """
    threads = config.intra_op_parallelism_threads
    light = single_threaded_blas if threads else None  # else BLAS may use more threads than the session
    is_auto = config.kernels == "auto"
    if config.kernels == "numpy" or (is_auto and find_spec("torch") is None):
        return light, split_products
    try:
        kernels = import_module("asyncmon.graph.numerics.torch_kernels")
    except ImportError as error:
        raise ImportError("kernels='torch' needs PyTorch: pip install 'asyncmon[torch]'") from error
    around = partial(kernels.torch_kernels, threads or CORES)
    if is_auto:
        _log_once("kernels='auto': runs with large products or convolutions use PyTorch's kernels.")
        return light, around
    return around, around


@cache
def _log_once(text: str) -> None:
    logger.info(text)
