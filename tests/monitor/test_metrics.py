"""Metrics of sessions, as Prometheus reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import asyncmon as am
from asyncmon import graph
from asyncmon.errors import AbortedError
from asyncmon.monitor import PrometheusMetrics, create_app
from asyncmon.monitor.metrics import KEEP_SECS
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    wait_all_tasks_blocked,
)
from tests.monitor.scripted import client

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Slow(am.SessionRunHook):
    name = "Slow"

    async def before_run(self, run_context: Any) -> None:
        await asyncio.sleep(1)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        await asyncio.sleep(0.5)


@pytest.fixture
def registry() -> prometheus_client.CollectorRegistry:
    return prometheus_client.CollectorRegistry()


class Scrape:
    """What a scrape of a registry gives: values by name and labels."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        text = prometheus_client.generate_latest(registry).decode()
        self.samples = [s for family in text_string_to_metric_families(text) for s in family.samples]

    def __call__(self, name: str, **labels: str) -> float | None:
        labels = {"run": "session", **labels}
        values = [s.value for s in self.samples if s.name == name and s.labels == labels]
        return values[0] if values else None


def scripted(*hooks: Any, raws: Any = None) -> am.MonitoredSession:
    creator = ScriptedCreator(*(raws or [ScriptedSession()]))
    return am.MonitoredSession(creator, hooks, name="session")


async def test_steps_runs_and_hooks(registry: prometheus_client.CollectorRegistry) -> None:
    sess = scripted(Slow(), RecordingHook("Other"))
    PrometheusMetrics(sess, registry)
    async with sess:
        for _ in range(4):
            await sess.run("a")
        await sess.run("a", hooks=False)
        found = Scrape(registry)
    assert found("asyncmon_steps_total") == 4
    assert found("asyncmon_global_step") == 4
    assert found("asyncmon_run_seconds_count") == 4
    assert found("asyncmon_run_seconds_sum") == 6
    assert found("asyncmon_run_seconds_bucket", le="3.0") == 4
    assert found("asyncmon_run_seconds_bucket", le="1.0") == 0
    assert found("asyncmon_hook_seconds_count", hook="Slow") == 8
    assert found("asyncmon_hook_seconds_sum", hook="Slow") == 6
    assert found("asyncmon_hook_seconds_sum", hook="Other") == 0


async def test_checkpoints(tmp_path: Path, registry: prometheus_client.CollectorRegistry) -> None:
    hook = am.CheckpointSaverHook(tmp_path / "x", save_secs=600, saver=am.Saver())
    hook.on_error = "log"
    async with scripted(hook) as sess:
        PrometheusMetrics(sess, registry)
        await sess.run("a")
        path = await sess.save()
        await wait_all_tasks_blocked()
        found = Scrape(registry)
        assert found("asyncmon_checkpoint_seconds_count") == 1
        size = found("asyncmon_checkpoint_bytes")
        assert size == (tmp_path / "x" / f"{path}.safetensors").stat().st_size
        assert found("asyncmon_checkpoint_failures_total") == 0
        await sess.run("a")
        (tmp_path / "x").rename(tmp_path / "y")
        (tmp_path / "x").write_text("a file")
        with pytest.raises(Exception, match="x"):
            await sess.save()
        await wait_all_tasks_blocked()
        assert Scrape(registry)("asyncmon_checkpoint_failures_total") == 1
        (tmp_path / "x").unlink()
        (tmp_path / "y").rename(tmp_path / "x")


async def test_the_monitor_serves_them(registry: prometheus_client.CollectorRegistry) -> None:
    async with scripted() as sess, client(create_app(sess, registry=registry)) as http:
        PrometheusMetrics(sess, registry)
        await sess.run("a")
        served = await http.get("/metrics")
    assert served.headers["content-type"].startswith("text/plain")
    assert 'asyncmon_steps_total{run="session"} 1.0' in served.text.splitlines()


async def test_state_of_the_run(registry: prometheus_client.CollectorRegistry) -> None:
    sess = scripted()
    metrics = PrometheusMetrics(sess, registry)

    def states() -> dict[str, float]:
        found = [one for one in Scrape(registry).samples if one.name == "asyncmon_run_state"]
        return {one.labels["state"]: one.value for one in found}

    async with sess:
        await asyncio.sleep(0.2)
        assert states() == {"opening": 0, "running": 1}
        sess.pause()
        await asyncio.sleep(0.2)
        assert states() == {"opening": 0, "running": 0, "paused": 1}
        sess.request_stop("enough")
    assert states() == {"opening": 0, "running": 0, "paused": 0, "stopped": 1}
    metrics.remove()
    assert states() == {}


async def test_recoveries(registry: prometheus_client.CollectorRegistry) -> None:
    raws = [ScriptedSession([1, 2, AbortedError("gone")]), ScriptedSession([2])]
    sess = scripted(raws=raws)
    PrometheusMetrics(sess, registry)
    async with sess:
        for _ in range(3):
            await sess.run("a")
    found = Scrape(registry)
    assert found("asyncmon_recoveries_total") == 1
    assert (found("asyncmon_steps_total"), found("asyncmon_global_step")) == (2, 1)


async def test_queues_and_lag(registry: prometheus_client.CollectorRegistry) -> None:
    with graph.Graph().as_default():
        am.get_or_create_global_step()
        queue = graph.FIFOQueue(5, [graph.float32], shapes=[[]], name="batches")
        put = queue.enqueue(1.0)
        async with am.MonitoredSession(name="session") as sess:
            PrometheusMetrics(sess, registry)
            assert sess.coord is not None
            sess.coord.channel(8, name="rollouts").send_nowait(1)
            await sess.run(put)
            await asyncio.sleep(2.05)
            found = Scrape(registry)
            assert found("asyncmon_queue_size", queue="batches") == 1
            assert found("asyncmon_queue_size", queue="rollouts") == 1
            assert found("asyncmon_loop_lag_seconds_count") == 20
            assert found("asyncmon_loop_lag_seconds_bucket", le="0.001") == 20
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert Scrape(registry)("asyncmon_queue_size", queue="batches") is None


async def test_pipelines(registry: prometheus_client.CollectorRegistry) -> None:
    async def make(element: int) -> int:
        return element

    async with scripted() as sess:
        PrometheusMetrics(sess, registry)
        made = sess.produce(range(8), make, depth=4, name="rollouts")
        await anext(made.batches(2))
        await asyncio.sleep(2.05)
        found = Scrape(registry)
        assert found("asyncmon_pipeline", pipeline="rollouts", value="held") == 2
        assert found("asyncmon_pipeline", pipeline="rollouts", value="ready") == 4
        assert found("asyncmon_pipeline", pipeline="rollouts", value="mean_age") == 0
    await asyncio.sleep(0)
    assert Scrape(registry)("asyncmon_pipeline", pipeline="rollouts", value="held") is None


async def test_sessions_share_a_registry(registry: prometheus_client.CollectorRegistry) -> None:
    sessions = {name: scripted() for name in ("a", "b")}
    for name, sess in sessions.items():
        PrometheusMetrics(sess, registry, labels={"run": name})
        async with sess:
            await sess.run("a")
    async with scripted() as again:
        PrometheusMetrics(again, registry, labels={"run": "a"})
        await again.run("a")
    found = Scrape(registry)
    assert found("asyncmon_steps_total", run="a") == 2
    assert found("asyncmon_steps_total", run="b") == 1


async def test_further_labels(registry: prometheus_client.CollectorRegistry) -> None:
    PrometheusMetrics(scripted(), registry, labels={"host": "h"})
    assert Scrape(registry)("asyncmon_steps_total", host="h") == 0
    with pytest.raises(ValueError, match=r"here \('host', 'run'\), got \('run',\)"):
        PrometheusMetrics(scripted(), registry)
    with pytest.raises(ValueError, match="cannot have the name 'a-b'"):
        PrometheusMetrics(scripted(), registry, labels={"a-b": "1"})


async def test_nothing_is_counted_after_close(registry: prometheus_client.CollectorRegistry) -> None:
    async with scripted() as sess:
        metrics = PrometheusMetrics(sess, registry)
        await sess.run("a")
        metrics.close()
        metrics.close()
        await sess.run("a")
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert Scrape(registry)("asyncmon_steps_total") == 1


async def test_aclose_waits_for_the_task(registry: prometheus_client.CollectorRegistry) -> None:
    async with scripted() as sess:
        metrics = PrometheusMetrics(sess, registry)
        await asyncio.sleep(1)
        await metrics.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await metrics.aclose()


async def test_an_error_while_measuring_is_logged(
    registry: prometheus_client.CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    class NoQueues(ScriptedSession):
        async def queues(self) -> Any:
            raise KeyError("no such queue")

    async with scripted(raws=[NoQueues()]) as sess:
        metrics = PrometheusMetrics(sess, registry)
        await asyncio.sleep(1)
        assert "not measured any more" in caplog.text
        assert "no such queue" in caplog.text
        await metrics.aclose()


async def test_a_program_without_steps_counts_runs(
    registry: prometheus_client.CollectorRegistry,
) -> None:
    with graph.Graph().as_default():
        value = graph.constant(1.0)
        async with am.MonitoredSession(name="session") as sess:
            PrometheusMetrics(sess, registry)
            await sess.run(value)
    assert Scrape(registry)("asyncmon_steps_total") == 1


async def test_metrics_of_a_closed_session_leave_the_registry_in_time(
    registry: prometheus_client.CollectorRegistry,
) -> None:
    for _ in range(2):  # the second one continues the values of the first
        sess = scripted()
        PrometheusMetrics(sess, registry, {"run": "a"})
        async with sess:
            await sess.run("a")
            await asyncio.sleep(KEEP_SECS - 1)
    assert Scrape(registry)("asyncmon_steps_total", run="a") == 2
    await asyncio.sleep(KEEP_SECS - 1)
    assert Scrape(registry)("asyncmon_steps_total", run="a") == 2
    await asyncio.sleep(2)
    assert Scrape(registry).samples == []


async def test_metrics_of_a_removed_run_leave_the_registry(
    registry: prometheus_client.CollectorRegistry,
) -> None:
    sessions = [scripted(Slow()) for _ in range(3)]
    runs = ("a", "a", "b")
    pairs = zip(sessions, runs, strict=True)
    made = [PrometheusMetrics(sess, registry, {"run": run}) for sess, run in pairs]
    app = create_app(dict(zip(("a", "a2", "b"), sessions, strict=True)))
    for sess in sessions:
        async with sess:
            await sess.run("a")
    app.state.runs.remove("a")  # another session has the same labels
    assert Scrape(registry)("asyncmon_steps_total", run="a") == 2
    app.state.runs.remove("a2")
    found = Scrape(registry)
    assert {sample.labels["run"] for sample in found.samples} == {"b"}
    made[0].remove()
    assert found("asyncmon_hook_seconds_count", run="b", hook="Slow") == 2
