"""The table of endpoints: what is routed is what ``api/openapi.json`` describes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path."""

    method: str
    path: str
    handler: str
    summary: str
    answer: Any = None
    """The schema of the JSON answer; None where it is something else, of ``media_type``."""
    media_type: str = "application/json"
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    refusals: tuple[int, ...] = ()
    public: bool = False


ENDPOINTS = (
    Endpoint("GET", "/api/runs", "runs", "All runs."),
    Endpoint("GET", "/api/runs/{run}", "run", "A run."),
    Endpoint("GET", "/api/runs/{run}/scalars", "scalars", "Scalars."),
    Endpoint("GET", "/api/runs/{run}/scalars/points", "points", "Points."),
    Endpoint("GET", "/api/runs/{run}/log", "log", "Log."),
    Endpoint("GET", "/api/events", "events", "Events."),
    Endpoint("POST", "/api/runs/{run}/hooks/{hook}/detach", "detach", "Detach."),
    Endpoint("POST", "/api/runs/{run}/{action}", "act", "Act."),
    Endpoint("POST", "/api/login", "login", "Log in.", public=True),
    Endpoint("GET", "/healthz", "healthz", "Health.", public=True),
    Endpoint("GET", "/metrics", "metrics", "Metrics."),
    Endpoint("GET", "/", "page", "Page.", public=True),
    Endpoint("GET", "/{name:path}", "page", "Page.", public=True),
)
