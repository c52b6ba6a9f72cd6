"""Plots of a benchmark: memory against batch and against depth."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.bench.measures import measure_of
from zoo.files import replacing


def plot_batches(rows: Sequence[dict[str, Any]], path: Path) -> Path | None:
    """Draws peak memory against batch, a line for each network and level; None when there is only one batch size."""
    if len({row["batch"] for row in rows}) < 2:
        return None
    return _plot(rows, path, "batch", "images in a step", fit=False)


def plot_depths(rows: Sequence[dict[str, Any]], path: Path) -> Path | None:
    """Draws memory an image against depth with straight-line fits; None with fewer than three depths of one kind."""
    measure = measure_of([row["allocator_peak_mib"] for row in rows])
    chosen = [row for row in rows if row["net"] == "densenet_cifar" and row[f"{measure}_slope_mib"] is not None]
    if len({row["depth"] for row in chosen}) < 3:
        return None
    return _plot(chosen, path, "depth", "depth L", fit=True)


def fit_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Returns slope and offset of the straight line through points, and the largest residual as part of max y."""
    a, b = np.polyfit(x, y, 1)
    return float(a), float(b), float(np.max(np.abs(np.polyval([a, b], x) - np.asarray(y))) / np.max(y))


def growth(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns the power p of y ~ x^p, the slope of the straight line through the logarithms of points."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _plot(rows: Sequence[dict[str, Any]], path: Path, key: str, label: str, fit: bool) -> Path:
    from matplotlib.figure import Figure

    measure = measure_of([row["allocator_peak_mib"] for row in rows])
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    lines: dict[str, dict[float, float]] = {}
    for row in rows:
        net = "" if fit else f"{row['net']} "
        title = f"{net}{row['peer']} {row['memory']} {row['precision']}" + (" XLA" if row["xla"] == "on" else "")
        value = row[f"{measure}_{'slope' if fit else 'peak'}_mib"]
        lines.setdefault(title, {})[float(row[key])] = float(value)
    for title, points in lines.items():
        x, y = zip(*sorted(points.items()), strict=True)
        (line,) = axes.plot(x, y, "o-", label=title)
        if fit and len(x) > 2:
            a, b, residual = fit_line(x, y)
            axes.plot(x, np.polyval([a, b], x), ":", color=line.get_color())
            line.set_label(f"{title}: {a:.3g} L {b:+.3g}, residual {residual:.0%}; grows as L^{growth(x, y):.2f}")
    axes.set_xlabel(label)
    what = {"allocator": "given out by the allocator", "resident": "resident size of the process"}[measure]
    axes.set_ylabel(f"{'MiB an image' if fit else 'peak, MiB'}: {what}")
    axes.set_ylim(0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    with replacing(path, path.suffix) as temporary:
        figure.savefig(temporary, dpi=110)
    return path
