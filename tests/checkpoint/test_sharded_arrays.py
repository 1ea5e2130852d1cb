"""Arrays that are saved in pieces, as processes that share a state write them, and read whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.checkpoint import Saver, load_checkpoint
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.errors import DataLossError
from asyncmon.system.snapshot import HeldArray, ShardedArray, Snapshot

pytestmark = pytest.mark.asyncio


class Cut:
    """A session whose arrays are in pieces, those of other ranks held by a holder in this process."""

    def __init__(self, array: Any, cuts: Sequence[Sequence[int]], ranks: int) -> None:
        self.array = array
        edges = [[0, *cut, length] for cut, length in zip(cuts, array.shape, strict=True)]
        self.pieces: dict[tuple[int, ...], Any] = {}
        self.held: dict[str, Any] = {}
        for number, box in enumerate(itertools.product(*map(itertools.pairwise, edges))):
            offset = tuple(start for start, _ in box)
            piece = array[tuple(slice(*ends) for ends in box)]
            rank = number % ranks
            if rank:
                self.held[f"w{number}"] = piece
                piece = HeldArray(f"w{number}", piece.dtype, piece.shape, rank)
            self.pieces[offset] = piece

    async def snapshot(self) -> Snapshot:
        whole = ShardedArray(self.array.dtype, self.array.shape, self.pieces)
        return Snapshot({"w": whole, "b": np.arange(3)}, 7, holder=Here(self.held))

    async def load(self, values: Mapping[str, Any]) -> None:
        self.array = values["w"]


class Here:
    def __init__(self, held: dict[str, Any]) -> None:
        self._held = held

    def write_file(
        self, path: str, header: bytes, arrays: Mapping[str, Any], control: Any
    ) -> dict[str, int]:
        assert len({array.rank for array in arrays.values()}) == 1
        found = {n: np.ascontiguousarray(self._held[held.name]) for n, held in arrays.items()}
        with open(path, "xb") as file:
            file.write(header + b"".join(array.tobytes() for array in found.values()))
        return {name: google_crc32c.value(array.tobytes()) for name, array in found.items()}

    async def pull(self) -> Snapshot:
        raise NotImplementedError


@settings(max_examples=25)
@given(data=st.data())
async def test_pieces_of_any_blocks_and_ranks_are_read_as_a_whole(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    cuts = [sorted(data.draw(st.sets(st.integers(1, n - 1)) if n > 1 else st.just([]))) for n in shape]
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    session = Cut(array, cuts, data.draw(st.integers(1, 4)))
    path = await Saver().save(session, tmp_path_factory.mktemp("saved") / "m")
    async with await load_checkpoint(path) as reader:
        assert reader.get_variable_to_shape_map() == {"w": shape, "b": [3]}
        read = await reader.get_tensor("w")
        assert read.dtype == np.float32
        assert not read.flags.writeable
        assert (read == array).all()


async def test_each_rank_has_a_file_of_its_own(
    tmp_path: Path, names_in: Callable[[Path], set[str]]
) -> None:
    session = Cut(np.zeros((6, 2)), [[2, 4], []], 3)
    await Saver().save(session, tmp_path / "m")
    assert len([name for name in names_in(tmp_path) if name.endswith("-of-00003.safetensors")]) == 3


async def test_a_damaged_piece_is_named(tmp_path: Path) -> None:
    await Saver().save(Cut(np.ones((4, 2)), [[2], []], 2), tmp_path / "m")
    file = tmp_path / "m-00002-of-00002.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    async with await load_checkpoint(tmp_path / "m") as reader:
        with pytest.raises(DataLossError, match=r"'w@2,0' in 'm-00002"):
            await reader.get_tensor("w")


@pytest.mark.parametrize("pieces", [{"w@0,0": [0, 0]}, {"w@0,0": [0, 0], "w@2,0": [3, 0]}])
async def test_pieces_that_do_not_make_up_the_array_are_refused(
    pieces: dict[str, list[int]], tmp_path: Path
) -> None:
    await Saver().save(Cut(np.ones((4, 2)), [[2], []], 2), tmp_path / "m")
    data = (tmp_path / "m.json").read_bytes()
    members = json.loads(data)
    members["sharded"]["w"]["pieces"] = pieces
    del members["crc32c"]
    body = json.dumps(members)[1:].encode() + b"\n"
    data = b'{"crc32c": "%08x", %b' % (google_crc32c.value(body), body)
    with pytest.raises(DataLossError, match="not made of its pieces"):
        Manifest.decode(data, "m")
