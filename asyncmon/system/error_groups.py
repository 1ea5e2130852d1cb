"""Groups of exceptions."""

from __future__ import annotations


def is_only(error: BaseException | None, types: tuple[type[BaseException], ...]) -> bool:
    """Return whether an error is of some types, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, types):
        return all(is_only(one, types) for one in error.exceptions)
    return isinstance(error, types)
