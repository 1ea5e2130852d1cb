"""Every kind of array goes into a checkpoint and comes back the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from asyncmon.checkpoint import Saver, dtypes, load_checkpoint

pytestmark = pytest.mark.asyncio

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS += ["float16", "float32", "float64"]
ARRAYS = {
    **{name: np.arange(-3, 9).reshape(3, 4).astype(name) for name in NUMBERS},
    "bool": np.array([True, False, True]),
    "complex64": np.array([1 + 2j, -3.5j], np.complex64),
    "complex128": np.array([[1 + 2j, -3.5j]], np.complex128),
    "bfloat16": np.array([1.5, -2, 3e38], ml_dtypes.bfloat16),
    "float8": np.array([1.5, -2, 0.25], ml_dtypes.float8_e4m3fn),
    "float8b": np.array([1.5, -2, 0.25], ml_dtypes.float8_e5m2),
    "special": np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
    "scalar": np.array(7.25),
    "empty": np.zeros((0, 3), np.float32),
    "big-endian": np.arange(6, dtype=">i4").reshape(2, 3),
    "big-endian scalar": np.array(3, dtype=">f8"),
    "transposed": np.arange(12.0).reshape(3, 4).T,
    "strided": np.arange(24.0).reshape(4, 6)[::2, ::3],
    "reversed": np.arange(10)[::-1],
    "fortran": np.asfortranarray(np.arange(60.0).reshape(3, 4, 5)),
    "broadcast": np.broadcast_to(np.arange(3.0), (4, 3)),
    "objects": np.array([["a", b"\x00\xff"], ["", "\u00fc\n"]], object),
    "text": np.array(["one", "three"]),
    "bytes": np.array([b"x", b"yz"]),
    "text scalar": np.array("alone"),
    "no text": np.array([], object),
    'a/name with " and \u00fc': np.arange(3),
}


async def test_every_array_comes_back_bit_for_bit(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    session = make_session(**ARRAYS)
    path = await Saver().save(session, tmp_path / "model.ckpt", 1)
    async with await load_checkpoint(path) as reader:
        found = await reader.get_tensors()
        assert reader.get_variable_to_shape_map() == {n: list(a.shape) for n, a in ARRAYS.items()}
        kinds = reader.get_variable_to_dtype_map()
    for name, array in ARRAYS.items():
        assert found[name].shape == array.shape, name
        assert found[name].dtype == array.dtype.newbyteorder("="), name
        assert kinds[name] == found[name].dtype, name
        same = array.astype(array.dtype.newbyteorder("="))
        assert found[name].tolist() == array.tolist() or found[name].tobytes() == same.tobytes(), name
        assert not found[name].flags.writeable or array.dtype.kind in "OUS", name


async def test_the_manifest_says_where_each_array_lies(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    await Saver().save(make_session(w=np.arange(5.0), n=np.int8(3)), tmp_path / "model.ckpt", 1)
    manifest = json.loads(read(tmp_path / "model.ckpt-1.json"))
    data = read(tmp_path / "model.ckpt-1.safetensors")
    start, end = manifest["tensors"]["w"]["data_offsets"]
    assert start % 64 == 0
    assert data[start:end] == np.arange(5.0).tobytes()
    assert data[end:] == b"\x03"
    assert (manifest["format"], manifest["version"]) == ("asyncmon.checkpoint", 1)


async def test_without_ml_dtypes_a_bfloat16_is_read_as_float32(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(b=ARRAYS["bfloat16"])
    path = await Saver().save(session, tmp_path / "model.ckpt", 1)
    monkeypatch.setattr(dtypes, "_foreign_dtypes", lambda: None)
    async with await load_checkpoint(path) as reader:
        found = await reader.get_tensor("b")
        assert reader.get_variable_to_dtype_map()["b"] == np.float32
    assert found.dtype == np.float32
    assert found.tolist() == ARRAYS["bfloat16"].astype(np.float32).tolist()
    with pytest.raises(ImportError, match="pip install ml-dtypes"):
        dtypes.numpy_dtype(dtypes.element_named("float8_e5m2"))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros(2, np.longdouble), "no elements of type"),
        (np.zeros(2, "datetime64[s]"), "no elements of type"),
        (np.array([None, "x"], object), "element None of type NoneType"),
        (np.zeros(2, [("a", "i4")]), "no elements of type"),
    ],
)
async def test_what_cannot_be_saved_is_named(
    tmp_path: Path,
    make_session: Callable[..., Any],
    names_in: Callable[[Path], set[str]],
    array: Any,
    reason: str,
) -> None:
    session = make_session(good=1.0, odd=array, odd2=array)
    with pytest.raises(TypeError, match=f"'odd': .*{reason}.*'odd2'"):
        await Saver().save(session, tmp_path / "model.ckpt", 1)
    assert names_in(tmp_path) == set()
    assert session.released == 1


async def test_the_name_that_safetensors_keeps_for_itself_is_refused(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    with pytest.raises(TypeError, match="'__metadata__': the file format keeps this name"):
        await Saver().save(make_session(__metadata__=1.0), tmp_path / "model.ckpt", 1)


def read(path: Path) -> bytes:
    return path.read_bytes()


async def test_large_odd_arrays_are_copied_in_pieces_only() -> None:
    array = np.arange(3_000_000.0).reshape(3, 1_000_000).T
    pieces = list(dtypes.byte_chunks(array, 1 << 16))
    assert max(piece.nbytes for piece in pieces) <= 1 << 16
    assert b"".join(piece.tobytes() for piece in pieces) == np.ascontiguousarray(array).tobytes()
    assert [piece.nbytes for piece in dtypes.byte_chunks(np.arange(10), 48)] == [48, 32]
    deep = np.arange(4096, dtype=">i4").reshape(2, 2, 1024)
    joined = b"".join(piece.tobytes() for piece in dtypes.byte_chunks(deep, 100))
    assert joined == np.arange(4096, dtype="<i4").tobytes()
