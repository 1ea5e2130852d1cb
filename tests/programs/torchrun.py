"""Ranks as ``torchrun`` starts them, forked from a process that has imported PyTorch.

The agent, its store, the environment of the ranks and their restarts are torchrun's. Of the 12 seconds
of a processor that two ranks take as interpreters, 10 are imports.
"""

from __future__ import annotations

import importlib
import signal
import sys
import traceback
from pathlib import Path

from tests import forked

_IMPORTED = ("torch.distributed.run", "torch.optim", "torch._dynamo", "tests.programs.torch_rank",
             "tests.programs.data_rank")  # fmt: skip


def torchrun(module: str, *arguments: object, ranks: int = 2, restarts: int = 0, code: int = 0) -> str:
    """Let ranks call ``run(*arguments)`` of a module; return their output and that of the agent."""
    done = forked.run(
        Path(__file__), str(ranks), str(restarts), module, *map(str, arguments),
        imported=_IMPORTED, merged=True,
        # A store that the attempts share still has the ports of the ranks before, which gloo may try.
        env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    return done.stdout


def rank(module: str, *arguments: str) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the handlers are the agent's
    try:
        importlib.import_module(module).run(*arguments)
    except BaseException:
        traceback.print_exc()  # the agent prints that of one rank
        raise


def main(ranks: str, restarts: str, *arguments: str) -> None:
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=int(ranks), run_id="test", max_restarts=int(restarts),
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork",
    )  # fmt: skip
    elastic_launch(config, rank)(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
