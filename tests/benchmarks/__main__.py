"""All figures with one command: ``python -m tests.benchmarks``.

Each script runs in a process of its own, one after the other, on an otherwise idle machine.
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
from charts import draw_curves, draw_headlines, ratios_of, ratios_on  # noqa: E402  # no package
from harness import Row, cells, show  # noqa: E402
from rows import ROWS  # noqa: E402

PEERS = {
    "tensorflow": (["tensorflow-cpu", "tf_keras"], "ASYNCMON_PEER_PYTHON"),
    "torch": (
        ["torch==2.13.0", "jax", "optax", "ml-dtypes", "pytorch-ignite", "lightning"],
        "ASYNCMON_TORCH_PYTHON",
    ),
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


def write_page(found: list[tuple[str, Row]], secs: float) -> None:
    """Write ``docs/benchmarks.md``, and its charts."""
    images, rows = ROOT / "docs" / "images", [row for _, row in found]
    draw_headlines(ratios_of(rows), images / "benchmarks.png")
    draw_curves(rows, images / "costs.png")
    table = [(script, row) for script, row in found if not row.points]
    curves = [(script, row) for script, row in found if row.points]
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
        "microseconds. `python tests/benchmarks/engine.py scalar` measures one row by itself.",
        "",
        "![Bars: our time over the peer's time](images/benchmarks.png)",
        "",
        "| what | measured | ratio | wanted | | guards | row |",
        "|---|---|---|---|---|---|---|",
    ]
    for script, row in table:
        guard = ROWS[script][row.name]
        work, said, ratio, wanted, verdict = cells(row)
        missed = f": {guard.why}" if row.met is False and guard.why else ""
        lines.append(
            f"| {work} | {said} | {ratio} | {wanted.strip('()')} | {verdict.lower()}{missed} | "
            f"{guard.decision} | `{script}.py {row.name}` |"
        )
    lines += [
        "",
        "## Costs by size",
        "",
        "`python tests/benchmarks/scale.py` measures the costs at several sizes, and fits a power of "
        "the size through them.",
        "",
        "![Costs by size](images/costs.png)",
        "",
        "| what | measured | wanted | | row |",
        "|---|---|---|---|---|",
    ]
    for script, row in curves:
        work, said, _, wanted, verdict = cells(row)
        line = (
            f"| {work} | {said} | {wanted.strip('()')} | {verdict.lower()} | `{script}.py {row.name}` |"
        )
        lines.append(line.replace("**", "^"))
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds of the main rows: 3 minutes")
    parser.add_argument("--only", action="append", metavar="SCRIPT[:ROW]", help="may be given often")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md and its charts")
    parser.add_argument(
        "--chart", action="store_true", help="draw the chart of docs/benchmarks.md again, and no more"
    )
    parser.add_argument(
        "--peers", type=Path, nargs="?", const=ROOT / ".peers", metavar="FOLDER",
        help="make environments with TensorFlow, torch and JAX there first",
    )  # fmt: skip
    options = parser.parse_args()
    if options.chart:
        page = ROOT / "docs" / "benchmarks.md"
        draw_headlines(ratios_on(page), page.parent / "images" / "benchmarks.png")
        return 0
    if options.peers:
        make_peers(options.peers.resolve())
    if options.quick:
        os.environ["ASYNCMON_QUICK"] = "1"
    work = {
        script: names
        for script, rows in ROWS.items()
        if (names := [name for name, guard in rows.items() if guard.quick or not options.quick])
    }
    if options.only:
        work = {}
        for name, _, row in (one.partition(":") for one in options.only):
            if name not in ROWS:
                parser.error(f"no script is called {name!r}; there are {', '.join(ROWS)}")
            work.setdefault(name, []).extend([row] if row else [])
    everything: list[tuple[str, Row]] = []
    start = time.monotonic()
    for script, rows in work.items():
        found = measured(script, rows, 3600)
        show(f"{script} ({time.monotonic() - start:.0f} s)", found)
        everything += [(script, row) for row in found]
    met = [row.met for _, row in everything if row.met is not None]
    print(f"\n{sum(met)} of {len(met)} rows met, {time.monotonic() - start:.0f} s")
    if options.docs:
        write_page(everything, time.monotonic() - start)
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
