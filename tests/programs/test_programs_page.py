"""An object in the style of Keras, run by the class that docs/programs.md shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.programs import FunctionProgram
from asyncmon.testing import ProgramCase, check_program
from tests.doc_page import programs

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"


def shown_class() -> Any:
    names: dict[str, Any] = {"FunctionProgram": FunctionProgram}
    (block,) = (one for one in programs(PAGE)[0] if "class KerasProgram" in one.text)
    exec(block.text, names)
    return names["KerasProgram"]


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


@pytest.mark.asyncio
async def test_an_object_in_the_style_of_keras_resumes_exactly(tmp_path: Path) -> None:
    keras_program = shown_class()

    def factory() -> Any:
        return ProgramCase(
            program=keras_program(KerasLike()).program,
            step="train", loss="loss", entry="model/0",
            feeds=lambda number: {"x": np.eye(2) * (number + 1), "y": np.ones(2)},
        )  # fmt: skip

    await check_program(factory, checkpoint_dir=tmp_path)
