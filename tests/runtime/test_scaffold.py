"""Scaffolds: the pieces of a program's life, given or made."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver
from asyncmon.graph.core.dtypes import float32
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.ops.basic import constant, group, no_op, placeholder
from asyncmon.graph.ops.variable_ops import assign
from asyncmon.graph.session.session import Session
from asyncmon.graph.variables.variable import Variable
from asyncmon.runtime import (
    ChiefSessionCreator,
    MonitoredSession,
    Scaffold,
    SessionRunHook,
    as_program,
    current_program,
)
from tests.runtime.conftest import World

ROLES = (
    "init_op", "init_fn", "init_feed_dict", "ready_op", "ready_for_local_init_op", "local_init_op",
    "local_init_feed_dict", "summary_op", "saver",
)  # fmt: skip


def variables(graph: Graph) -> None:
    with graph.as_default():
        Variable(np.float32(1), name="w")
        Variable(np.float32(2), name="local", collections=[GraphKeys.LOCAL_VARIABLES])


def test_nothing_is_there_before_finalize_sc_1() -> None:
    scaffold = Scaffold()
    assert [getattr(scaffold, role) for role in ROLES] == [None] * len(ROLES)


@pytest.mark.asyncio
async def test_the_defaults_do_what_their_names_say_sc_1() -> None:
    variables(graph := Graph())
    scaffold = Scaffold(program=graph).finalize()
    assert graph.finalized
    assert scaffold.summary_op is None
    assert isinstance(scaffold.saver, Saver)
    async with Session(graph=graph) as sess:

        async def names(op: Any) -> list[str]:
            return [n if isinstance(n, str) else n.decode() for n in (await sess.run(op)).tolist()]

        assert await names(scaffold.ready_op) == ["w", "local"]
        assert await names(scaffold.ready_for_local_init_op) == ["w"]
        await sess.run(scaffold.init_op)
        assert await names(scaffold.ready_for_local_init_op) == []
        assert await names(scaffold.ready_op) == ["local"]
        await sess.run(scaffold.local_init_op)
        assert await names(scaffold.ready_op) == []


def test_defaults_are_kept_in_collections_and_reused_sc_2() -> None:
    variables(graph := Graph())
    first, second = (Scaffold(program=graph).finalize() for _ in range(2))
    for role in ROLES:
        assert getattr(first, role) is getattr(second, role)
    assert graph.get_collection(GraphKeys.INIT_OP) == [first.init_op]
    assert graph.get_collection(GraphKeys.SAVERS) == [first.saver]
    assert graph.get_collection(GraphKeys.SUMMARY_OP) == []


def test_given_items_are_used_and_not_kept_sc_2() -> None:
    variables(graph := Graph())
    with graph.as_default():
        mine, saver = no_op(), Saver()
    scaffold = Scaffold(init_op=mine, saver=saver, program=graph).finalize()
    assert scaffold.init_op is mine
    assert scaffold.saver is saver
    assert graph.get_collection(GraphKeys.INIT_OP) == []
    assert graph.get_collection(GraphKeys.SAVERS) == []


def test_one_item_of_a_collection_is_used_and_two_are_refused_sc_3() -> None:
    graph, saver = Graph(), Saver(allow_empty=True)
    graph.add_to_collection(GraphKeys.SAVERS, saver)
    assert Scaffold(program=graph).finalize().saver is saver

    graph = Graph()
    for _ in range(2):
        graph.add_to_collection(GraphKeys.SAVERS, Saver(allow_empty=True))
    with pytest.raises(
        RuntimeError, match=r"^More than one item in collection savers. Please indicate"
    ):
        Scaffold(program=graph).finalize()

    graph = Graph()
    with graph.as_default():
        for _ in range(2):
            graph.add_to_collection(GraphKeys.INIT_OP, no_op())
    message = (
        r'More than one item in the collection "init_op"\. Please indicate which one to use by passing '
        r"it to the Scaffold constructor as:  Scaffold\(init_op=item to use\)"
    )
    with pytest.raises(RuntimeError, match=message):
        Scaffold(program=graph).finalize()


def test_a_saver_that_is_built_later_is_built_sc_4() -> None:
    class Deferred(Saver):
        built = False

        def build(self) -> None:
            self.built = True

    saver = Deferred(allow_empty=True)
    assert Scaffold(saver=saver, program=Graph()).finalize().saver is saver
    assert saver.built


def test_get_or_default_and_the_default_local_init_op_sc_5_sc_6() -> None:
    with Graph().as_default() as graph:
        made = Scaffold.get_or_default("summary_op", "my_key", lambda: constant(1))
        assert graph.get_collection("my_key") == [made]
        assert Scaffold.get_or_default("summary_op", "my_key", lambda: constant(2)) is made
        assert Scaffold.get_or_default("summary_op", "other_key", lambda: None) is None
        assert Scaffold.default_local_init_op().graph is graph


@pytest.mark.asyncio
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_init_fn_gets_scaffold_and_session_sc_7(world: World, asynchronous: bool) -> None:
    calls: list[Any] = []

    async def async_init(scaffold: Scaffold, session: Any) -> None:
        calls.append((scaffold, session))

    def init(scaffold: Scaffold, session: Any) -> None:
        calls.append((scaffold, session))

    scaffold = Scaffold(init_fn=async_init if asynchronous else init)
    async with MonitoredSession(world.creator(scaffold=scaffold)) as sess:
        assert calls == [(scaffold, sess.raw_session())]
    assert scaffold.init_fn is not None


@pytest.mark.asyncio
async def test_feeds_for_both_init_ops_sc_8() -> None:
    with Graph().as_default() as graph:
        x, y = placeholder(float32, []), placeholder(float32, [])
        w = Variable(np.float32(0), name="w")
        local = Variable(np.float32(0), name="l", collections=[GraphKeys.LOCAL_VARIABLES])
        scaffold = Scaffold(
            init_op=group(assign(w, x)),
            init_feed_dict={x: 5.0},
            local_init_op=group(assign(local, y)),
            local_init_feed_dict={y: 7.0},
        )
        session = MonitoredSession(ChiefSessionCreator(scaffold, program=graph))
    async with session as sess:
        assert await sess.run([w, local]) == [5.0, 7.0]


def test_finalize_returns_itself_and_logs_sc_10(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "asyncmon"):
        scaffold = Scaffold(program=world.program)
        assert scaffold.finalize() is scaffold
        assert scaffold.finalize() is scaffold
    assert ("Graph was finalized." in caplog.text) == isinstance(world.program, Graph)
    assert world.program.finalized


@pytest.mark.asyncio
async def test_copy_from_scaffold_sc_11() -> None:
    calls: list[Any] = []
    graph = Graph()
    with graph.as_default():
        first, second, ready = no_op(), no_op(), constant(np.array([], dtype=object))
    other = Scaffold(
        init_op=first,
        ready_op=ready,
        init_fn=lambda scaffold, sess: calls.append(scaffold),
        program=graph,
    )
    copy = Scaffold(init_op=second, copy_from_scaffold=other)
    assert copy.init_op is second
    assert copy.ready_op is ready
    async with MonitoredSession(ChiefSessionCreator(copy)):
        assert calls == [copy]
    with pytest.raises(TypeError, match=r"^copy_from_scaffold is not a Scaffold instance\.$"):
        Scaffold(copy_from_scaffold=5)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.asyncio
async def test_what_begin_adds_is_covered_and_hp_6_later_additions_are_refused_sc_12_hp_24() -> None:
    class Adding(SessionRunHook):
        async def begin(self) -> None:
            assert current_program().graph is graph  # type: ignore[attr-defined]  # a graph's program
            self.variable = Variable(np.float32(3), name="added")

        async def before_run(self, run_context: Any) -> None:
            with graph.as_default():
                constant(1)

    graph = Graph()
    hook = Adding()
    async with MonitoredSession(ChiefSessionCreator(program=graph), [hook]) as sess:
        assert await sess.run(hook.variable, hooks=False) == 3
        with pytest.raises(RuntimeError, match=r"Graph is finalized and cannot be modified\."):
            await sess.run(hook.variable)


def test_a_complete_finalized_graph_is_accepted_and_an_incomplete_one_refused_sc_13() -> None:
    variables(graph := Graph())
    Scaffold(program=graph).finalize()
    Scaffold(program=graph).finalize()
    variables(graph := Graph())
    graph.finalize()
    with pytest.raises(RuntimeError, match=r"Graph is finalized and cannot be modified\."):
        Scaffold(program=graph).finalize()


@pytest.mark.asyncio
async def test_a_scaffold_serves_one_session_after_another_sc_14(world: World) -> None:
    scaffold = Scaffold()
    for _ in range(2):
        async with MonitoredSession(world.creator(scaffold=scaffold)) as sess:
            assert await sess.run(world.train, world.feed()) == 1.0


def test_a_scaffold_of_another_program_is_refused(world: World) -> None:
    scaffold = Scaffold(program=Graph())
    with pytest.raises(ValueError, match="belongs to another program"):
        world.creator(scaffold=scaffold).prepare()


def test_the_default_graph_is_that_of_the_construction() -> None:
    with Graph().as_default() as graph:
        creator = ChiefSessionCreator()
    assert creator.program.graph is graph  # type: ignore[attr-defined]  # a graph's program
    assert as_program(creator.program) is creator.program


@pytest.mark.asyncio
async def test_a_graph_that_a_session_finalized_can_grow_after_it_ms_15() -> None:
    with Graph().as_default() as graph:
        weight = Variable(np.float32(1), name="weight")
        creator = ChiefSessionCreator()
        async with MonitoredSession(creator) as sess:
            assert graph.finalized
            assert await sess.run(weight) == 1
        assert not graph.finalized
        more = Variable(np.float32(2), name="more")  # the next session initialises it as well
        async with MonitoredSession() as sess:
            assert await sess.run([weight, more]) == [1, 2]
        operations = len(graph.get_operations())
        async with MonitoredSession(creator) as sess:
            assert graph.finalized
        async with MonitoredSession() as sess:
            assert await sess.run([weight, more]) == [1, 2]
        assert len(graph.get_operations()) == operations


@pytest.mark.asyncio
async def test_a_graph_that_the_user_finalized_stays_finalized_ms_15() -> None:
    with Graph().as_default() as graph:
        Variable(np.float32(1), name="weight")
        scaffold = Scaffold().finalize()
        async with MonitoredSession(ChiefSessionCreator(scaffold)):
            pass
        assert graph.finalized
