"""What can be a state, and that it goes into a checkpoint and back as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver
from asyncmon.errors import InvalidArgumentError
from asyncmon.programs import FunctionProgram

pytestmark = pytest.mark.asyncio

STATE: dict[str, Any] = {
    "odd": np.array([np.nan, -0.0, 1e-310, np.inf]),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "empty": np.zeros((0, 3)),
    "scalar": np.array(3.5),
    "big end": np.arange(3, dtype=">f4"),
    "half": np.array([1.5], np.float16),
    "bytes": np.arange(3, dtype=np.uint8),
    "truths": np.array([True, False]),
    "imaginary": np.array([1j], np.complex64),
    "text": np.array(["x", "yé"]),
    "int": -(2**63),
    "float": 0.1,
    "minus zero": -0.0,
    "no number": float("nan"),
    "bool": True,
    "complex": 1 + 2j,
    "layers": [{"w": np.ones(2), "b": 0.5}, {"w": np.zeros(3), "b": 1.5}],
    "nothing": {},
}


def equal_bits(one: Any, other: Any) -> bool:
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


async def test_a_state_is_restored_bit_for_bit(tmp_path: Path) -> None:
    def spoil(state: dict[str, Any]) -> None:
        for value in (*state.values(), *(layer["w"] for layer in state["layers"])):
            if isinstance(value, np.ndarray) and value.dtype.kind != "U":
                value[...] = 1
        state.update({"int": 3, "float": 4.0, "minus zero": 0.0, "bool": False, "text": ["", ""]})

    program = FunctionProgram(STATE, {"spoil": spoil})
    session, saver = program.create_session(), Saver()
    before = await session.snapshot()
    path = await saver.save(session, str(tmp_path / "model"))
    await session.run("spoil")
    assert not equal_bits((await session.snapshot())["odd"], before["odd"])
    await saver.restore(session, path)
    after = await session.snapshot()
    assert list(after) == list(before)
    assert [name for name in before if not equal_bits(before[name], after[name])] == []
    numbers = [type(await session.run(name)) for name in ("int", "float", "bool", "complex")]
    assert numbers == [int, float, bool, complex]
    assert await session.run("layers/1/b") == 1.5


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": 2**63}, r"state\['a'\] is 9223372036854775808; whole numbers .* fit into 64 bits"),
        ({"a": np.uint64(2**63)}, "fit into 64 bits"),
        ({"a": b"x"}, r"state\['a'\] is .*; state is made of arrays"),
        ({"a": np.datetime64("2020")}, "state is made of arrays"),
        ({"a": np.zeros(1, "M8[s]")}, r"an array of dtype datetime64\[s\], which checkpoints do not"),
        ({"a": [np.zeros(1, [("x", "f4")])]}, r"state\['a'\]\[0\] is an array of dtype"),
        ({"a": np.zeros(1, np.longdouble)}, "is an array of dtype"),
        ({"a": np.array([None])}, "is an array of dtype object"),
        ({"": 1}, "keys must not be empty"),
        ({"global_step": 1.5}, r"state\['global_step'\] counts steps: .* a whole number, got 1\.5"),
        ({"global_step": np.zeros(2, int)}, "must be a whole number"),
        ({"global_step": {}}, "must be a whole number"),
        ({"global_step": True}, "must be a whole number"),
    ],
)  # fmt: skip
async def test_what_no_checkpoint_could_hold_is_refused_at_once(
    state: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        FunctionProgram(state)


@pytest.mark.parametrize("step", [7, np.asarray(7), np.asarray(7, np.int32), np.int64(7)])
async def test_a_declared_global_step_is_any_whole_number(step: Any) -> None:
    assert FunctionProgram({"global_step": step}).create_session().global_step == 7


@pytest.mark.parametrize(
    ("left", "message"),
    [
        ({"n": 2**63}, r"state\['n'\] must fit into 64 bits, found 9223372036854775808"),
        ({"n": np.uint64(2**63)}, "must fit into 64 bits"),
        ({"w": [[1], [2, 3]]}, r"state\['w'\] cannot be made an array"),
        ({"n": "1"}, r"state\['n'\] must stay a int, found '1'"),
        ({"n": np.zeros(1)}, r"state\['n'\] must stay a int"),
    ],
)
async def test_what_a_step_left_is_named_where_it_does_not_fit(
    left: dict[str, Any], message: str
) -> None:
    program = FunctionProgram({"w": np.zeros(2), "n": 1}, {"s": lambda state: state.update(left)})
    with pytest.raises(TypeError, match=message):
        await program.create_session().run("s")


async def test_load_does_not_round_and_reports_all_at_once() -> None:
    declared = {"w": np.zeros(2, np.float32), "n": 1, "x": 1.0, "t": np.array(["ab"]), "b": True}
    session = FunctionProgram(declared).create_session()
    wrong = {
        "w": np.zeros(2), "n": np.asarray(1.5), "x": np.zeros(2), "t": np.array(["abc"]),
        "b": np.asarray(1), "z": 1, "global_step": np.asarray(0.5),
    }  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="Nothing was loaded") as caught:
        await session.load(wrong)
    for part in (
        "'w' has dtype float32, the value float64",
        "'n' has dtype int64, the value float64",
        "'x' has shape (), the value (2,)",
        "'t' has dtype <U2, the value <U3",
        "'b' has dtype bool, the value int64",
        "'z' is not an entry of the state",
        "'global_step' has dtype int64, the value float64",
    ):
        assert part in str(caught.value)
    await session.load({"w": [0.5, 2], "n": np.int32(4), "x": 3, "t": np.array(["c"]), "b": False})
    assert (await session.run("w")).tolist() == [0.5, 2]
    assert await session.run(["n", "x", "b"]) == [4, 3.0, False]
    assert (await session.run("t")).tolist() == ["c"]
