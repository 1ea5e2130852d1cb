"""The link from a session to the job that opens it, see ``asyncmon.jobs``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol


class JobLink(Protocol):
    """What a job does with the sessions that its code makes.

    Such a session acts on no signals, and the exit status of the process does not count its stops: the
    queue preempts jobs, and continues them.
    """

    record: Mapping[str, Any]
    """What the run record says of the job."""

    def hooks(self) -> Sequence[Any]:
        """Return the hooks of the job for one session, besides its own."""


current_job: ContextVar[JobLink | None] = ContextVar("asyncmon_job", default=None)
"""The job whose code runs now."""
