"""The command ``export``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from asyncmon.cli.main import main


def test_a_model_is_written_and_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file({"fc.weight": np.eye(2, dtype=np.float32)}, tmp_path / "model.safetensors")
    out = tmp_path / "out" / "copy.safetensors"
    assert main(["export", str(tmp_path), str(out)]) == 0
    assert capsys.readouterr().out == f"1 entries in {out}\n"
    assert load_file(out)["fc.weight"].tolist() == [[1, 0], [0, 1]]
    for given, text in (
        ([tmp_path / "nowhere", out], "There is no checkpoint"),
        ([tmp_path, tmp_path / "model.bin"], "must end with .safetensors, .pt or .pth"),
        ([tmp_path, out, "--ema"], "has no moving averages of"),
        ([tmp_path, out, "--name", "net"], "give the module alone, without the name 'net'"),
    ):
        assert main(["export", *map(str, given)]) == 1
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1
