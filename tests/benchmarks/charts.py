"""The charts of the figures: a small one for the README, and one of the costs by size."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from harness import Row

HEADLINES = {
    ("above the raw run, 0 hooks", "TF1"): "a monitored step, no hooks / TensorFlow 1",
    ("above the raw run, default hooks", "TF1"): "a monitored step, default hooks / TensorFlow 1",
    ("scalar", "TF1"): "a run of a scalar / TensorFlow 1",
    ("queue: enqueue op", "TF1"): "enqueue and dequeue / TensorFlow 1",
    ("mlp-784-128", "TF1"): "an MLP step of 1 ms / TensorFlow 1",
    ("torch-conv", "TF1"): "a convolution step / TensorFlow 1",
    ("torch-1ms", "bare loop"): "a PyTorch step of 1 ms / a bare loop",
    ("torch-1ms", "lightning"): "a PyTorch step of 1 ms / Lightning",
    ("torch-1ms", "ignite"): "a PyTorch step of 1 ms / Ignite",
    ("save, checksummed", "safetensors"): "a save with checksums / safetensors",
    ("restore, checksummed", "safetensors"): "a restore with checksums / safetensors",
    ("a service that learns", "p99 by hand"): "p99 of a service beside training / by hand",
}
"""The start of a row's name and the peer, and what the README calls the ratio. At most 12."""

FASTER, SLOWER = "#2a7f62", "#c8553d"


def ratios_of(rows: list[Row]) -> dict[tuple[str, str], float]:
    """Return the ratios by the name of the row and the peer."""
    return {(row.work, peer): ratio for row in rows for peer, ratio in row.ratios.items()}


def ratios_on(page: Path) -> dict[tuple[str, str], float]:
    """Return the ratios in the table of a written page."""
    found = {}
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) >= 3:
            for ratio, peer in re.findall(r"([\d.]+)x ([^,]+)", cells[2]):
                found[cells[0], peer.strip()] = float(ratio)
    return found


def draw_headlines(ratios: dict[tuple[str, str], float], file: Path) -> None:
    """Draw the chart of the README, 600 pixels wide: our time over a peer's, one bar each."""
    bars = [
        (
            label,
            next((r for (work, p), r in ratios.items() if p == peer and work.startswith(row)), None),
        )
        for (row, peer), label in HEADLINES.items()
    ]
    shown = sorted(((ratio, label) for label, ratio in bars if ratio is not None))
    figure, axes = plt.subplots(figsize=(6, 0.26 * len(shown) + 0.7), layout="constrained")
    values = [ratio for ratio, _ in shown]
    axes.barh(
        range(len(shown)),
        [value - 1 for value in values],
        left=1,
        color=[FASTER if value <= 1 else SLOWER for value in values],
    )
    axes.set_yticks(range(len(shown)), [label for _, label in shown], fontsize=8)
    for place, value in enumerate(values):
        side = "right" if value <= 1 else "left"
        axes.annotate(
            f"{value:.2f}", (value, place), (-3 if value <= 1 else 3, 0), textcoords="offset points",
            ha=side, va="center", fontsize=7,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(0.6 * min(values), 1.7 * max(max(values), 1))
    axes.set_xticks([0.1, 1], ["a tenth", "equal"], fontsize=8)
    axes.minorticks_off()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("our time / the peer's: green is faster", fontsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(file, dpi=100)
    plt.close(figure)


def draw_curves(rows: list[Row], file: Path) -> None:
    """Draw a panel for each cost by size."""
    curves = [row for row in rows if row.points]
    across = 3
    down = max(1, -(-len(curves) // across))
    figure, grid = plt.subplots(
        down, across, figsize=(11, 2.6 * down), squeeze=False, layout="constrained"
    )
    for axes, row in zip(grid.flat, curves, strict=False):
        axes.loglog(*zip(*row.points, strict=True), marker="o", markersize=3, color=FASTER)
        axes.set_title(row.work, fontsize=8)
        axes.tick_params(which="both", labelsize=7)
    for axes in list(grid.flat)[len(curves) :]:
        axes.set_axis_off()
    figure.savefig(file, dpi=120)
    plt.close(figure)
