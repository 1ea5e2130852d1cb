"""A step gets a dict that copies its entries when they are first read."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncmon.programs import FunctionProgram
from asyncmon.programs.function_session import CopyOnAccess


def state() -> dict[str, Any]:
    nested: dict[str, Any] = {"b": np.ones(2), "list": [np.zeros(1), 5]}
    tree: dict[str, Any] = {"w": np.arange(3.0), "n": 1, "nested": nested}
    for array in (tree["w"], tree["nested"]["b"], tree["nested"]["list"][0]):
        array.flags.writeable = False
    return tree


WAYS: dict[str, Callable[[CopyOnAccess], dict[str, Any]]] = {
    "[]": lambda borrowed: {key: borrowed[key] for key in borrowed},
    "get": lambda borrowed: {key: borrowed.get(key) for key in borrowed},
    "items": lambda borrowed: {key: value for key, value in borrowed.items()},  # noqa: C416
    "values": lambda borrowed: dict(zip(borrowed, borrowed.values(), strict=True)),
    "dict": dict,
    "**": lambda borrowed: {**borrowed},
    "as arguments": lambda borrowed: (lambda **entries: entries)(**borrowed),
    "update": lambda borrowed: (into := {}, into.update(borrowed))[0],  # type: ignore[var-annotated]  # a lambda
    "copy": lambda borrowed: borrowed.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda borrowed: pickle.loads(pickle.dumps(borrowed)),
    "|": lambda borrowed: borrowed | {},
    "right |": lambda borrowed: {} | borrowed,
    "setdefault": lambda borrowed: {key: borrowed.setdefault(key) for key in borrowed},
    "pop": lambda borrowed: {key: borrowed.pop(key) for key in list(borrowed)},
    "popitem": lambda borrowed: dict(borrowed.popitem() for _ in range(len(borrowed))),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_requested_may_be_changed_and_the_state_stays(way: str) -> None:
    before = state()
    got = WAYS[way](CopyOnAccess(before))
    got["w"] += 1
    got["nested"]["b"] *= 5
    got["nested"]["list"][0] -= 1
    got["nested"]["list"].append(6)
    got["nested"]["new"] = 7
    assert got["w"].tolist() == [1, 2, 3]
    assert (got["n"], type(got["nested"]), type(got["nested"]["list"])) == (1, dict, list)
    assert before["w"].tolist() == [0, 1, 2]
    assert before["nested"]["b"].tolist() == [1, 1]
    assert before["nested"]["list"][1:] == [5]
    assert before["nested"]["list"][0].tolist() == [0]
    assert list(before["nested"]) == ["b", "list"]


def test_an_entry_is_copied_once_and_one_not_requested_never() -> None:
    before = state()
    borrowed = CopyOnAccess(before)
    assert borrowed["w"] is borrowed["w"] is not before["w"]
    assert set(borrowed.copies) == {id(borrowed["w"])}
    left = borrowed.current()
    assert left["nested"] is before["nested"]
    assert left["w"] is borrowed["w"]


def test_what_was_put_there_is_got_back() -> None:
    borrowed, own = CopyOnAccess(state()), np.zeros(3)
    borrowed["w"] = own
    borrowed["nested"] = own
    assert borrowed["w"] is borrowed["nested"] is own
    assert borrowed.get("nowhere", 3) == 3
    assert borrowed.pop("nowhere", 4) == 4
    with pytest.raises(KeyError):
        borrowed.pop("nowhere")
    with pytest.raises(KeyError):
        borrowed["nowhere"]
    with pytest.raises(KeyError):
        CopyOnAccess({}).popitem()
    with pytest.raises(TypeError):
        borrowed | 3
    assert json.dumps(CopyOnAccess({"a": {"b": [1]}})) == '{"a": {"b": [1]}}'


@pytest.mark.asyncio
async def test_entries_that_no_step_requests_stay_the_same_arrays() -> None:
    def step(state: dict[str, Any]) -> None:
        state["n"] += 1

    session = FunctionProgram({"w": np.zeros(3), "n": 0}, {"step": step}).create_session()
    before = (await session.snapshot())["w"]
    await session.run("step")
    after = await session.snapshot()
    assert np.shares_memory(before, after["w"])
    assert after["n"] == 1
