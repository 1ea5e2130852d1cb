"""A cluster of simulated processes that counts, with all of its promises checked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

import asyncmon as am
from asyncmon import graph as g
from tests.simulation import Report, simulate

CLUSTER = {
    "ps": ["ps0:2222", "ps1:2222"],
    "worker": ["worker0:2222", "worker1:2222", "worker2:2222"],
}
DIRECTORY = "/run"
TIMEOUT_SECS = 6.0

Main = Callable[[], Awaitable[Any]]


def config() -> am.SessionConfig:
    made = am.SessionConfig()
    made.rpc_options.token = "secret"
    made.rpc_options.timeout_secs = TIMEOUT_SECS
    return made


class Run:
    """What the processes of a simulation have seen.

    Attributes:
        saved: the step of the last acknowledged checkpoint.
        is_exact: whether each checkpoint is read when it is saved, as nothing fails.
        starts: the steps at which sessions began, by task.
        done: the number of steps that were completed.
        highest: the highest step that a session has seen.
        rollbacks: the number of times that the chief began below it.
        done_before_save: how many of them when the last checkpoint was ordered. Later ones of a worker
            that the chief did not wait for, because it was silent, are not in that checkpoint.
        values: those of the last checkpoint.
    """

    def __init__(
        self,
        last: int = 120,
        step_secs: float = 0.1,
        save_steps: int = 10,
        listeners: list[am.CheckpointSaverListener] | None = None,
    ) -> None:
        self.last = last
        self.step_secs = step_secs
        self.save_steps = save_steps
        self.listeners = listeners or []
        self.saved = 0
        self.is_exact = False
        self.starts: dict[str, list[int]] = {}
        self.done = 0
        self.highest = 0
        self.rollbacks = 0
        self.done_before_save = 0
        self.values: dict[str, Any] = {}

    def programs(self) -> dict[str, Main]:
        count = len(CLUSTER["worker"])
        names = ["chief", *(f"worker/{i}" for i in range(1, count))]
        return {name: lambda i=i: self.work(i) for i, name in enumerate(names)}  # type: ignore[misc]  # a lambda

    def services(self) -> dict[str, Main]:
        return {f"ps/{i}": lambda i=i: self.serve(i) for i in range(len(CLUSTER["ps"]))}  # type: ignore[misc]  # a lambda

    def simulate(self, *args: Any, deadline_secs: float = 400.0, **options: Any) -> Report:
        report = simulate(
            self.programs(), *args, services=self.services(), deadline_secs=deadline_secs, **options
        )
        self.values = simulate({"read": read}, disk=report.disk).results["read"]
        self.check_end(any("kill ps" in line or "crash ps" in line for line in report.log))
        return report

    async def serve(self, task: int) -> None:
        try:
            async with am.Server(CLUSTER, "ps", task, config=config()) as server:
                await server.join()
        finally:
            assert not server.service.num_sessions
            assert not server.executor.store.has_pins, "memory of a snapshot is not released"

    async def work(self, task: int) -> int:
        if task == 0 and self.saved:
            # its name has the step at which it was ordered: others continue until the snapshot
            async with await am.load_checkpoint(DIRECTORY) as newest:
                assert newest.facts.step >= self.saved, "a checkpoint is lost"
        async with am.Server(CLUSTER, "worker", task, config=config()) as server:
            own = f"/job:worker/task:{task}"
            with g.device(am.replica_device_setter(cluster=CLUSTER, worker_device=own)):
                step = am.get_or_create_global_step()  # on ps 0, as `beside`; `apart` is on ps 1
                apart = g.get_variable("apart", [8], initializer=g.zeros_initializer())
                beside = g.get_variable("beside", [8], initializer=g.zeros_initializer())
                ones = np.ones(8, np.float32)
                train = g.group(apart.assign_add(ones), beside.assign_add(ones), step.assign_add(1))
            hooks = [am.StopAtStepHook(last_step=self.last), _Watch(self, task)]
            saver = am.CheckpointSaverHook(
                DIRECTORY, save_steps=self.save_steps, listeners=[_Saves(self), *self.listeners]
            )
            async with am.MonitoredTrainingSession(
                server.target, task == 0, DIRECTORY, hooks=hooks, save_checkpoint_secs=None,
                chief_only_hooks=[saver],
            ) as sess:  # fmt: skip
                while not sess.should_stop():
                    await asyncio.sleep(self.step_secs)
                    await sess.run(train)
                    self.done += 1
                    with contextlib.suppress(am.errors.AbortedError, am.errors.UnavailableError):
                        found = await sess.peek({"step": step, "apart": apart, "beside": beside})
                        self.check(found)
                        self.highest = max(self.highest, int(found["step"]))
        return int(sess.global_step or 0)

    def check(self, values: dict[str, Any]) -> None:
        for name in ("apart", "beside"):
            assert len(set(values[name])) == 1, f"{name} is torn: {values[name]}"
        assert values["beside"][0] == values["step"], f"ps 0 has a part of a step: {values}"

    def check_end(self, lost_servers: bool) -> None:
        self.check(self.values)
        step, apart = int(self.values["step"]), int(self.values["apart"][0])
        assert step >= self.last
        assert step >= self.saved
        ambiguous = sum(map(len, self.starts.values()))  # each session ends with one such step at most
        assert step <= self.done + ambiguous, "a step was applied twice"
        assert step <= self.last + len(CLUSTER["worker"]) + ambiguous, "a stop came late"
        if not (lost_servers or self.rollbacks):
            assert abs(apart - step) <= ambiguous, "steps are on one server only"
            assert step >= self.done_before_save, "a completed step is lost"


async def read() -> dict[str, Any]:
    """Return the values of the newest checkpoint."""
    async with await am.load_checkpoint(DIRECTORY) as reader:
        names = {"step": "global_step", "apart": "apart", "beside": "beside"}
        return {key: await reader.get_tensor(name) for key, name in names.items()}


class _Saves(am.CheckpointSaverListener):
    def __init__(self, run: Run) -> None:
        self._run = run

    async def before_save(self, session: Any, global_step_value: int) -> None:
        self._run.done_before_save = self._run.done

    async def after_save(self, session: Any, global_step_value: int) -> None:
        self._run.saved = global_step_value
        if self._run.is_exact:
            values = await read()
            self._run.check(values)
            assert values["step"] == global_step_value


class _Watch(am.SessionRunHook):
    """Checks the step of each new session against the last acknowledged checkpoint."""

    def __init__(self, run: Run, task: int) -> None:
        self._run = run
        self._task = task

    async def after_create_session(self, session: Any, coord: am.Coordinator) -> None:
        step = int(session.global_step)
        self._run.starts.setdefault(f"worker/{self._task}", []).append(step)
        if self._task == 0:
            self._run.rollbacks += step < self._run.highest
            assert step >= self._run.saved, f"step {step} is behind checkpoint {self._run.saved}"
