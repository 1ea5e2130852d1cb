"""Train on five processes, two of them parameter servers. One of each kind is killed on the way."""

import argparse
import asyncio
import json
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

WORKERS = 3
KILLS = {400: ("worker", 2), 800: ("ps", 1)}
"""The steps at which the parent kills a task with SIGKILL, and starts it again."""


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw the loss of each worker over time, kills as lines, recoveries as dots."""
    start = min(line["time"] for line in lines)
    axis = (figure := Figure(figsize=(9, 4), layout="constrained")).subplots()
    for task in range(WORKERS):
        mine = [x for x in lines if x.get("worker") == task and "loss" in x]
        points = [(x["time"] - start, x["loss"]) for x in mine]
        axis.plot(*zip(*points, strict=True), ".", ms=2, label=f"worker {task}")
    for line in lines:
        if "killed" in line:
            axis.axvline(line["time"] - start, color="black", ls=":")
            axis.text(line["time"] - start, 0.5, f" {line['killed']} is killed")
        elif "recovered" in line:
            height = 0.004 * 1.3 ** line["worker"]
            axis.plot(line["time"] - start, height, "o", color=f"C{line['worker']}")
    axis.set(yscale="log", xlabel="seconds", ylabel="loss", title="dots below: a worker has recovered")
    axis.legend()
    figure.savefig(path, dpi=120)


async def main(directory: Path) -> None:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(5)]
    addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    cluster = {"ps": addresses[:2], "worker": addresses[2:]}
    for one in sockets:
        one.close()
    running: dict[tuple[str, int], Any] = {}
    lines: list[dict[str, Any]] = []
    kills = dict(KILLS)

    async def run(job: str, task: int) -> None:
        command = [
            *(sys.executable, Path(__file__).with_name("cluster_task.py"), "--dir", directory),
            *("--cluster", json.dumps(cluster), "--job", job, "--task", str(task)),
        ]
        child = await asyncio.create_subprocess_exec(*command, stdout=-1)
        running[job, task] = child
        async for line in child.stdout:
            lines.append(json.loads(line))
            at = min(kills, default=0)
            if at and lines[-1].get("step", 0) >= at:
                name = kills.pop(at)
                running[name].kill()
                lines.append({"time": time.time(), "killed": f"{name[0]} {name[1]}"})
        status = await child.wait()
        if status == -signal.SIGKILL:
            await run(job, task)
        elif status not in (0, -signal.SIGTERM):
            raise RuntimeError(f"{job} {task} ended with exit status {status}.")

    servers = [asyncio.create_task(run("ps", task)) for task in range(2)]
    await asyncio.gather(*[run("worker", task) for task in range(WORKERS)])
    for task in range(2):
        running["ps", task].terminate()
    await asyncio.gather(*servers)
    await asyncio.to_thread(draw, lines, directory / "cluster.png")
    recovered = sum("recovered" in line for line in lines)
    (accuracy,) = [x["accuracy"] for x in lines if x.get("worker") == 0 and "accuracy" in x]
    picture = directory / "cluster.png"
    print(f"accuracy {100 * accuracy:.2f} %, {recovered} recoveries, picture {picture}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("runs/cluster"))
    directory = parser.parse_args().dir
    directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(directory))
