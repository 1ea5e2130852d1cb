"""Safetensors files from elsewhere, and ours in the hands of the safetensors library alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from asyncmon.checkpoint import (
    Saver,
    dtypes,
    init_from_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
    locations,
    verify,
)
from asyncmon.errors import DataLossError, NotFoundError

pytestmark = pytest.mark.asyncio

NAMES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NAMES += ["float16", "float32", "float64", "complex64", "complex128"]
ARRAYS: dict[str, Any] = {name: np.arange(-2, 10).reshape(3, 4).astype(name) for name in NAMES}
for foreign in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
    ARRAYS[foreign] = np.array([[1.5, -2, 0.25]], getattr(ml_dtypes, foreign))
ARRAYS["scalar"] = np.array(7.25)
ARRAYS["empty"] = np.zeros((2, 0), np.float32)
WEIGHTS = {name: array for name, array in ARRAYS.items() if name != "complex128"}


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    safetensors.numpy.save_file(WEIGHTS, path)
    return path


async def test_our_files_are_what_is_documented_and_the_library_alone_reads_them(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """Every byte of a file of all element types: length, header, padding, arrays without gaps."""
    await Saver().save(make_session(**ARRAYS), tmp_path / "model.ckpt", 5)
    manifest = json.loads(read(tmp_path / "model.ckpt-5.json"))
    assert [file["name"] for file in manifest["files"]] == ["model.ckpt-5.safetensors"]
    found: dict[str, Any] = {}
    for file in manifest["files"]:
        data = read(tmp_path / file["name"])
        assert len(data) == file["bytes"]
        size = int.from_bytes(data[:8], "little")
        assert (8 + size) % 64 == 0
        header = json.loads(data[8 : 8 + size])
        assert header.pop("__metadata__") == {
            "format": "asyncmon.checkpoint",
            "checkpoint": "model.ckpt-5",
        }
        offsets = sorted(entry["data_offsets"] for entry in header.values())
        assert [start for start, _ in offsets] == [0, *(end for _, end in offsets[:-1])]
        assert 8 + size + offsets[-1][1] == len(data)
        with safetensors.safe_open(tmp_path / file["name"], framework="np") as opened:
            assert set(opened.offset_keys()) == header.keys()
            assert opened.metadata()["checkpoint"] == "model.ckpt-5"
        found |= dict(safetensors.deserialize(data))
    assert found.keys() == ARRAYS.keys() == manifest["tensors"].keys()
    for name, array in ARRAYS.items():
        element = dtypes.element_named(name) if name in NAMES else dtypes.element_of(array.dtype)
        assert element is not None
        assert found[name]["dtype"] == element.tag
        assert tuple(found[name]["shape"]) == element.file_shape(array.shape)
        assert bytes(found[name]["data"]) == array.tobytes()


async def test_a_file_from_elsewhere_is_read_as_it_is(weights: Path) -> None:
    async with await load_checkpoint(weights) as reader:
        found = await reader.get_tensors()
        kinds = reader.get_variable_to_dtype_map()
        assert (await reader.states(), reader.facts.step) == ({}, None)
    assert found.keys() == WEIGHTS.keys()
    for name, array in WEIGHTS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name
        assert kinds[name] == array.dtype, name
        assert not found[name].flags.writeable
    assert ("empty", [2, 0]) in await list_variables(weights)
    assert await load_variable(weights, "scalar") == 7.25
    (one,) = await verify(weights)
    assert one.problem is None


async def test_it_is_restored_and_starts_others_warm(
    weights: Path, make_session: Callable[..., Any]
) -> None:
    session = make_session(scalar=0.0, mine=np.zeros((3, 4), np.float32))
    session.state_spec = lambda: dict(session.state)
    await Saver().restore(session, weights, rename={"float32": "mine"})
    assert session.state["scalar"] == 7.25
    np.testing.assert_array_equal(session.state["mine"], WEIGHTS["float32"])
    await init_from_checkpoint(session, weights, {"float32": "mine"})


async def test_it_lies_in_an_object_store_too(weights: Path) -> None:
    pytest.importorskip("obstore")
    locations.open_store("memory://plain/x").put({"w.safetensors": read(weights)})
    found = await load_variable("memory://plain/x/w.safetensors", "int16")
    np.testing.assert_array_equal(found, WEIGHTS["int16"])


async def test_without_ml_dtypes_a_bfloat16_is_float32(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safetensors.numpy.save_file({"w": WEIGHTS["bfloat16"]}, weights)
    monkeypatch.setattr(dtypes, "_foreign_dtypes", lambda: None)
    found = await load_variable(weights, "w")
    assert (found.dtype, found.tolist()) == (np.float32, [[1.5, -2, 0.25]])


async def test_what_is_wrong_is_said(weights: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = read(weights)
    write(weights, data[:-1])
    with pytest.raises(DataLossError, match="is no whole safetensors file"):
        await load_checkpoint(weights)
    async with await load_checkpoint(write(weights, data)) as reader:
        write(weights, data[:100])
        with pytest.raises(DataLossError, match="cannot be read"):
            await reader.get_tensors()
    with pytest.raises(NotFoundError, match="There is no checkpoint"):
        await load_checkpoint(weights.parent / "other.safetensors")
    header = b'{"w":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[0,1]}}'
    write(weights, len(header).to_bytes(8, "little") + header + b"x")
    assert await list_variables(weights) == []
    assert "skipping entries of unsupported dtypes: w" in caplog.text
