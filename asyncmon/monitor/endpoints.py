"""The table of endpoints: their paths, handlers and parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from starlette.datastructures import QueryParams

from asyncmon.monitor.run import Action
from asyncmon.system.asgi import Failure

ACTIONS: tuple[str, ...] = (*get_args(Action), "verify")


class Parameter(NamedTuple):
    """A parameter of a query. ``read`` converts its text; None stands for a list of all texts."""

    name: str
    read: Callable[[str], Any] | None
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    handler: str
    query: tuple[Parameter, ...] = ()
    public: bool = False

    @property
    def route(self) -> str:
        """The path as it is routed: names of the page's files may have slashes."""
        return self.path.replace("{name}", "{name:path}")


def _integer(least: int = 0, most: int = 1 << 62) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"an integer from {least} to {most}")

    return read


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError("a number")
    return number


def _word(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text in words:
            return text
        raise ValueError(" or ".join(words))

    return read


_TAG = Parameter("tag", str)
_BINS = Parameter("bins", _integer(2, 200), 40)
_POINTS = (
    Parameter("tag", None),
    Parameter("after", _integer()),
    Parameter("max_points", _integer(8, 1_000_000), 2_000),
    Parameter("by", _word("step", "wall_time"), "step"),
    Parameter("low", _number),
    Parameter("high", _number),
    Parameter("reduce", _word("extremes", "mean"), "extremes"),
)
_RUN = "/api/runs/{run}"

ENDPOINTS = (
    Endpoint(path="/api/runs", handler="runs"),
    Endpoint(path=_RUN, handler="run"),
    Endpoint(path=f"{_RUN}/scalars", handler="scalars"),
    Endpoint(path=f"{_RUN}/scalars/points", handler="points", query=_POINTS),
    Endpoint(path=f"{_RUN}/media", handler="media"),
    Endpoint(path=f"{_RUN}/media/records", handler="records", query=(_TAG, _BINS)),
    Endpoint(path=f"{_RUN}/media/image", handler="image", query=(_TAG, Parameter("id", _integer()))),
    Endpoint(path="/api/table", handler="table", query=(Parameter("column", None),)),
    Endpoint(path=f"{_RUN}/log", handler="log", query=(Parameter("after", _integer(), 0),)),
    Endpoint(path="/api/events", handler="events", query=(Parameter("after", _integer()),)),
    Endpoint(method="POST", path=f"{_RUN}/hooks/{{hook}}/detach", handler="detach"),
    Endpoint(method="POST", path=f"{_RUN}/remove", handler="remove"),
    Endpoint(method="POST", path=f"{_RUN}/{{action}}", handler="act"),
    Endpoint(method="POST", path="/api/login", handler="login", public=True),
    Endpoint(path="/healthz", handler="healthz", public=True),
    Endpoint(path="/metrics", handler="metrics"),
    Endpoint(path="/", handler="page", public=True),
    Endpoint(path="/{name}", handler="page", public=True),
)


def read_query(endpoint: Endpoint, given: QueryParams) -> dict[str, Any]:
    """Return the parameters of a request by name, with the defaults of missing ones.

    Raises:
        Failure: a value does not fit.
    """
    return {
        name: given.getlist(name)
        if read is None
        else _read(name, read, given[name])
        if name in given
        else default
        for name, read, default in endpoint.query
    }


def _read(name: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as wanted:
        raise Failure(400, f"{name} must be {wanted}, not {text[:40]!r}.") from None
