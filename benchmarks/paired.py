"""Two contenders measured side by side in one run, and the table of what came out.

Each pair times one contender right after the other, in turn first; the ratio of a pair cancels what the machine was
doing. Reported are the median of each contender, the median of the ratios and the 95 % interval of that median.
"""

import csv
import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from zoo.bench.measures import median_interval

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Paired:
    """Seconds a call of ours and theirs, pair by pair."""

    ours: Sequence[float]
    theirs: Sequence[float]

    def row(self) -> dict[str, float]:
        """Returns the medians, the ratio and its 95 % interval."""
        ratios = sorted(a / b for a, b in zip(self.ours, self.theirs, strict=True))
        low, high = median_interval(len(ratios))
        return {
            "ours_ms": 1e3 * median(self.ours),
            "theirs_ms": 1e3 * median(self.theirs),
            "ratio": median(ratios),
            "ratio_low": ratios[low],
            "ratio_high": ratios[high],
            "pairs": len(ratios),
        }


def measure(
    ours: Callable[[], Any], theirs: Callable[[], Any], *, pairs: int = 30, calls: int = 1, warm_up: int = 3
) -> Paired:
    """Times two functions in turn.

    Args:
        ours: What is measured.
        theirs: The peer.
        pairs: Number of pairs.
        calls: Calls of each contender in one timing.
        warm_up: Calls of each before the first timing.

    Returns:
        Seconds a call.
    """
    for function in (ours, theirs):
        for _ in range(warm_up):
            function()
    times: dict[Any, list[float]] = {ours: [], theirs: []}
    for pair in range(pairs):
        for function in (ours, theirs) if pair % 2 else (theirs, ours):
            gc.collect()
            started = time.perf_counter()
            for _ in range(calls):
                function()
            times[function].append((time.perf_counter() - started) / calls)
    return Paired(times[ours], times[theirs])


def write(name: str, rows: Sequence[Mapping[str, Any]], packages: Sequence[str] = ("tensorflow", "keras")) -> Path:
    """Writes rows to ``results/NAME.csv`` with the machine, the versions and the command, and prints them.

    Args:
        name: File name without ending.
        rows: The measurements; all have the same keys.
        packages: Distributions whose versions matter.

    Returns:
        The file.
    """
    about = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": " ".join(
            [f"python {platform.python_version()}", *(f"{p} {metadata.version(p)}" for p in packages)]
        ),
        "command": " ".join(["python", *sys.argv]),
    }
    path = RESULTS / f"{name}.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0], *about])
        table.writeheader()
        for row in rows:
            shown = {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()}
            table.writerow({**shown, **about})
            print("  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
    return path


def machine() -> str:
    """Returns the processor's name and the number of cores this process may use."""
    cpu = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores"
