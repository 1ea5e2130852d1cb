"""The rows of ``docs/benchmarks.md``: the decision that each guards, and why one misses its limit."""

from __future__ import annotations

from typing import NamedTuple


class Guard(NamedTuple):
    """What a row is for.

    Attributes:
        decision: that the row guards.
        why: the reason why it misses its limit, where it does.
        quick: whether ``--quick`` measures it.
    """

    decision: str
    why: str = ""
    quick: bool = False


ROWS: dict[str, dict[str, Guard]] = {
    "step_overhead": {
        "none": Guard("a session without hooks makes a run without a coroutine", quick=True),
        "silent": Guard("a method that is not overridden costs nothing"),
        "fetching": Guard("coroutines as hooks", "six coroutines, a lock, a context", quick=True),
        "default": Guard("idle hooks are not called", "as five hooks that fetch", quick=True),
        "function": Guard("a program is any awaitable", "a lock, a scope, a budget", quick=True),
        "sessions": Guard(
            "a service has a session for each customer", "70 KB a session, 58 in an earlier version"
        ),
        "lag": Guard("a loop of short steps lets others run each millisecond", "2.6 to 6 % by machine"),
    },
    "engine": {
        "scalar": Guard("plans, no interpreter", quick=True),
        "mlp-small": Guard("kernels are chosen by the plan", "1.19 on another machine", quick=True),
        "mlp-784-128": Guard("numpy's products are not copied", "1.04 on another machine", quick=True),
        "mlp-784-512": Guard("steps use both cores", "within 1 %"),
        "conv": Guard("numpy without a library of kernels", quick=True),
        "torch-conv": Guard("kernels='auto' takes PyTorch's", "element-wise functions are numpy's"),
        "first-run": Guard("a plan is made at the first run"),
        "memory-flat": Guard("a step leaves nothing behind"),
        "lag-mlp": Guard("long steps run in a thread"),
        "peek": Guard("a peek waits for no step", "waits for a kernel that has the core", quick=True),
    },
    "mechanisms": {
        "arena": Guard("a plan owns its memory", quick=True),
        "groups": Guard("updates of many variables are one", quick=True),
        "no-task": Guard("awaited ops are tried without a task", quick=True),
    },
    "queues": {
        "round-trip": Guard("queues without threads", quick=True),
        "shuffle_batch": Guard(
            "queue runners are tasks", "one core for all; TF1's threads use two", quick=True
        ),
        "wake": Guard("a waiting step resumes in the loop"),
    },
    "jobs": {
        "submit": Guard("the queue is one SQLite file", quick=True),
        "list": Guard("pages are read by number", quick=True),
    },
    "checkpoint": {
        "checkpoint": Guard(
            "checksums, copies on write in threads", "1.0 to 2.3 ms when run alone", quick=True
        ),
    },
    "checkpoint_steps": {
        "checkpoint_steps": Guard(
            "saves yield the cores to steps", "three of five sessions; two have 1.2", quick=True
        ),
    },
    "replay": {
        "1GB": Guard("unchanged parts are written once", "1.2 to 5.4 ms from run to run"),
    },
    "rollouts": {
        "environments": Guard("places of elements are kept", quick=True),
        "groups": Guard("ages are limited at the run", quick=True),
    },
    "programs": {
        "function": Guard("a step is a transaction", "copies on access, and a check", quick=True),
        "jax": Guard("steps in a thread", "a core that slept has to wake"),
        "torch_lag": Guard("steps in a thread"),
        "torch_peers_200us": Guard("default hooks of each"),
        "torch_peers_1ms": Guard("default hooks of each", "a thread for each step"),
        "torch_peers_10ms": Guard("default hooks of each", "a thread for each step"),
    },
    "service": {
        "in-process": Guard("training in the process of a service", "two threads on two cores"),
        "local": Guard("training in a child process", "clients, service and training on two cores"),
        "by-hand": Guard("a service by hand is no better"),
    },
    "cluster": {
        "scalar": Guard("one call of gRPC for each run", "encoding, and a task on the server"),
        "clients": Guard("one call of gRPC for each run", "encoding, and a task on the server"),
    },
    "scale": {
        name: Guard("", quick=name in ("hooks", "nodes", "variables"))
        for name in ("hooks", "sessions", "nodes", "variables", "state", "workers")
    },
}
"""The rows of each script. The curves of ``scale`` are drawn, and listed apart."""
