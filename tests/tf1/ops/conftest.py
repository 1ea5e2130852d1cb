"""What tests of ops use."""

from tests.graph.conftest import ops as ops
