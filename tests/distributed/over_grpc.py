"""Sessions that use gRPC though their server is of the same process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncmon as am

if TYPE_CHECKING:
    from collections.abc import Callable


def rpc_config(**options: Any) -> am.SessionConfig:
    """Return a config with these ``rpc_options``."""
    config = am.SessionConfig()
    config.rpc_options.use_rpc_for_inprocess_master = True
    config.rpc_options.timeout_secs = 60.0
    for name, value in options.items():
        setattr(config.rpc_options, name, value)
    return config


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop go on until that is true."""
    while True:
        if condition():
            return
        await asyncio.sleep(0)
