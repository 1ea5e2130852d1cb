"""MODULE:NAME of the command line and of settings."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from asyncmon.system.usage_error import UsageError


def named(target: str) -> Any:
    """Import a module, also from the current directory, and return its object of this name.

    Raises:
        UsageError: the text is not MODULE:NAME, or there is no such module or name.
    """
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise UsageError(f"MODULE:FUNCTION is expected, training.digits:main, got {target!r}.")
    if "" not in sys.path:  # the script's directory comes first, unlike with `python -m`
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a module that it imports
        raise UsageError(f"There is no module {error.name!r} here nor in sys.path.") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(
                f"The module {module_name!r} has no {path!r}: {name!r} is missing."
            ) from None
    return found
