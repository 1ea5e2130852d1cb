"""The table of endpoints, the source of both the routes and ``api/openapi.json``."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from starlette.datastructures import QueryParams

from asyncmon.monitor import run
from asyncmon.monitor.guard import Failure
from asyncmon.monitor.media import LastRecord

ACTIONS: tuple[str, ...] = (*get_args(run.Action), "verify")

_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}
_FLAG = {"type": "boolean"}
_VALUE = {"oneOf": [_NUMBER, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]}
_NATURAL = {"type": "integer", "minimum": 0}
_PLAIN: dict[Any, dict[str, Any]] = {str: _TEXT, int: _INTEGER, float: _VALUE, bool: _FLAG}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members)}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def schema_of(annotation: Any) -> dict[str, Any]:
    """Return the schema of a type: a data class, a (named) tuple, a plain type, or one or None."""
    if annotation in _PLAIN:
        return dict(_PLAIN[annotation])
    if dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields"):  # a named tuple
        hints = get_type_hints(annotation)
        return _object(**{name: schema_of(hint) for name, hint in hints.items()})
    origin, given = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return {
            "oneOf": [*(schema_of(one) for one in given if one is not type(None)), {"type": "null"}]
        }
    if origin is tuple:
        return _list(schema_of(given[0]))
    assert origin is Literal, f"{annotation} has no schema"
    return {"type": "string", "enum": list(given)}


_STATUS = schema_of(run.Status)["properties"]
_ROW = _object(id=_TEXT, name=_TEXT, kind=schema_of(run.Kind), **_STATUS)
_DETAILS = _object(**_ROW["properties"], **schema_of(run.Details)["properties"])
_SERIES = _object(steps=_list(_INTEGER), values=_list(_VALUE), wall_times=_list(_NUMBER))
_POINT = _object(tag=_TEXT, points=_INTEGER, step=_INTEGER, value=_VALUE, wall_time=_NUMBER)
_LINE = _object(n=_INTEGER, time=_NUMBER, level=_TEXT, logger=_TEXT, text=_TEXT)
_MEDIA = schema_of(LastRecord)
_RECORD = {
    "type": "object",
    "properties": {
        "id": _INTEGER, "step": _INTEGER, "wall_time": _NUMBER, "counts": _list(_NUMBER),
        "text": _TEXT, "width": _INTEGER, "height": _INTEGER,
    },
    "required": ["id", "step", "wall_time"],
}  # fmt: skip
_CELLS = {"type": "object"}
_NODE = _object(name=_TEXT, op=_TEXT, kind=_TEXT, title=_TEXT, inputs=_list(_TEXT))
_DONE = _object(ok=_FLAG)
_CHECKPOINTS = {"checkpoints": _list(schema_of(run.CheckpointFacts)), "path": _TEXT}
_REASON = {"type": "object", "properties": {"reason": {"type": ["string", "null"]}}}
_ERROR = _object(error=_TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path. ``answer`` is a schema, or a media type where it is no JSON."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    handler: str
    summary: str
    answer: dict[str, Any] | str
    query: tuple[tuple[str, dict[str, Any], str], ...] = ()
    body: dict[str, Any] | None = None
    refusals: tuple[int, ...] = ()
    public: bool = False

    @property
    def route(self) -> str:
        """The path as it is routed: names of the page's files may have slashes."""
        return self.path.replace("{name}", "{name:path}")


_TAG = ("tag", _list(_TEXT), "1 to 200 tags; repeat the parameter")
_ONE_TAG = ("tag", _TEXT, "the tag")
_COLUMNS = ("column", _list(_TEXT), "up to 200 tags; repeat the parameter")
_BINS = (
    "bins",
    {"type": "integer", "minimum": 2, "maximum": 200, "default": 40},
    "of histograms",
)
_ID = ("id", _NATURAL, "the id of the record")
_AFTER = ("after", _NATURAL, "only points published after this cursor")
_MOST = (
    "max_points",
    {"type": "integer", "minimum": 8, "maximum": 1_000_000, "default": 2_000},
    "of each tag; beyond it, stretches are reduced",
)
_BY = (
    "by",
    {"type": "string", "enum": ["step", "wall_time"], "default": "step"},
    "the axis of low and high",
)
_LOW = ("low", _NUMBER, "leave out points below it")
_HIGH = ("high", _NUMBER, "leave out points above it")
_REDUCE = (
    "reduce",
    {"type": "string", "enum": ["extremes", "mean"], "default": "extremes"},
    "keep the minimum, the maximum and a NaN of each stretch, or its mean",
)
_LAST = ("after", _NATURAL, "the id of the last event that was received; a Last-Event-ID header wins")
_LINES = ("after", {**_NATURAL, "default": 0}, "the number from which on lines are wanted")

ENDPOINTS = (
    Endpoint(
        path="/api/runs", handler="runs", summary="All runs.", answer=_object(runs=_list(_ROW)),
    ),
    Endpoint(
        path="/api/runs/{run}", handler="run", answer=_DETAILS, refusals=(404,),
        summary="A run, its hooks, checkpoints, tasks, timers and queues.",
    ),
    Endpoint(
        path="/api/runs/{run}/scalars", handler="scalars", refusals=(404,),
        summary="The tags of a run, each with its last point.", answer=_object(tags=_list(_POINT)),
    ),
    Endpoint(
        path="/api/runs/{run}/scalars/points", handler="points", refusals=(400, 404),
        query=(_TAG, _AFTER, _MOST, _BY, _LOW, _HIGH, _REDUCE),
        summary="Points of some tags. `reset` says that `after` is too old, and all points are here.",
        answer=_object(
            cursor=_INTEGER, reset=_FLAG, series={"type": "object", "additionalProperties": _SERIES}
        ),
    ),
    Endpoint(
        path="/api/runs/{run}/media", handler="media", refusals=(404,),
        summary="The histograms, images and texts of a run, each with its last record.",
        answer=_object(tags=_list(_MEDIA)),
    ),
    Endpoint(
        path="/api/runs/{run}/media/records", handler="records", refusals=(400, 404),
        query=(_ONE_TAG, _BINS),
        summary="The records of one tag. Histograms have counts in bins from `low` to `high`.",
        answer={
            "type": "object",
            "properties": {
                "kind": {"type": "string", "enum": ["histogram", "image", "text"]},
                "low": _VALUE, "high": _VALUE, "records": _list(_RECORD),
            },
            "required": ["kind", "records"],
        },
    ),
    Endpoint(
        path="/api/runs/{run}/media/image", handler="image", refusals=(400, 404),
        query=(_ONE_TAG, _ID), summary="An image, as it was encoded.", answer="image/*",
    ),
    Endpoint(
        path="/api/table", handler="table", query=(_COLUMNS,), refusals=(400,),
        summary="The configuration of each run, and the last values of some tags.",
        answer=_object(runs=_list(_object(id=_TEXT, config=_CELLS, last=_CELLS))),
    ),
    Endpoint(
        path="/api/runs/{run}/graph", handler="graph", refusals=(404,),
        summary="The nodes of the graph, none before the session is open.",
        answer=_object(nodes=_list(_NODE)),
    ),
    Endpoint(
        path="/api/runs/{run}/log", handler="log", query=(_LINES,), refusals=(400, 404),
        summary="The last log lines of the process that trains, where it is this one.",
        answer=_object(next=_INTEGER, lines=_list(_LINE)),
    ),
    Endpoint(
        path="/api/events", handler="events", query=(_LAST,), answer="text/event-stream",
        refusals=(400, 503),
        summary="Server-sent events: `runs`, `status`, `scalars`, `log`, and `reset` where the events "
        "after the last one are gone. The stream ends after a minute; clients come back.",
    ),
    Endpoint(
        method="POST", path="/api/runs/{run}/hooks/{hook}/detach", handler="detach", answer=_DONE,
        body=_REASON, refusals=(400, 404, 409, 413), summary="Detach a hook.",
    ),
    Endpoint(
        method="POST", path="/api/runs/{run}/{action}", handler="act", body=_REASON,
        refusals=(400, 404, 409, 413),
        summary=f"One of {', '.join(ACTIONS)}. 409 says why it cannot be done.",
        answer={"type": "object", "properties": {"ok": _FLAG, **_CHECKPOINTS}, "required": ["ok"]},
    ),
    Endpoint(
        method="POST", path="/api/login", handler="login", body=_object(token=_TEXT), public=True,
        refusals=(400, 413), summary="Get a cookie for the token.", answer=_DONE,
    ),
    Endpoint(
        path="/api/openapi.json", handler="openapi", public=True, summary="This description.",
        answer={"type": "object"},
    ),
    Endpoint(
        path="/healthz", handler="healthz", public=True, summary="Whether the server answers.",
        answer=_DONE,
    ),
    Endpoint(
        path="/metrics", handler="metrics", summary="Metrics for Prometheus.", answer="text/plain",
        refusals=(404,),
    ),
    Endpoint(path="/", handler="page", public=True, summary="The page.", answer="text/html"),
    Endpoint(
        path="/{name}", handler="page", public=True, summary="A file of the page.", answer="*/*",
        refusals=(404,),
    ),
)  # fmt: skip


def read_query(endpoint: Endpoint, given: QueryParams) -> dict[str, Any]:
    """Return the parameters of a request as their schemas declare them; None for a missing one.

    Raises:
        Failure: a value does not fit.
    """
    return {
        name: given.getlist(name)
        if schema["type"] == "array"
        else _read(name, schema, given[name])
        if name in given
        else schema.get("default")
        for name, schema, _ in endpoint.query
    }


def _read(name: str, schema: dict[str, Any], text: str) -> Any:
    if schema["type"] == "integer":
        least, most = schema["minimum"], schema.get("maximum", 1 << 62)
        if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
            return int(text)
        wanted = f"an integer from {least} to {most}"
    elif schema["type"] == "number":
        with contextlib.suppress(ValueError):
            if not math.isnan(number := float(text)):
                return number
        wanted = "a number"
    elif text in schema.get("enum", [text]):
        return text
    else:
        wanted = " or ".join(schema["enum"])
    raise Failure(400, f"{name} must be {wanted}, not {text[:40]!r}.")


def openapi(version: str) -> dict[str, Any]:
    """Return the description of the API, by OpenAPI 3.1. Paths are relative to where it is mounted."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "asyncmon monitor", "version": version},
        "servers": [{"url": ".."}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "login": {"type": "apiKey", "in": "cookie", "name": "asyncmon-monitor-PORT"},
            }
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    schemas = {"action": {"type": "string", "enum": list(ACTIONS)}}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schemas.get(name, _TEXT)}
        for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "required": name == "tag", "schema": schema, "description": text}
        for name, schema, text in endpoint.query
    ]
    if isinstance(endpoint.answer, str):
        content = {endpoint.answer: {"schema": _TEXT}}
    else:
        content = {"application/json": {"schema": endpoint.answer}}
    refusals = {403, *endpoint.refusals}
    refusals |= set() if endpoint.public and endpoint.handler != "login" else {401}
    refusals |= {429} if endpoint.method == "POST" else set()
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "done", "content": content},
            **{
                str(status): {
                    "description": "a sentence that says why",
                    "content": {"application/json": {"schema": _ERROR}},
                }
                for status in sorted(refusals)
            },
        },
        "security": [{}] if endpoint.public else [{"token": []}, {"login": []}, {}],
    }
    if endpoint.body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": endpoint.body}}}
    return found
