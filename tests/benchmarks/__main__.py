"""All figures with one command: ``python -m tests.benchmarks``.

Each script runs in a process of its own, one after the other; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from harness import Row, cells, show  # noqa: E402  # the scripts are no package
from reasons import REASONS  # noqa: E402

SCRIPTS = {
    "step_overhead": ["none", "fetching", "default", "function"],
    "engine": ["scalar", "mlp-small", "mlp-784-128", "conv", "peek"],
    "mechanisms": ["arena", "groups", "no-task"],
    "queues": ["round-trip", "shuffle_batch"],
    "checkpoint": ["checkpoint"],
    "checkpoint_steps": ["checkpoint_steps"],
    "programs": ["function"],
    "service": [],
    "scale": ["hooks", "nodes", "variables"],
}
"""Each script, and the rows of it that a quick run measures."""

PEERS = {
    "tensorflow": (["tensorflow-cpu", "tf_keras"], "ASYNCMON_PEER_PYTHON"),
    "torch": (["torch==2.13.0", "jax", "optax", "ml-dtypes"], "ASYNCMON_TORCH_PYTHON"),
}
"""The peers' environments: packages, and the variable that names their interpreter."""


def make_peers(place: Path) -> None:
    """Make the peers' environments where they are missing, and name them in this process's own.

    Asyncmon is in that of torch: rows of engines are measured within one process.
    """
    for name, (packages, variable) in PEERS.items():
        python = place / name / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(place / name)], check=True)
            wanted = [*packages, *(["-e", f"{ROOT}[test]"] if name == "torch" else [])]
            print(f"installing {' '.join(wanted)}", file=sys.stderr)
            subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
        os.environ[variable] = str(python)


def measured(script: str, rows: list[str], timeout: float) -> list[Row]:
    """Run a script; return its rows, or one that says how it failed."""
    python = os.environ.get("ASYNCMON_TORCH_PYTHON", sys.executable)
    command = [python, str(HERE / f"{script}.py"), "--json", *rows]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=timeout, check=False)
        return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]
    except (subprocess.TimeoutExpired, IndexError, ValueError) as problem:
        return [Row(script, f"failed: {type(problem).__name__}", "runs to its end", False)]


PACKAGES = ["asyncmon", "numpy", "anyio", "grpcio", "msgspec", "safetensors"]


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
    }


def peer_versions() -> list[str]:
    """Return a line with the versions of the peers, if there are any."""
    found = []
    for packages, variable in PEERS.values():
        names = [name.partition("==")[0] for name in packages]
        code = (
            f"from importlib.metadata import version\nfor name in {names}: print(name, version(name))"
        )
        if python := os.environ.get(variable):
            done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
            found += done.stdout.splitlines()
    return [f"Peers: {', '.join(found)}."] if found else []


def write_page(rows: list[Row], secs: float) -> None:
    """Write ``docs/benchmarks.md`` and its chart."""
    draw(rows, ROOT / "docs" / "images" / "benchmarks.png")
    met = [row.met for row in rows if row.met is not None]
    on = machine()
    lines = [
        "# Benchmarks",
        "",
        f"One run of `python -m tests.benchmarks {' '.join(sys.argv[1:])}`, {secs / 60:.0f} minutes, "
        f"on {on['cores']} cores of {on['processor']} ({on['system']}), Python {on['python']}.",
        "Versions: " + ", ".join(f"{name} {on[name]}" for name in PACKAGES) + ".",
        *peer_versions(),
        "",
        f"{sum(met)} of {len(met)} rows with a limit are met. A ratio is our time over the peer's in "
        "the same run, in turns: below 1 is faster.",
        "Other machines give other times; the ratios vary by 10 %, and by more where a step is some "
        "microseconds.",
        "",
        "![Ratios to peers, and costs by size](images/benchmarks.png)",
        "",
        "| what | measured | ratio | wanted | |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        work, said, ratio, wanted, verdict = cells(row)
        line = f"| {work} | {said} | {ratio} | {wanted.strip('()')} | {verdict.lower()} |"
        lines.append(line.replace("**", "^"))
    missed = [row.work for row in rows if row.met is False]
    whys = [(name, why) for name, why in REASONS.items() if any(x.startswith(name) for x in missed)]
    if whys:
        lines += ["", "## Why rows are not met", "", *[f"- **{name}**: {why}" for name, why in whys]]
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join(lines) + "\n")


def draw(rows: list[Row], file: Path) -> None:
    """Draw a bar for each ratio, and a panel for each curve."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    bars = [
        (f"{row.work} / {peer}", ratio, row.met) for row in rows for peer, ratio in row.ratios.items()
    ]
    curves = [row for row in rows if row.points]
    across = 3
    down = -(-len(curves) // across)
    figure = plt.figure(figsize=(11, 0.27 * len(bars) + 2.6 * down + 1.5), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=[0.27 * len(bars) + 1, max(2.6 * down, 0.1)])
    if bars:
        axes = upper.subplots()
        colors = {True: "#2a7f62", False: "#c8553d", None: "#8a8f98"}
        values = [ratio for _, ratio, _ in bars]
        axes.barh(
            range(len(bars)),
            [value - 1 for value in values],
            left=1,
            color=[colors[met] for *_, met in bars],
        )
        axes.set_yticks(range(len(bars)), [name for name, *_ in bars], fontsize=8)
        axes.set_xscale("log")
        axes.set_xlim(min(0.02, 0.8 * min(values)), max(4, 1.3 * max(values)))
        axes.axvline(1, color="black", linewidth=0.8)
        axes.invert_yaxis()
        axes.set_xlabel("our time / the peer's: left of 1 is faster (green: as wanted, red: not)")
    for axes, row in zip(
        lower.subplots(down, across, squeeze=False).flat if down else (), curves, strict=False
    ):
        axes.loglog(*zip(*row.points, strict=True), marker="o", markersize=3, color="#2a7f62")
        axes.set_title(row.work, fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in lower.axes[len(curves) :]:
        axes.set_axis_off()
    figure.savefig(file, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds of the main rows: 3 minutes")
    parser.add_argument("--only", action="append", metavar="SCRIPT[:ROW]", help="may be given often")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md and its chart")
    parser.add_argument(
        "--peers", type=Path, nargs="?", const=ROOT / ".peers", metavar="FOLDER",
        help="make environments with TensorFlow, torch and JAX there first",
    )  # fmt: skip
    options = parser.parse_args()
    if options.peers:
        make_peers(options.peers.resolve())
    if options.quick:
        os.environ["ASYNCMON_QUICK"] = "1"
    work = {
        name: rows if options.quick else []
        for name, rows in SCRIPTS.items()
        if rows or not options.quick
    }
    if options.only:
        work = {}
        for name, _, row in (one.partition(":") for one in options.only):
            if name not in SCRIPTS:
                parser.error(f"no script is called {name!r}; there are {', '.join(SCRIPTS)}")
            work.setdefault(name, []).extend([row] if row else [])
    everything: list[Row] = []
    start = time.monotonic()
    for script, rows in work.items():
        found = measured(script, rows, 3600)
        show(f"{script} ({time.monotonic() - start:.0f} s)", found)
        everything += found
    met = [row.met for row in everything if row.met is not None]
    print(f"\n{sum(met)} of {len(met)} rows met, {time.monotonic() - start:.0f} s")
    if options.docs:
        write_page(everything, time.monotonic() - start)
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
