"""Saving and restoring through the saver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

from asyncmon.checkpoint import Saver, latest_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.asyncio


async def test_sa_1_a_save_returns_the_prefix_with_the_step(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    session = make_session(w=np.arange(6.0).reshape(2, 3), global_step=7)
    saver = Saver()
    path = await saver.save(session, tmp_path / "model.ckpt", global_step=7)
    assert path == str(tmp_path / "model.ckpt-7")
    assert names_in(tmp_path) == {"checkpoint", "model.ckpt-7.json", "model.ckpt-7.safetensors"}
    assert await latest_checkpoint(tmp_path) == path

    session.step()
    await saver.restore(session, path)
    np.testing.assert_array_equal(session.state["w"], np.arange(6.0).reshape(2, 3))
    assert session.state["global_step"] == 7
    assert session.released == session.snapshots
    await saver.close()
    manifest = json.loads((tmp_path / "model.ckpt-7.json").read_text())
    assert manifest["step"] == 7
    loaded = safetensors.numpy.load_file(tmp_path / manifest["files"][0]["name"])
    np.testing.assert_array_equal(loaded["w"], np.arange(6.0).reshape(2, 3))
