"""The leases of a pipeline over HTTP: requests, refusals, expiry, weights and acknowledgements."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from asyncmon.programs import FunctionProgram
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked
from tests.faults import FailAfterCommit
from tests.runtime.pipelines.conftest import Bench

httpx = pytest.importorskip("httpx", reason="a test package is not installed")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

TOKEN = "0123456789abcdef"


def client_of(app: Any, token: str | None = TOKEN) -> Any:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://here", headers=headers, timeout=None)


@asynccontextmanager
async def served(
    bench: Bench, source: Any = range(4), app: Any = None, hooks: Any = (), **options: Any
) -> AsyncIterator[tuple[Any, Any, Any]]:
    """A session with a learner, the pipeline and a client. A worker makes the calls that are left."""
    save_steps = options.pop("save_steps", 1)
    async with bench.session(1000, *hooks, save_steps=save_steps) as sess:
        made = sess.produce(source, None, name="made", **options)
        client = client_of(made.app(token=TOKEN, **(app or {})))
        learner = asyncio.create_task(bench.train(sess, made, 2))
        yield sess, made, client
        worker = asyncio.create_task(work(client))
        await learner
    await worker


async def work(client: Any) -> None:
    """Make all calls, as an HTTP worker does."""
    while (found := await client.post("/lease")).status_code != 410:
        if found.status_code == 200:
            lease = found.json()
            done = await client.post(
                f"/leases/{lease['lease']}/complete", json={"value": lease["element"]}
            )
            assert done.status_code == 200


async def lease_of(client: Any) -> dict[str, Any]:
    found = await client.post("/lease")
    assert found.status_code == 200, found.text
    lease: dict[str, Any] = found.json()
    return lease


async def test_workers_make_all_calls_until_the_session_stops(bench: Bench) -> None:
    async with assert_nothing_left_behind(descriptors=False):
        async with served(bench, range(12)) as (_, _, client):
            workers = [asyncio.create_task(work(client)) for _ in range(3)]
        await asyncio.gather(*workers)
    assert sorted(bench.used) == list(range(12))


async def test_lease_names_its_call(bench: Bench) -> None:
    async with served(bench, [{"seed": 7}], group=2) as (_, _, client):
        first, second = await lease_of(client), await lease_of(client)
        for lease in (first, second):
            body = {"value": lease["member"]}
            await client.post(f"/leases/{lease['lease']}/complete", json=body)
    assert first["element"] == {"seed": 7}
    assert (first["ordinal"], first["member"], first["attempt"], first["version"]) == (0, 0, 1, 0)
    assert second["member"] == 1
    assert bench.used == [[0, 1]]


async def test_wait_for_a_call_is_bounded(bench: Bench) -> None:
    async with served(bench, range(1)) as (_, _, client):
        lease = await lease_of(client)
        for body in ({}, {"wait_secs": 0}, {"wait_secs": 0.5}):
            assert (await client.post("/lease", json=body)).status_code == 204
        await client.post(f"/leases/{lease['lease']}/complete", json={"value": 0})


async def test_late_duplicate_is_refused(bench: Bench) -> None:
    async with served(bench) as (_, _, client):
        lease = await lease_of(client)
        path = f"/leases/{lease['lease']}"
        assert (await client.post(f"{path}/complete", json={"value": 0})).status_code == 200
        for action, body in [("complete", {"value": 9}), ("fail", {"error": "x"}), ("release", {})]:
            refused = await client.post(f"{path}/{action}", json=body)
            assert refused.status_code == 409
            assert "not wanted any more" in refused.json()["error"]
    assert sorted(bench.used) == list(range(4))


async def test_lease_that_is_not_renewed_is_made_again(bench: Bench) -> None:
    async with served(bench, app={"lease_secs": 5}) as (_, made, client):
        lease = await lease_of(client)
        for _ in range(3):
            await asyncio.sleep(4)
            renewed = await client.post(f"/leases/{lease['lease']}/renew")
            assert renewed.json() == {"lease_secs": 5}
        await asyncio.sleep(6)
        for action, body in [("complete", {"value": "late"}), ("renew", {})]:
            late = await client.post(f"/leases/{lease['lease']}/{action}", json=body)
            assert late.status_code == 409
        again = await lease_of(client)
        assert (again["ordinal"], again["attempt"]) == (0, 2)
        await client.post(f"/leases/{again['lease']}/complete", json={"value": 0})
    assert made.statistics().lost == 1
    assert sorted(bench.used) == list(range(4))


async def test_released_call_is_made_again(bench: Bench) -> None:
    async with served(bench) as (_, _, client):
        lease = await lease_of(client)
        assert (await client.post(f"/leases/{lease['lease']}/release")).status_code == 200
        assert (await lease_of_first(client))["ordinal"] == 0
    assert sorted(bench.used) == list(range(4))


async def lease_of_first(client: Any) -> dict[str, Any]:
    lease = await lease_of(client)
    await client.post(f"/leases/{lease['lease']}/complete", json={"value": lease["element"]})
    return lease


async def test_failed_call_is_repeated(bench: Bench) -> None:
    async with served(bench, retries=1) as (_, made, client):
        lease = await lease_of(client)
        await client.post(f"/leases/{lease['lease']}/fail", json={"error": "no memory"})
    assert made.statistics().failures == 1
    assert sorted(bench.used) == list(range(4))


async def test_failed_call_stops_the_session(bench: Bench) -> None:
    async def fail() -> None:
        async with served(bench) as (_, _, client):
            lease = await lease_of(client)
            await client.post(f"/leases/{lease['lease']}/fail", json={"error": "no memory"})
            assert (await client.post("/lease")).status_code == 410

    with pytest.raises(RuntimeError, match="An HTTP worker has failed: no memory"):
        await fail()


async def test_element_that_is_no_json_stops_the_session(bench: Bench) -> None:
    async def lease() -> None:
        async with served(bench, [{1, 2}]) as (_, _, client):
            refused = await client.post("/lease")
            assert refused.status_code == 500
            assert "no JSON" in refused.json()["error"]

    with pytest.raises(TypeError, match="Element 0 cannot be sent to an HTTP worker, as it is no JSON"):
        await lease()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/lease", b"", 405, "GET is not allowed here, but: POST"),
        ("POST", "/", b"", 404, "POST lease"),
        ("POST", "/leases/x/other", b"", 404, "POST lease"),
        ("POST", "/leases/x/weights", b"", 405, "POST is not allowed here, but: GET"),
        ("POST", "/lease", b"[]", 400, "must be a JSON object"),
        ("POST", "/lease", b"{", 400, "must be a JSON object"),
        ("POST", "/lease", b"[" * 50_000, 400, "must be a JSON object"),
        ("POST", "/lease", b" " * 70_000, 413, "A body may have 65536 bytes"),
        ("POST", "/lease", b'{"wait": 1}', 400, "Unknown"),
        ("POST", "/lease", b'{"wait_secs": -1}', 400, "wait_secs must be a number from 0 to 60"),
        ("POST", "/lease", b'{"wait_secs": 61}', 400, "wait_secs must be a number"),
        ("POST", "/lease", b'{"wait_secs": true}', 400, "wait_secs must be a number"),
        ("POST", "/lease", b'{"wait_secs": NaN}', 400, "wait_secs must be a number"),
        ("POST", "/leases/x/complete", b'{"value": 1}', 409, "not wanted any more"),
        ("POST", "/leases/ID/complete", b"{}", 400, "Expected"),
        ("POST", "/leases/ID/complete", b'{"value": 1, "ack": "saved"}', 400, "Expected"),
        ("POST", "/leases/ID/complete", b'{"value": 1, "ack": "commit"}', 400, "keep="),
        ("POST", "/leases/ID/complete", b" " * (1 << 24) + b" ", 413, "bytes"),
        ("POST", "/leases/ID/fail", b"{}", 400, "Expected"),
        ("POST", "/leases/ID/fail", b'{"error": 5}', 400, "Expected"),
        ("GET", "/leases/ID/weights", b"", 404, "has no weights"),
    ],
)
async def test_wrong_request_is_refused_and_harms_nothing(
    bench: Bench, method: str, path: str, body: bytes, status: int, text: str
) -> None:
    async with served(bench) as (_, _, client):
        lease = await lease_of(client)
        refused = await client.request(method, path.replace("ID", lease["lease"]), content=body)
        assert refused.status_code == status
        assert text in refused.json()["error"]
        await client.post(f"/leases/{lease['lease']}/complete", json={"value": 0})
    assert sorted(bench.used) == list(range(4))


@pytest.mark.parametrize("token", [None, "x" * 16, TOKEN + "0", "é"])
async def test_other_token_is_refused(bench: Bench, token: str | None) -> None:
    async with served(bench) as (_, made, _):
        stranger = client_of(made.app(token=TOKEN), None)
        headers = {} if token is None else {"authorization": f"Bearer {token}".encode()}
        refused = await stranger.post("/lease", headers=headers)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
    assert sorted(bench.used) == list(range(4))


async def test_wrong_options_are_refused(bench: Bench) -> None:
    async with bench.session() as sess:
        made = sess.produce([1], None)
        with pytest.raises(ValueError, match="16 printable ASCII characters or more"):
            made.app(token="short")
        with pytest.raises(ValueError, match="must be more than 0, got 0"):
            made.app(token=TOKEN, lease_secs=0)


async def test_other_protocols_and_loops_are_refused(bench: Bench) -> None:
    async with bench.session() as sess:
        app = sess.produce([1], None).app(token=TOKEN)
        with pytest.raises(ValueError, match="are for HTTP, not for 'websocket'"):
            await app({"type": "websocket"}, None, None)
        with pytest.raises(RuntimeError, match="in the event loop of its session"):
            await asyncio.to_thread(asyncio.run, app({"type": "http"}, None, None))


async def test_client_that_leaves_while_it_waits_loses_no_call(bench: Bench) -> None:
    sent: list[Any] = []
    left = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)

    messages = iter([{"type": "http.request", "body": b""}])

    async def receive() -> Any:
        for message in messages:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    async with bench.session() as sess:
        made = sess.produce(range(4), None)
        app = made.app(token=TOKEN)
        headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
        scope = {"type": "http", "method": "POST", "path": "/lease", "headers": headers}
        request = asyncio.create_task(app(scope, receive, send))
        await asyncio.sleep(1)
        left.set()
        await request
        assert sent[0]["status"] == 204
        messages = iter([{"type": "http.request", "body": b""}])
        left.clear()
        request = asyncio.create_task(app(scope, receive, send))
        await asyncio.sleep(1)
        request.cancel()  # by a server that stops
        await asyncio.wait([request])
        learner = asyncio.create_task(bench.train(sess, made))
        worker = asyncio.create_task(work(client_of(app)))
        await learner
    await worker
    assert sorted(bench.used) == list(range(4))


async def test_result_from_before_a_kill_is_refused(bench: Bench) -> None:
    async with served(bench) as (sess, _, client):
        lease = await lease_of(client)
        sess.request_stop()
    async with served(bench) as (_, _, client):
        path = f"/leases/{lease['lease']}/complete"
        assert (await client.post(path, json={"value": "late"})).status_code == 409
    assert sorted(bench.used) == list(range(4))


async def test_completion_after_the_end_of_the_session_is_refused(bench: Bench) -> None:
    async with served(bench) as (sess, made, client):
        lease = await lease_of(client)
        sess.request_stop()
    path = f"/leases/{lease['lease']}/complete"
    assert (await client.post(path, json={"value": 0})).status_code == 409
    assert (await client.post("/lease")).status_code == 410
    assert made.statistics().running == 0


# -- weights


async def test_weights_come_with_their_version_and_only_if_they_are_new(bench: Bench) -> None:
    seen: list[tuple[int, float]] = []

    async def look(client: Any) -> None:
        known = {}
        while (found := await client.post("/lease")).status_code != 410:
            if found.status_code == 204:
                continue
            path = f"/leases/{found.json()['lease']}"
            answer = await client.get(f"{path}/weights", headers=known)
            if answer.status_code == 200:
                weight = float(safetensors_numpy.load(answer.content)["weight"])
                known = {"if-none-match": answer.headers["etag"]}
            version = int(answer.headers["x-version"])
            seen.append((version, weight))
            await client.post(f"{path}/complete", json={"value": version})

    items: list[Any] = []
    async with bench.session() as sess:
        made = sess.produce(range(16), None, weights={"weight": "weight"}, max_age=1, workers=2)
        client = client_of(made.app(token=TOKEN))
        workers = [asyncio.create_task(look(client)) for _ in range(2)]
        async for batch in made.batches(4):
            items += batch
            await sess.run("use", {"batch": [item.value for item in batch]})
    await asyncio.gather(*workers)
    assert all(version == weight for version, weight in seen)
    assert all(item.version == item.value for item in items)
    assert max(version for version, _ in seen) > 1


async def test_weights_of_any_shape_are_named_arrays(bench: Bench) -> None:
    program = FunctionProgram({"layer": {"w": np.asarray([[1, 3], [2, 4]]).T, "b": [1.0, 2.0]}})

    @program.step
    async def use(state: Any, batch: Any) -> None:
        bench.used.extend(batch)

    bench.program = lambda: program  # type: ignore[method-assign]  # of this test
    weights = {"w": "layer/w", "b": ["layer/b/0", "layer/b/1"]}
    async with served(bench, range(2), weights=weights) as (_, _, client):
        lease = await lease_of(client)
        answer = await client.get(f"/leases/{lease['lease']}/weights")
        arrays = safetensors_numpy.load(answer.content)
        await client.post(f"/leases/{lease['lease']}/complete", json={"value": 0})
    found = {name: array.tolist() for name, array in arrays.items()}
    assert found == {"w": [[1, 2], [3, 4]], "b/0": 1, "b/1": 2}


# -- acknowledgements


async def test_acknowledgement_waits_for_the_commit_of_the_result(bench: Bench) -> None:
    async with served(bench, range(8), keep="results", save_steps=3) as (sess, _, client):
        lease = await lease_of(client)
        path = f"/leases/{lease['lease']}/complete"
        body = {"value": 0, "ack": "commit", "wait_secs": 1}
        waiting = await client.post(path, json=body)
        assert (waiting.status_code, waiting.json()) == (202, {"committed": False})
        again = asyncio.create_task(client.post(path, json={**body, "wait_secs": 60}))
        working = asyncio.create_task(work(client))
        done = await again
        assert (done.status_code, done.json()) == (200, {"committed": True})
        assert sess.global_step >= 3
        assert (await client.post(path, json=body)).json() == {"committed": True}
    await working
    assert sorted(bench.used) == list(range(8))


async def test_acknowledged_result_is_not_made_again(bench: Bench) -> None:
    async with served(bench, range(8), keep="results", save_steps=1) as (sess, _, client):
        lease = await lease_of(client)
        acknowledged = asyncio.create_task(
            client.post(
                f"/leases/{lease['lease']}/complete",
                json={"value": "kept", "ack": "commit", "wait_secs": 60},
            )
        )
        await asyncio.sleep(1)
        sess.request_stop()  # the last checkpoint follows
    assert (await acknowledged).json() == {"committed": True}
    assert not bench.used
    async with served(bench, range(8), keep="results"):
        pass
    assert sorted(map(str, bench.used)) == [*map(str, range(1, 8)), "kept"]


async def test_acknowledgement_ends_with_a_session_that_saves_no_more(bench: Bench) -> None:
    async with served(bench, range(8), keep="results", save_steps=None) as (sess, _, client):
        lease = await lease_of(client)
        path = f"/leases/{lease['lease']}/complete"
        body = {"value": 0, "ack": "commit", "wait_secs": 60}
        acknowledged = asyncio.create_task(client.post(path, json=body))
        await asyncio.sleep(1)
        sess.request_stop()
    assert (await acknowledged).status_code == 410


async def test_acknowledgement_that_no_request_waits_for_ends_without_a_log_line(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(bench, range(8), keep="results", save_steps=None) as (sess, _, client):
        lease = await lease_of(client)
        body = {"value": 0, "ack": "commit", "wait_secs": 0}
        found = await client.post(f"/leases/{lease['lease']}/complete", json=body)
        assert found.status_code == 202
        sess.request_stop()
    await wait_all_tasks_blocked()
    del client
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


# -- recoveries


async def test_recovery_without_loss_leaves_leases_alone(bench: Bench) -> None:
    async with served(bench, range(6), hooks=[FailAfterCommit(2)], depth=6) as (_, made, client):
        lease = await lease_of(client)
        working = asyncio.create_task(work(client))
        await asyncio.sleep(30)  # the recovery is over, and the others are used
        path = f"/leases/{lease['lease']}/complete"
        assert (await client.post(path, json={"value": 0})).status_code == 200
    await working
    assert made.statistics().lost == 0
    assert sorted(set(bench.used)) == list(range(6))


async def test_recovery_that_loses_steps_refuses_the_results_of_open_leases(bench: Bench) -> None:
    async with served(bench, range(12), hooks=[FailAfterCommit(2)], save_steps=10, depth=12) as parts:
        _, _, client = parts
        lease = await lease_of(client)
        working = asyncio.create_task(work(client))
        await asyncio.sleep(30)
        path = f"/leases/{lease['lease']}/complete"
        assert (await client.post(path, json={"value": "late"})).status_code == 409
    await working
    assert set(bench.used) == set(range(12))
