"""The fields of each request and their types: what a service checks before it uses any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from asyncmon.distributed.fingerprint import Fingerprint
from asyncmon.errors import InvalidArgumentError

T = TypeVar("T")

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Place = tuple[Count, Count | None]  # an operation, and one of its outputs


class _Open(Struct):
    version: Any  # which is compared first: another one may have other fields
    config: Any = None
    part: bool = False


class _Session(Struct):
    session: Count
    incarnation: str


class _Job(_Session):
    job: str
    sequence: Count
    answered: Count
    wait: Seconds


class _Run(_Job):
    plan: Count
    fed: list[Any]
    options: Any
    fetches: list[Place] = []
    feeds: list[tuple[Count, Count]] = []
    done: list[Count] = []
    closing_error: dict[str, Any] | None = None


class _Extend(_Job):
    graph: dict[str, Any]


class _Load(_Job):
    values: dict[str, Any]


class _OfSnapshot(_Job):
    snapshot: Count


class _Write(_OfSnapshot):
    path: str
    header: Any
    arrays: dict[str, Any]
    urgent: bool
    due: float | None


class _Resume(_Session):
    sequence: Count
    results: list[tuple[Count, dict[str, Any]]]
    wait: Seconds


class _Cancel(_Session):
    sequence: Count


class _Request(_Session):
    request: dict[str, Any]


class _Reset(Struct):
    containers: list[str]
    part: bool = False


class RunRequest(Struct):
    """A request to the record of a run: a method of :class:`.cluster_run.RunRecord`, its arguments."""

    method: str
    number: str | None = None
    name: str = ""
    task: str = ""
    directory: str = ""
    fingerprint: Fingerprint = Fingerprint(None, None)
    is_chief: bool = False
    wait: Seconds = 0.0
    restores: Count = 0
    others: Count | None = None
    before: int | None = None
    after: int | None = None
    step: int | None = None
    stop: dict[str, Any] = {}


_FIELDS: dict[str, type[Struct]] = {
    "open": _Open, "start": _Job, "resume": _Resume, "cancel": _Cancel, "queues": _Session,
    "attend": _Session, "cluster_run": _Request, "close": _Session, "reset": _Reset,
}  # fmt: skip
_OF_JOBS: dict[str, type[Struct]] = {
    "run": _Run, "peek": _Run, "extend": _Extend, "load": _Load, "write": _Write,
    "hurry": _OfSnapshot, "pull": _OfSnapshot, "release": _OfSnapshot,
}  # fmt: skip


def converted(content: Any, fields: type[T], what: str) -> T:
    """Return a request as a struct. InvalidArgumentError for a missing field or another type."""
    try:
        return msgspec.convert(content, fields)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(f"{what} is malformed: {error}.") from None


def check(content: Any) -> str:
    """Check the fields of a request, and return which one it is.

    Raises:
        InvalidArgumentError: an unknown request, or a field that is missing or of another type.
    """
    do = content.get("do") if isinstance(content, Mapping) else None
    fields = _FIELDS.get(do) if isinstance(do, str) else None
    if fields is None:
        raise InvalidArgumentError(f"There is no request {do!r}; expected one of {sorted(_FIELDS)}.")
    job = content.get("job")
    if fields is _Job and isinstance(job, str):
        fields = _OF_JOBS.get(job, _Job)
    found = converted(content, fields, f"The request {do!r}")
    if isinstance(found, _Job) and found.answered > found.sequence:
        raise InvalidArgumentError(
            f"Request {found.sequence} says that requests below {found.answered} were answered."
        )
    assert isinstance(do, str), "one of the names above"
    return do
