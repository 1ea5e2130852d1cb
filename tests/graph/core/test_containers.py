"""Containers of variables and queues."""

from __future__ import annotations

import pytest

from asyncmon import graph


def test_containers_nest_and_end() -> None:
    with graph.Graph().as_default() as g:
        with g.container("a") as name, graph.container(""):
            default = graph.Variable(1.0)
        with graph.container("a"), g.container("localhost"):
            local = graph.Variable(1.0)
        with graph.container("a"), graph.container("b"):
            inner = graph.get_variable("x", [])
        with pytest.raises(TypeError, match="must be a string"), g.container(None):  # type: ignore[arg-type]  # refused
            pass
    assert name == "a"
    assert "container" not in {**default.op.attrs, **local.op.attrs}
    assert inner.op.attrs["container"] == "b"
