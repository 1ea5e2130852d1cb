"""TF1: ``tf.flags``: command-line flags, parsed by absl.

The names are those of ``absl.flags``, imported at the first use: ``DEFINE_string``, ``DEFINE_integer``,
``mark_flag_as_required``, ``FLAGS``, ... Without ``pip install 'asyncmon[tf1]'`` the first use raises
ImportError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from asyncmon.system.missing_names import missing_name
from asyncmon.system.notebook import program_arguments
from asyncmon.tf1.names import ROOMS

# The arguments of DEFINE_... in the first releases of TF1.
_RENAMED = {"flag_name": "name", "default_value": "default", "docstring": "help"}


class _Flags:
    """``tf.flags.FLAGS``: the values of all flags, by name.

    The first access to a value parses ``sys.argv``, unless ``tf.app.run`` did; not in a notebook, whose
    arguments are the kernel's. absl.flags.Error for undefined flags or wrong values.
    """

    def __init__(self, values: Any) -> None:
        self.__dict__["_values"] = values

    def _parse_flags(self) -> None:
        """Parse ``sys.argv``. Programs of TF1 before 1.5 call it."""
        self._values(program_arguments())

    def __getattr__(self, name: str) -> Any:
        if name in self._values and not self._values.is_parsed():
            self._parse_flags()
        return getattr(self._values, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._values, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._values, name)


def _delegated(method: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: getattr(self._values, method)(*args, **kwargs)


for _method in ("call", "getitem", "setitem", "contains", "iter", "len", "dir", "str"):
    setattr(_Flags, f"__{_method}__", _delegated(f"__{_method}__"))


def _with_old_names(define: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(define)
    def defined(*args: Any, **kwargs: Any) -> Any:
        return define(*args, **{_RENAMED.get(name, name): value for name, value in kwargs.items()})

    return defined


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        from absl import flags as absl
    except ImportError as error:
        raise ImportError(f"tf.flags.{name} needs absl: pip install 'asyncmon[tf1]'") from error
    if not hasattr(absl, name):
        raise missing_name(__name__, name, ["flags."], dir(absl), ROOMS)
    value = getattr(absl, name)
    if name == "FLAGS":
        value = _Flags(value)
    elif name.startswith("DEFINE_"):
        absl.disclaim_key_flags()  # flags belong to the calling module
        value = _with_old_names(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    try:
        from absl import flags as absl
    except ImportError:
        return []
    return [
        name
        for name, value in vars(absl).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
