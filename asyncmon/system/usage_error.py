"""The error of a command that was given wrong arguments."""

from __future__ import annotations


class UsageError(ValueError):
    """Wrong arguments, which only the command itself can judge. The exit status is 2."""
