"""Checkpoints that TensorFlow wrote, read without it."""

from __future__ import annotations

import base64
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from asyncmon import checkpoint
from asyncmon.checkpoint import Saver, dtypes, load_checkpoint, locations, tf_checkpoint, verify
from asyncmon.checkpoint.contents import Contents
from asyncmon.checkpoint.tf_checkpoint import (
    Bundle,
    BundleEntry,
    Slice,
    decompress,
    read_bundle,
    read_table,
)
from asyncmon.cli import main
from asyncmon.errors import DataLossError, InvalidArgumentError, NotFoundError
from asyncmon.protobuf.tf_types import masked

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_bytes())


async def read(prefix: Path) -> dict[str, Any]:
    async with await load_checkpoint(prefix) as reader:
        return await reader.get_tensors()


def same(found: Any, expected: dict[str, Any]) -> None:
    assert list(found.shape) == expected["shape"]
    assert found.dtype.name == expected["dtype"]
    flat = found.reshape(-1)
    if found.dtype == object:
        assert [text.decode() for text in flat] == expected["values"]
    elif found.dtype.kind == "c":
        assert [[number.real, number.imag] for number in flat] == expected["values"]
    else:
        assert flat.astype(float).tolist() == expected["values"]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", EXPECTED)
async def test_every_tensor_equals_that_of_tensorflow(name: str) -> None:
    found = await read(DATA / name)
    assert found.keys() == EXPECTED[name].keys()
    for key, expected in EXPECTED[name].items():
        same(found[key], expected)


@pytest.mark.asyncio
async def test_compressed_index_blocks_are_read(tmp_path: Path) -> None:
    shutil.copy(DATA / "snappy.index", tmp_path / "s.index")
    shutil.copy(DATA / "many.ckpt.data-00000-of-00001", tmp_path / "s.data-00000-of-00001")
    found = await read(tmp_path / "s")
    assert len(found) == 60
    for key, expected in EXPECTED["many.ckpt"].items():
        same(found[key], expected)


def test_snappy_gives_back_what_was_compressed() -> None:
    for text, block in json.loads((DATA / "snappy.json").read_bytes()):
        assert decompress(base64.b64decode(block)) == base64.b64decode(text)
    assert decompress(b"\x07\x08abc\x0f\x03\x00\x00\x00") == b"abcabca"  # a 32-bit offset


def test_damaged_snappy_blocks_are_refused() -> None:
    for block in [b"", b"\x80", b"\x05\x08abc", b"\x03\x08ab", b"\x07\x08abc\x0f\x09\x00\x00\x00"]:
        with pytest.raises(ValueError, match=r"snappy|varint"):
            decompress(block)
    choose = random.Random(5)
    blocks = [base64.b64decode(block) for _, block in json.loads((DATA / "snappy.json").read_bytes())]
    for _ in range(300):
        block = bytearray(choose.choice(blocks[2:]))
        block[choose.randrange(len(block))] ^= 1 << choose.randrange(8)
        try:
            decompress(bytes(block))
        except ValueError:
            continue


@pytest.mark.asyncio
async def test_a_saver_restores_by_name(make_session: Callable[..., Any]) -> None:
    session = make_session(**{"net/embedding": np.zeros((7, 3), np.float32)})
    session.state_spec = lambda: dict(session.state)
    await Saver().restore(session, DATA / "partitioned.ckpt", rename={"embedding": "net/embedding"})
    same(session.state["net/embedding"], EXPECTED["partitioned.ckpt"]["embedding"])


@pytest.mark.asyncio
async def test_the_reader_and_verify_take_it(tmp_path: Path) -> None:
    async with await load_checkpoint(DATA / "dtypes.ckpt") as reader:
        assert reader.get_variable_to_shape_map()["of/string"] == [2, 2]
        assert (await reader.get_tensor("global_step")) == 1000
        assert await reader.states() == {}
        assert "of/bool (bool) [3]" in reader.debug_string()
        with pytest.raises(NotFoundError, match="has no entry 'nope'; it has: 'empty'"):
            await reader.get_tensor("nope")
    (found,) = await verify(DATA / "dtypes.ckpt")
    assert found.problem is None
    shutil.copy(DATA / "dtypes.ckpt.index", tmp_path)
    (found,) = await verify(tmp_path / "dtypes.ckpt")
    assert "lacks a file" in str(found.problem)
    for path in DATA.glob("many.ckpt*"):
        shutil.copy(path, tmp_path)
    found, damaged = sorted(await verify(tmp_path), key=lambda one: one.path, reverse=True)
    assert (found.path, found.problem) == (str(tmp_path / "many.ckpt"), None)
    assert "lacks a file" in str(damaged.problem)


@pytest.mark.asyncio
async def test_damage_is_named(tmp_path: Path) -> None:
    for path in DATA.glob("dtypes.ckpt*"):
        shutil.copy(path, tmp_path)
    data = tmp_path / "dtypes.ckpt.data-00000-of-00001"
    damaged = bytearray(data.read_bytes())
    bundle = read_bundle((tmp_path / "dtypes.ckpt.index").read_bytes())
    for name in ("of/float64", "of/string"):
        damaged[bundle.tensors[name].offset] ^= 1
    data.write_bytes(damaged)
    with pytest.raises(DataLossError, match=r"'of/float64': checksum .*'of/string': "):
        await read(tmp_path / "dtypes.ckpt")
    data.write_bytes(damaged[:300])
    with pytest.raises(DataLossError, match="has 300 bytes, expected at least"):
        await read(tmp_path / "dtypes.ckpt")
    with pytest.raises(NotFoundError, match="There is no checkpoint"):
        await read(tmp_path / "other.ckpt")
    (tmp_path / "dtypes.ckpt.index").write_bytes(b"x" * 100)
    with pytest.raises(DataLossError, match="does not end like a table"):
        await read(tmp_path / "dtypes.ckpt")


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["dtypes.ckpt", "partitioned.ckpt", "sharded.ckpt"])
async def test_mutations_never_give_wrong_numbers(tmp_path: Path, name: str) -> None:
    choose = random.Random(name)
    files = sorted(DATA.glob(f"{name}*"))
    right = await read(DATA / name)
    refused = 0
    for _ in range(120):
        for path in files:
            shutil.copy(path, tmp_path)
        victim = tmp_path / choose.choice(files).name
        data = bytearray(victim.read_bytes())
        at = choose.randrange(len(data))
        if choose.random() < 0.3:
            del data[at:]
        else:
            data[at] ^= 1 << choose.randrange(8)
        victim.write_bytes(data)
        try:
            found = await read(tmp_path / name)
        except DataLossError:
            refused += 1
        else:  # a byte of padding, or of a block that nothing refers to
            assert found.keys() == right.keys()
            for key, array in right.items():
                assert found[key].tolist() == array.tolist()
    assert refused > 90


def test_tables_that_lie_are_refused() -> None:
    index = (DATA / "many.ckpt.index").read_bytes()
    assert len(read_table(index)) == 61
    with pytest.raises(ValueError, match="does not match its checksum"):
        read_table(b"\x01" + index[1:])
    with pytest.raises(ValueError, match="ends early"):
        read_table(index[:-48] + b"\xff\x01\x00\xff\x7f\x00".ljust(40, b"\0") + index[-8:])


@pytest.mark.asyncio
async def test_big_endian_bundles_are_swapped(tmp_path: Path) -> None:
    """No machine at hand writes one: the header and the bytes are turned round by hand."""
    values = np.array([[1.5, -2.0]]), np.array([1 + 2j], np.complex64)
    data = b"".join(one.astype(one.dtype.newbyteorder(">")).tobytes() for one in values)
    (tmp_path / "b.data-00000-of-00001").write_bytes(data)
    entries = {}
    at = 0
    for number, (name, one) in enumerate(zip("ab", values, strict=True)):
        raw = data[at : at + one.nbytes]
        checksum = masked(google_crc32c.value(raw))
        entries[name] = BundleEntry([2, 8][number], one.shape, 0, at, one.nbytes, checksum, ())
        at += one.nbytes
    contents = await opened(tmp_path, Bundle(1, True, entries, {}))
    found = await contents.read(["a", "b"])
    for name, one in zip("ab", values, strict=True):
        np.testing.assert_array_equal(found[name], one)
    contents.close()


async def opened(directory: Path, bundle: Bundle) -> Contents:
    file = locations.open_store(str(directory)).open("b.data-00000-of-00001")
    return tf_checkpoint.BundleContents("b", (), bundle, [file])


@pytest.mark.asyncio
@pytest.mark.parametrize("extents", [(), ((0, 2),), ((0, 2), (0, 1), (0, 1)), ((0, 2), (0, 2))])
async def test_a_slice_that_does_not_fit_its_tensor_is_damage(tmp_path: Path, extents: Slice) -> None:
    (tmp_path / "b.data-00000-of-00001").write_bytes(data := bytes(8))
    checksum = masked(google_crc32c.value(data))
    whole = BundleEntry(1, (2, 1), 0, 0, 0, 0, (extents,))
    part = BundleEntry(1, (2, 1, 1), 0, 0, 8, checksum, ())
    contents = await opened(tmp_path, Bundle(1, False, {"v": whole}, {("v", extents): part}))
    with pytest.raises(DataLossError, match="does not fit the shape"):
        await contents.read(["v"])
    contents.close()


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def shape_of(*dimensions: int) -> bytes:
    """Return the field that has the shape of an entry."""
    return field(2, b"".join(field(2, field(1, length)) for length in dimensions))


def checksum_of(data: bytes) -> bytes:
    """Return the field that has the checksum of an entry."""
    return varint(6 << 3 | 5) + struct.pack("<I", masked(google_crc32c.value(data)))


def table_of(entries: dict[bytes, bytes]) -> bytes:
    """Return a table of one block, whose keys and values are shorter than 128 bytes."""

    def block(content: dict[bytes, bytes]) -> bytes:
        listed = b"".join(bytes([0, len(k), len(v)]) + k + v for k, v in sorted(content.items()))
        whole = listed + struct.pack("<II", 0, 1) + b"\0"  # one restart point, no compression
        return whole + struct.pack("<I", masked(google_crc32c.value(whole)))

    data = block(entries)
    index = block({b"\xff": varint(0) + varint(len(data) - 5)})
    footer = varint(0) + varint(0) + varint(len(data)) + varint(len(index) - 5)
    return data + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("start", "ordered"),
    [
        (62, b"\xbe"), (63, b"\xbf"), (64, b"\xc0\x40"), (8191, b"\xdf\xff"), (8192, b"\xe0\x20\0"),
    ],
)  # fmt: skip
async def test_a_slice_is_found_wherever_it_begins(tmp_path: Path, start: int, ordered: bytes) -> None:
    """Its key has the start in as few bytes as take its bits and the sign, 7 in each."""
    data = np.array([2.5], np.float32).tobytes()
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(4 * start) + data)
    part = field(1, field(1, start) + field(2, 1))
    before = field(1, field(2, start))
    entries = {
        b"": field(1, 1),
        tf_checkpoint._slice_key("v", ((0, start),)): field(1, 1) + shape_of(start)
        + field(5, 4 * start) + checksum_of(bytes(4 * start)),
        b"\0v\0\1\1\1" + ordered + b"\x81": field(1, 1) + shape_of(1) + field(4, 4 * start)
        + field(5, 4) + checksum_of(data),
        b"v": field(1, 1) + shape_of(start + 1) + field(7, before) + field(7, part),
    }  # fmt: skip
    (tmp_path / "m.index").write_bytes(table_of(entries))
    found = (await read(tmp_path / "m"))["v"]
    assert found.shape == (start + 1,)
    assert found[start] == 2.5
    assert not found[:start].any()


@pytest.mark.asyncio
async def test_a_slice_of_a_whole_dimension_is_found(tmp_path: Path) -> None:
    """Its extent is an empty message; its key has the length -1."""
    rows = np.array([[1.5, 2.5]], np.float32), np.array([[3.5, 4.5]], np.float32)
    (tmp_path / "m.data-00000-of-00001").write_bytes(b"".join(row.tobytes() for row in rows))
    entries = {b"": field(1, 1)}
    parts = b""
    for at, row in enumerate(rows):
        parts += field(7, field(1, field(1, at) + field(2, 1)) + field(1, b""))
        entries[b"\0v\0\1\1\2" + bytes([0x80 + at]) + b"\x81" + b"\x80\x7f"] = (
            field(1, 1) + shape_of(1, 2) + field(4, 8 * at) + field(5, 8) + checksum_of(row.tobytes())
        )
    entries[b"v"] = field(1, 1) + shape_of(2, 2) + parts
    (tmp_path / "m.index").write_bytes(table_of(entries))
    assert (await read(tmp_path / "m"))["v"].tolist() == [[1.5, 2.5], [3.5, 4.5]]


@pytest.mark.asyncio
async def test_an_index_without_a_header_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "m.data-00000-of-00001").write_bytes(b"")
    (tmp_path / "m.index").write_bytes(table_of({b"v": field(1, 1) + shape_of(0)}))
    with pytest.raises(DataLossError, match="it says it has 0 shards"):
        await read(tmp_path / "m")


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["dtypes.ckpt", "partitioned.ckpt"])
async def test_arrays_of_numbers_are_read_only(name: str) -> None:
    for key, array in (await read(DATA / name)).items():
        assert not array.flags.writeable or array.dtype == object, key


@pytest.mark.asyncio
async def test_tensors_that_are_no_arrays_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "b.data-00000-of-00001").write_bytes(b"")
    variant = BundleEntry(21, (), 0, 0, 0, 0, ())
    contents = await opened(tmp_path, Bundle(1, False, {"v": variant}, {}))
    assert contents.facts.shapes == {}
    assert "skipping entries that are no arrays: v" in caplog.text
    contents.close()


@pytest.mark.asyncio
async def test_bfloat16_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtypes, "_foreign_dtypes", lambda: None)
    found = (await read(DATA / "dtypes.ckpt"))["of/bfloat16"]
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 1, 2], [3, 100, 7]]


# --- checkpoints that TensorFlow reads in part, or does not write any more ------------------------
HOLE = "Does not have sufficient slices for partitioned tensor a to restore in slice_spec: -:-"


@pytest.mark.asyncio
async def test_a_partitioned_variable_with_a_hole_is_refused_as_by_tensorflow(
    make_session: Callable[..., Any],
) -> None:
    with pytest.raises(InvalidArgumentError, match=HOLE):
        await checkpoint.load_variable(DATA / "hole", "a")
    with pytest.raises(InvalidArgumentError, match=HOLE):
        await Saver().restore(make_session(a=np.zeros((4, 3), np.float32)), DATA / "hole")
    (found,) = await verify(DATA / "hole")
    assert HOLE in str(found.problem)
    assert await checkpoint.list_variables(DATA / "hole") == [("a", [4, 3])]


def test_inspect_names_the_hole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(DATA / "hole")]) == 1
    assert f"problem     {HOLE}\n" in capsys.readouterr().out


@pytest.mark.asyncio
async def test_other_entries_of_an_incomplete_checkpoint_are_usable(tmp_path: Path) -> None:
    for file in DATA.glob("hole.*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "hole"\n')
    assert await checkpoint.latest_checkpoint(tmp_path) == str(tmp_path / "hole")
    async with await load_checkpoint(tmp_path) as reader:
        assert reader.facts.incomplete == {"a": HOLE}


@pytest.mark.asyncio
async def test_the_v1_format_is_named_with_the_remedy(
    make_session: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copy(DATA / "v1.ckpt", tmp_path / "v1.ckpt-00000-of-00001")
    for prefix in (DATA / "v1.ckpt", tmp_path / "v1.ckpt"):
        with pytest.raises(InvalidArgumentError, match=r"V1 format.*save it again with"):
            await load_checkpoint(prefix)
        with pytest.raises(InvalidArgumentError, match="V1 format"):
            await Saver().restore(make_session(w=np.zeros(3)), prefix)
    (found,) = await verify(DATA / "v1.ckpt")
    assert "V1 format" in str(found.problem)


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "step"), [("dtypes.ckpt", 1000), ("partitioned.ckpt-7", 7)])
async def test_the_step_is_that_of_the_variable_or_of_the_name(
    name: str, step: int, tmp_path: Path
) -> None:
    for file in DATA.glob(f"{name.partition('-')[0]}.*"):
        shutil.copy(file, tmp_path / file.name.replace(name.partition("-")[0], name))
    async with await load_checkpoint(tmp_path / name) as reader:
        assert reader.facts.step == step


@pytest.mark.asyncio
async def test_verify_of_a_moved_directory_checks_the_files_in_it(tmp_path: Path) -> None:
    for file in DATA.glob("sharded.*"):
        shutil.copy(file, tmp_path)
    old = tmp_path.parent / "before"
    state = f'model_checkpoint_path: "{old}/sharded.ckpt"\nall_model_checkpoint_paths: "{old}/gone"\n'
    (tmp_path / "checkpoint").write_text(state)
    found = {one.path: one.problem for one in await verify(tmp_path)}
    assert found.pop(str(tmp_path / "sharded.ckpt")) is None
    assert [path for path, problem in found.items() if problem] == [f"{old}/gone"]
