"""Object stores: the same promises, with the manifest put last."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import obstore.exceptions
import obstore.store
import pytest

from asyncmon.checkpoint import (
    Saver,
    checkpoint_exists,
    cloud,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    remove_checkpoint,
    verify,
)
from asyncmon.checkpoint.cloud import ObjectStore, resolve
from asyncmon.checkpoint.commit import clean_up
from asyncmon.errors import (
    DataLossError,
    FailedPreconditionError,
    PermissionDeniedError,
    UnavailableError,
)
from asyncmon.system.files import in_thread

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=["memory", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{tmp_path.name}/runs/one"
    cloud.mount(f"local://{tmp_path.name}/", obstore.store.LocalStore(tmp_path))
    return f"local://{tmp_path.name}/runs/one"


async def names(url: str) -> list[str]:
    return [name for name in await in_thread(ObjectStore(url).names) if name != ".asyncmon.lock"]


async def test_a_url_is_a_place_like_another(url: str, make_session: Callable[..., Any]) -> None:
    session = make_session(w=np.arange(1000.0), t=np.array(["a"]), e=np.zeros((0, 2)), global_step=1)
    saver = Saver(max_to_keep=2)
    for step in range(1, 5):
        path = await saver.save(session, f"{url}/m", step)
        assert path == f"{url}/m-{step}"
        session.step()
    assert await names(url) == [
        "checkpoint", "m-3.json", "m-3.safetensors", "m-4.json", "m-4.safetensors"
    ]  # fmt: skip
    assert await latest_checkpoint(url) == f"{url}/m-4"
    state = await get_checkpoint_state(url)
    assert state is not None
    assert state.all_model_checkpoint_paths == [f"{url}/m-3", f"{url}/m-4"]
    assert await saver.restore_latest(session, url) == f"{url}/m-4"
    assert session.state["global_step"] == 4
    np.testing.assert_array_equal(session.state["w"], np.arange(1000.0) + 3)
    assert ("w", [1000]) in await list_variables(url)
    assert [one.problem for one in await verify(url)] == [None, None]
    assert await checkpoint_exists(f"{url}/m-3")
    assert len(await get_checkpoint_mtimes([f"{url}/m-3", f"{url}/m-1"])) == 1
    await remove_checkpoint(f"{url}/m-3")
    assert not await checkpoint_exists(f"{url}/m-3")
    await saver.close()
    await saver.close()
    assert await Saver().save(session, f"{url}/m", 5)


async def test_no_foreign_thread_completes_a_read(
    url: str, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python does not join such a thread: a process that ends before it aborts.
    session = make_session(w=np.arange(1000.0), global_step=1)
    path = await Saver().save(session, f"{url}/m", 1)
    loop = asyncio.get_running_loop()
    threads = []
    call_soon_threadsafe = loop.call_soon_threadsafe

    def record(*args: Any, **kwargs: Any) -> asyncio.Handle:
        threads.append(threading.current_thread())
        return call_soon_threadsafe(*args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", record)
    await Saver().restore(session, path)
    assert threads
    assert [one for one in threads if isinstance(one, threading._DummyThread)] == []


async def test_a_reader_keeps_its_objects(url: str, make_session: Callable[..., Any]) -> None:
    saver = Saver(max_to_keep=1)
    path = await saver.save(make_session(a=1.0), f"{url}/m", 1)
    reader = await load_checkpoint(str(path))
    await saver.save(make_session(a=2.0), f"{url}/m", 2)
    await saver.save(make_session(a=3.0), f"{url}/m", 1)
    assert await reader.get_tensor("a") == 1.0
    await reader.close()
    await reader.close()
    await saver.save(make_session(a=4.0), f"{url}/m", 3)
    assert saver.last_checkpoints == [f"{url}/m-3"]
    await saver.close()
    await saver.claim(url)  # the next start deletes what the reader had open
    assert await names(url) == ["checkpoint", "m-3.json", "m-3.safetensors"]


async def test_two_savers_of_a_process_save_the_same_step_at_once(
    url: str, make_session: Callable[..., Any]
) -> None:
    savers = [Saver(), Saver()]
    session = make_session(a=np.arange(1000.0))
    await asyncio.gather(*(saver.save(session, f"{url}/m", 1) for saver in savers))
    (found,) = await verify(url)
    assert found.problem is None
    assert found.facts is not None
    assert set(await names(url)) == {"checkpoint", *found.facts.file_names}
    for saver in savers:
        await saver.close()


async def test_a_damaged_object_is_passed_over(url: str, make_session: Callable[..., Any]) -> None:
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=np.arange(100)), f"{url}/m", step)
    store = ObjectStore(url)
    data = bytearray(await in_thread(store.content, "m-2.safetensors"))
    data[-1] ^= 1
    await in_thread(store.put, {"m-2.safetensors": bytes(data)})
    assert await latest_checkpoint(url) == f"{url}/m-1"
    with pytest.raises(DataLossError, match="'a' in"):
        await saver.restore(make_session(a=np.arange(100)), f"{url}/m-2")
    await in_thread(store.delete, "m-2.safetensors")
    await in_thread(store.delete, "m-2.safetensors")
    with pytest.raises(DataLossError, match="lacks a file"):
        await saver.restore(make_session(a=np.arange(100)), f"{url}/m-2")


class Failing:
    """Stands in for obstore's functions: the nth call to the store fails, or everything after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.nth = 0
        self.for_good = False
        self.error: Exception = obstore.exceptions.GenericError("the network is down\n\nDebug: ...")
        for name in ("put", "head", "get", "rename", "delete", "list_with_delimiter"):
            monkeypatch.setattr(obstore, name, self._wrapped(getattr(obstore, name)))

    def _wrapped(self, fn: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.nth or (self.for_good and self.count > self.nth > 0):
                raise self.error
            return fn(*args, **kwargs)

        return call


@pytest.mark.parametrize("for_good", [False, True])
async def test_a_failure_at_each_call_leaves_the_old_one(
    url: str, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, for_good: bool
) -> None:
    failing = Failing(monkeypatch)
    saver = Saver()
    await saver.save(make_session(a=1.0), f"{url}/m", 1)
    failing.count = 0
    await saver.save(make_session(a=1.0), f"{url}/m", 2)
    await saver.close()
    for nth in range(1, failing.count + 1):
        failed = None
        saver = Saver()
        await saver.claim(url)
        failing.count, failing.nth, failing.for_good = 0, nth, for_good
        try:
            await saver.save(make_session(a=2.0), f"{url}/m", 2 + nth)
        except UnavailableError as error:
            failed = str(error)
        failing.nth = 0
        assert failed is None or "the network is down (EIO)" in failed
        newest = await latest_checkpoint(url)
        assert newest is not None
        assert failed is not None or newest == f"{url}/m-{2 + nth}"
        await saver.close()
        saver = Saver()
        await saver.claim(url)  # the next start
        kept = {file for one in await verify(url) if one.facts for file in one.facts.file_names}
        assert set(await names(url)) == kept | {"checkpoint"}
        state = await get_checkpoint_state(url)
        assert state is not None
        async with await load_checkpoint(state.model_checkpoint_path) as reader:
            assert reader.manifest is not None
            pending = {f"{url}/{name}" for name in reader.manifest.excess}
        listed = {*state.all_model_checkpoint_paths, *pending}
        assert {one.path for one in await verify(url)} <= listed
        await saver.close()


async def test_permission(
    url: str, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(monkeypatch)
    failing.error = obstore.exceptions.PermissionDeniedError("not for you")
    failing.nth, failing.for_good = 1, True
    with pytest.raises(PermissionDeniedError, match=r"not for you \(EACCES\).*is in an object store"):
        await Saver().save(make_session(a=1.0), f"{url}/m", 1)


async def test_a_save_whose_files_another_process_removed_raises(
    url: str, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver()
    await saver.claim(url)
    write = ObjectStore.write

    def write_and_meet(self: ObjectStore, name: str, data: Any) -> None:
        write(self, name, data)
        if name.endswith(".safetensors"):
            clean_up(ObjectStore(url))  # as another process does when it takes the prefix

    monkeypatch.setattr(ObjectStore, "write", write_and_meet)
    with pytest.raises(FailedPreconditionError, match=r"claimed .* and deleted this save"):
        await saver.save(make_session(a=1.0), f"{url}/m", 1)
    assert await names(url) == []


async def test_without_obstore_the_error_says_what_to_install(
    make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("obstore"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.delitem(sys.modules, "asyncmon.checkpoint.cloud")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'asyncmon\[cloud\]'"):
        await Saver().save(make_session(a=1.0), "s3://bucket/m", 1)
    monkeypatch.undo()
    importlib.import_module("asyncmon.checkpoint.cloud")


async def test_stores_are_found_by_their_url() -> None:
    assert "S3Store" in ObjectStore("s3://some-bucket/deep/down").describe()
    assert resolve("s3://some-bucket/deep/down")[1] == "deep/down"
    assert resolve("memory://top")[1] == ""
