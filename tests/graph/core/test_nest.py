from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import attr
import pytest

from asyncmon.graph.core.nest import flatten, flatten_as, pack_like, same_structure

Pair = namedtuple("Pair", ["a", "b"])


def test_there_and_back() -> None:
    structure = Pair([1, (2,)], {"z": 3, "a": 4})
    assert flatten(structure) == [1, 2, 4, 3]
    assert pack_like(structure, "abcd") == Pair(["a", ("b",)], {"z": "d", "a": "c"})
    assert list(pack_like(structure, "abcd").b) == ["z", "a"]
    assert flatten(5) == [5]


def test_the_leaves_of_one_structure_choose_parts_of_another() -> None:
    assert flatten_as({"b": 1, "a": (2, 3)}, {"a": [[4, 5], ()], "b": [6]}) == [[4, 5], (), [6]]
    with pytest.raises(ValueError, match="shorter"):
        flatten_as([1, 2], [[3]])


def test_structures_compare() -> None:
    assert same_structure([1, (2,)], (3, [4]))
    assert not same_structure([1], [1, 2])
    assert not same_structure({"a": 1}, {"b": 1})
    assert not same_structure(1, [1])
    assert same_structure({"a": [1]}, {"a": [2]})


@attr.s
class Point:
    x = attr.ib()
    y = attr.ib()


@dataclass
class Plain:
    x: int


def test_instance_of_an_attrs_class_is_a_structure_and_a_dataclass_a_leaf() -> None:
    assert flatten(Point(1, [2, 3])) == [1, 2, 3]
    assert pack_like(Point(1, [2, 3]), "abc") == Point("a", ["b", "c"])
    assert flatten_as(Point(1, 2), Point([3], 4)) == [[3], 4]
    assert same_structure(Point(1, 2), Point(3, 4))
    assert not same_structure(Point(1, 2), Point(3, [4]))
    assert not same_structure(1, Point(1, 2))
    assert flatten([Plain(1)]) == [Plain(1)]
