"""What the monitor says where an extra is not installed."""

from __future__ import annotations

import pytest

from tests import forked


@pytest.mark.parametrize(
    ("package", "name", "line"),
    [
        ("prometheus_client", "PrometheusMetrics", "pip install 'asyncmon[web]'"),
        ("opentelemetry", "trace", "pip install 'asyncmon[otel]'"),
        ("starlette", "create_app", "pip install 'asyncmon[web]'"),
        ("uvicorn", "serve", "pip install 'asyncmon[web]'"),
    ],
)
def test_what_is_missing_is_named(package: str, name: str, line: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None; import asyncmon, asyncmon.monitor\n"
        f"try: asyncmon.monitor.{name}\nexcept ImportError as error: print(error)"
    )
    child = forked.run("-c", code)
    assert line in child.stdout, child.stderr
