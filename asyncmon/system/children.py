"""Child processes with this Python: their start, the function that they import, and their ends."""

from __future__ import annotations

import asyncio
import importlib
import os
import runpy
import signal
import sys
import types
from functools import reduce
from typing import Any, NamedTuple

from asyncmon.system import portable


class Source(NamedTuple):
    """Where a child process finds a function."""

    module: str | None
    path: str | None
    """The file of a program, which has no name to import."""
    function: str
    arguments: list[str]
    """``sys.argv`` of this process, which the module may read."""


def source_of(fn: Any, instead: str = "") -> Source:
    """Return where a child process finds a function at the top level of a module.

    Args:
        fn: the function.
        instead: another remedy, for the message, after a comma.

    Raises:
        ValueError: it is inside of a function; its module is a notebook or an interactive one.
    """
    if "<" in fn.__qualname__:
        raise ValueError(
            f"{fn.__qualname__!r} is inside of a function, and a child process cannot import it. Move"
            f" it to the top level of its module{instead}."
        )
    if fn.__module__ != "__main__":
        return Source(fn.__module__, None, fn.__qualname__, sys.argv)
    module: Any = sys.modules["__main__"]
    spec = getattr(module, "__spec__", None)
    if spec is not None:  # python -m
        return Source(spec.name, None, fn.__qualname__, sys.argv)
    path = getattr(module, "__file__", None)
    if path is None:
        raise ValueError(
            f"{fn.__qualname__!r} is in no file that a child process can import. Move it to a"
            f" module{instead}."
        )
    return Source(None, os.path.abspath(path), fn.__qualname__, sys.argv)


def load(source: Source) -> Any:
    """Import a function, in the child process. Raises the errors of its module.

    Raises:
        RuntimeError: the module has raised SystemExit, as a parser of its command line does.
    """
    sys.argv = list(source.arguments)
    try:
        module = _imported(source)
    except SystemExit as error:
        raise RuntimeError(
            f"The module of {source.function!r} has ended the child process that imports it: {error!r}."
            ' Put what a program does into `if __name__ == "__main__":`.'
        ) from error
    return reduce(getattr, source.function.split("."), module)


def _imported(source: Source) -> Any:
    module: Any
    if source.path is not None:
        # As multiprocessing does, whose own children then find it: `__name__ == "__main__"` is false.
        module = types.ModuleType("__mp_main__")
        vars(module).update(runpy.run_path(source.path, run_name="__mp_main__"))
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    else:
        assert source.module is not None, "there is no file"
        module = importlib.import_module(source.module)
    return module


async def start(
    module: str, *arguments: str, descriptors: tuple[int, ...], **streams: Any
) -> asyncio.subprocess.Process:
    """Start ``python -m module`` in a session of its own.

    Args:
        module: finds the modules that this process finds.
        *arguments: of the command line.
        descriptors: are inherited.
        **streams: ``stdin`` is a pipe by default, ``stdout`` and ``stderr`` are those of this process.
    """
    streams.setdefault("stdin", asyncio.subprocess.PIPE)
    path = os.pathsep.join([part or "." for part in sys.path])
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", module, *arguments,
        env={**os.environ, "PYTHONPATH": path}, **streams,
        **portable.inherited(*descriptors),
    )  # fmt: skip


def how_it_ended(status: int) -> str:
    """Return the end of a process in words, for its ``returncode``."""
    if status >= 0:
        return f"has ended with the status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by the signal {-status}"
