"""A small Ray cluster of a process of its own, and what to do with its actors."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

os.environ.update(  # Ray reads the token once
    RAY_AUTH_MODE="token",
    RAY_AUTH_TOKEN=secrets.token_hex(32),
    RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",
    RAY_SCHEDULER_EVENTS="0",  # or a demand that waits is said to every process of the cluster
    RAY_USAGE_STATS_ENABLED="0",
)
ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install 'asyncmon[cluster]'")

HEAD = """
import sys, ray

ray.init(
    "local", num_cpus=4, object_store_memory=120 << 20, include_dashboard=False, log_to_driver=False,
    _temp_dir=sys.argv[1],
)
control = ray._private.worker._global_node.all_processes["gcs_server"][0].process.pid
print(ray.get_runtime_context().gcs_address, control, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def cluster(**environment: str) -> Iterator[tuple[str, str]]:
    """Run a cluster. Gives its address and the process that controls it. It ends with the block."""
    directory = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets must be short
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD, directory],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | environment,
    )  # fmt: skip
    assert head.stdin is not None
    assert head.stdout is not None
    try:
        address, control = head.stdout.readline().split()
        yield address, control
    finally:
        head.stdin.close()
        try:
            head.wait(30)
        finally:
            head.kill()
            head.wait()
            head.stdout.close()
            shutil.rmtree(directory, ignore_errors=True)


def actor_pid(actor: Any) -> int:
    """Return the process of an actor."""
    pid: int = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    return pid
