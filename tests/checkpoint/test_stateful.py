"""StatefulRegistry: what travels beside the variables."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver, load_checkpoint
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.packing import pack, unpack


class Source:
    """A data source with a position and a generator."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


STATE = {
    "position": 17,
    "seed": 2**100,
    "rate": 0.1,
    "odd": [math.inf, -math.inf, 1 + 2j, None, True],
    "name": "d\u00fcr \ud800",
    "raw": b"\x00\xff",
    "pair": (1, [2, (3,)]),
    "by number": {1: "one", (2, 3): "pair", "__tuple__": "not one"},
    "array": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.float32(1.5),
    "words": np.array(["a", "bb"]),
    "a": {"b": np.zeros(1)},
    "a/b": np.ones(1),
    "rng": np.random.default_rng(3).bit_generator.state,
    "twister": np.random.RandomState(3).get_state(legacy=False),
}


def test_every_kind_of_state_survives_json() -> None:
    packed, arrays = pack("source", STATE)
    found = unpack(json.loads(json.dumps(packed, allow_nan=False)), arrays)
    assert found.keys() == STATE.keys()
    for name, value in STATE.items():
        np.testing.assert_equal(found[name], value, name)
        assert type(found[name]) is type(value)
    assert type(found["pair"][1][1]) is tuple
    assert math.isnan(unpack(pack("n", math.nan)[0], {}))
    found["array"][0, 0] = 9  # fresh and writable


def test_a_manifest_has_no_number_that_json_lacks() -> None:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} in a manifest")

    metrics = {"loss": math.nan, "gain": -math.inf}
    written = Manifest(metrics=metrics, stateful={"n": pack("n", math.inf)[0]}).encode()
    json.loads(written, parse_constant=refuse)
    found = Manifest.decode(written, "m.json")
    np.testing.assert_equal((dict(found.metrics), unpack(found.stateful["n"], {})), (metrics, math.inf))
    with pytest.raises(ValueError, match="not JSON compliant"):
        Manifest(wall_time=math.nan).encode()


def test_a_state_is_taken_by_value() -> None:
    state = {"list": [1], "array": np.zeros(2)}
    packed, arrays = pack("s", state)
    state["list"].append(2)
    state["array"][0] = 5
    found = unpack(packed, arrays)
    assert found["list"] == [1]
    assert found["array"].tolist() == [0, 0]


def test_a_read_only_array_with_memory_of_its_own_is_not_copied() -> None:
    own, seen = np.arange(3.0), np.arange(3.0)
    view = seen.view()
    for array in (own, view):
        array.flags.writeable = False
    _, arrays = pack("it", {"own": own, "view": view})
    seen[0] = 9  # through the array that the view is of
    assert arrays["__stateful__/it/own"] is own
    assert arrays["__stateful__/it/view"].tolist() == [0, 1, 2]


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(TypeError, match=r"a set at 'source/deep/1': \{1\}"):
        pack("source", {"deep": [0, {1}]})


@pytest.mark.asyncio
async def test_stateful_objects_are_saved_and_loaded(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    source, other = Source(STATE), Source({"n": np.arange(3)})
    saver.add_stateful("source", source)
    saver.add_stateful("source", source)
    saver.add_stateful("other", other)
    session = make_session(a=1.0)
    path = await saver.save(session, tmp_path / "m", 1)
    assert path is not None
    source.state = other.state = None
    await saver.restore(session, path)
    np.testing.assert_equal(source.state, STATE)
    assert other.state["n"].tolist() == [0, 1, 2]
    saver.remove_stateful("other")
    saver.remove_stateful("never there")

    late = Saver()
    assert await late.restore_latest(session, tmp_path) == path
    late.add_stateful("source", again := Source(None))  # comes aboard after the restore
    np.testing.assert_equal(again.state, STATE)


@pytest.mark.asyncio
async def test_the_state_is_that_of_the_call(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    """HK-CKPT: position and variables belong to one moment."""
    saver = Saver()
    source = Source([1])
    saver.add_stateful("source", source)
    handle = saver.start_save(make_session(a=1.0), tmp_path / "m", 1)
    source.state.append(2)
    await handle
    await saver.restore(make_session(a=1.0), tmp_path / "m-1")
    assert source.state == [1]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("has_states", "shares_state", "snapshots"), [(True, False, 2), (True, True, 1), (False, False, 1)]
)
async def test_a_snapshot_of_another_step_than_the_states_is_taken_again(
    tmp_path: Path,
    make_session: Callable[..., Any],
    has_states: bool,
    shares_state: bool,
    snapshots: int,
) -> None:
    """Unless there are no states, or other sessions move the step, too: they would never agree."""
    session = make_session(global_step=0)
    session.shares_state = shares_state
    session.global_step = 0
    source = Source(0)
    take = session.snapshot

    def snapshot() -> Any:
        """Take it after a step that is still running at the first call."""
        if not session.snapshots:
            session.step()
            asyncio.get_running_loop().call_soon(finish)
        return take()

    def finish() -> None:
        session.global_step = source.state = 1

    session.snapshot = snapshot
    saver = Saver()
    if has_states:
        saver.add_stateful("source", source)
    path = await saver.save(session, tmp_path / "m", 1)
    assert session.snapshots == session.released == snapshots
    async with await load_checkpoint(path) as reader:
        assert await reader.get_tensor("global_step") == 1
        assert await reader.states() == ({"source": snapshots - 1} if has_states else {})


@pytest.mark.asyncio
async def test_a_new_object_starts_again(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    path = await Saver().save(make_session(a=1.0), tmp_path / "m", 1)
    saver = Saver()
    saver.add_stateful("new", new := Source("untouched"))
    await saver.restore(make_session(a=0.0), path)
    assert new.state == "untouched"


def test_wrong_objects_are_refused() -> None:
    saver = Saver()
    with pytest.raises(TypeError, match="of type object does not"):
        saver.add_stateful("x", object())  # type: ignore[arg-type] # refused
    saver.add_stateful("x", Source(1))
    with pytest.raises(ValueError, match="another object of the name 'x'"):
        saver.add_stateful("x", Source(2))


def test_long_bytes_are_stored_as_an_array_and_come_back_as_bytes() -> None:
    state = {"short": b"x" * 10, "long": bytes(range(256)) * 100}
    packed, arrays = pack("one", state)
    assert [array.nbytes for array in arrays.values()] == [25_600]
    assert unpack(packed, arrays) == state


@pytest.mark.parametrize("number", [1, 0.5, float("inf"), 1 << 62])
def test_long_lists_of_numbers_are_stored_as_arrays_and_come_back_as_lists(number: Any) -> None:
    state = {"list": [number] * 1000, "tuple": (number,) * 1000}
    packed, arrays = pack("one", state)
    assert len(arrays) == 2
    back = unpack(packed, arrays)
    assert back == state
    assert type(back["list"][0]) is type(number)


@pytest.mark.parametrize("numbers", [[1, 0.5] * 500, [True] * 1000, [1 << 70] * 1000])
def test_long_lists_of_other_values_come_back_as_they_were(numbers: Any) -> None:
    packed, arrays = pack("one", numbers)
    assert not arrays
    assert [*map(repr, unpack(packed, arrays))] == [*map(repr, numbers)]
