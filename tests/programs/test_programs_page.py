"""What docs/programs.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.testing import check_program

pytestmark = [pytest.mark.asyncio]

PAGE = (Path(__file__).parents[2] / "docs" / "programs.md").read_text()


def page() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    return names


async def test_the_functions_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = page()
    await names["main"]()
    assert capsys.readouterr().out.startswith("{'norm': 1.9")
    await names["main_there"]()
    assert capsys.readouterr().out == "10 model-7\n"


async def test_the_factory_keeps_the_contract(tmp_path: Path) -> None:
    names = page()
    await check_program(names["factory"], directory=tmp_path / "cases")
    await names["test_the_contract"]()


class Variable:
    """As those of Keras."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    def numpy(self) -> Any:
        return self.value

    def assign(self, value: Any) -> None:
        self.value = np.array(value)


class KerasLike:
    """The members of a compiled Keras model that the page uses: a line, by momentum."""

    def __init__(self) -> None:
        self.optimizer = self
        self.variables = [Variable(0), Variable(np.zeros(2))]
        self.weights = np.zeros(2)

    def get_weights(self) -> Any:
        return [self.weights]

    def set_weights(self, weights: Any) -> None:
        self.weights = weights[0].copy()

    def test_on_batch(self, x: Any, y: Any, return_dict: bool) -> dict[str, float]:
        return {"loss": float(np.square(x @ self.weights - y).mean())}

    def train_on_batch(self, x: Any, y: Any, return_dict: bool) -> dict[str, float]:
        loss = self.test_on_batch(x, y, return_dict)
        count, momentum = self.variables
        count.assign(count.numpy() + 1)
        momentum.assign(0.9 * momentum.numpy() + x.T @ (x @ self.weights - y))
        self.weights -= 0.01 * momentum.numpy()
        return loss


async def test_an_object_in_the_style_of_keras_resumes_exactly(tmp_path: Path) -> None:
    names = page()

    def factory() -> Any:
        return names["ProgramCase"](
            program=names["KerasProgram"](KerasLike()).program,
            step="train", loss="loss", entry="model/0",
            feeds=lambda number: {"x": np.eye(2) * (number + 1), "y": np.ones(2)},
        )  # fmt: skip

    await check_program(factory, directory=tmp_path)
