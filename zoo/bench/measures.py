"""What the steps and peaks of benchmark cells come to, and on what machine."""

import csv
import math
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from zoo.bench.cells import Result
from zoo.files import replacing

MIB = 2**20
ALLOCATOR_SETTINGS = (
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "LD_PRELOAD",
    "TF_GPU_ALLOCATOR",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TF_CUDNN_USE_AUTOTUNE",
    "NVIDIA_TF32_OVERRIDE",
    "TF_CPU_ALLOCATOR_USE_BFC",
)


def measure_of(counted: Sequence[float | None]) -> str:
    """Returns the measure of memory by which all cells can be compared.

    Args:
        counted: What each cell's allocator counted; None where it does not.

    Returns:
        "allocator" where all count, else "resident".
    """
    return "resident" if any(value is None for value in counted) else "allocator"


def slope(results: Sequence[Result], which: str) -> float | None:
    """Returns bytes an image: the peak's slope over the smallest and the largest batch of one cell's settings.

    Args:
        results: Of cells that differ in the batch only.
        which: "resident_peak" or "allocator_peak".
    """
    ordered = sorted(results, key=lambda result: result.cell.batch)
    if len(ordered) < 2:
        return None
    first, last = getattr(ordered[0], which), getattr(ordered[-1], which)
    if first is None or last is None:
        return None
    return float(last - first) / (ordered[-1].cell.batch - ordered[0].cell.batch)


def largest_batch(results: Sequence[Result], which: str, limit: float) -> int | None:
    """Returns the most images that fit a limit in bytes, by the straight line through the measured peaks."""
    grows = slope(results, which)
    if not grows or grows <= 0:
        return None
    base = min(results, key=lambda result: result.cell.batch)
    return max(0, int(base.cell.batch + (limit - getattr(base, which)) / grows))


def median_interval(count: int) -> tuple[int, int]:
    """Returns which order statistics enclose the median with 95 % confidence (binomial, exact)."""
    tail, low = 0.5**count, 0
    while tail + math.comb(count, low + 1) * 0.5**count <= 0.025:
        low += 1
        tail += math.comb(count, low) * 0.5**count
    return low, count - 1 - low


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median of the rounds' ratios and the 95 % interval of that median."""
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    low, high = median_interval(len(ratios))
    return median(ratios), ratios[low], ratios[high]


def machine() -> str:
    """Returns the processor's name, its count, and which fast bfloat16 it has."""
    name, flags = platform.processor() or platform.machine(), ""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in lines.items()}
        name, flags = fields.get("model name", name), fields.get("flags", "")
    half = [flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags.split()]
    return f"{name} x{os.cpu_count()}, {' '.join(half) or 'no bfloat16 instructions'}"


def allocator_settings() -> str:
    """Returns the settings of allocators, of autotuning and TF32, that are not the default."""
    chosen = [f"{name}={os.environ[name]}" for name in ALLOCATOR_SETTINGS if os.environ.get(name)]
    return " ".join(chosen) or "default"


def command() -> str:
    """Returns the command line of this process, with the last parts of paths of this machine."""
    script = Path(sys.argv[0])
    called = ["python", f"{script.parent.name}/{script.name}"] if script.suffix == ".py" else [script.name]
    return shlex.join([*called, *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])


def in_rounds(steps: Sequence[Callable[[], Any]], rounds: int, warmup: int = 3) -> list[list[float]]:
    """Times functions in turn, forwards and backwards by turns; returns the seconds of each."""
    for step in steps:
        for _ in range(warmup):
            step()
    seconds: list[list[float]] = [[] for _ in steps]
    for turn in range(rounds):
        order = range(len(steps)) if turn % 2 == 0 else range(len(steps) - 1, -1, -1)
        for number in order:
            started = time.perf_counter()
            steps[number]()
            seconds[number].append(time.perf_counter() - started)
    return seconds


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the rows, whose keys are the columns; the file appears whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0]])
        table.writeheader()
        table.writerows(rows)
