"""Finds the largest batch that really trains, by doubling and bisection, each try in a fresh process."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zoo.bench.cells import Cell, Result
from zoo.bench.peers import gpu_number
from zoo.bench.table import described
from zoo.devices import gpu_memory

_MOST = 2**16  # images that are tried at most


@dataclass(frozen=True)
class Found:
    """What was found for a cell.

    Args:
        largest: The largest batch that trained; 0 if not even one image did.
        failed: The smallest that did not; None if all that were tried did.
        why: Its outcome, and what ended it.
        tries: Processes.
    """

    largest: int
    failed: int | None
    why: str
    tries: int


def find_batch(cell: Cell, run: Callable[[Cell], Result], margin: float, limit: int | None) -> Found:
    """Doubles the batch until it does not train, then halves the gap until it is within the margin.

    Args:
        cell: Its batch does not matter.
        run: Measures a cell in a fresh process.
        margin: Part of the largest batch by which the smallest that fails may be larger; 0 for one image.
        limit: Bytes that the step may take, for a device whose memory does not run out by itself; None elsewhere.
    """
    ends: dict[int, str] = {}

    def trains(batch: int) -> bool:
        result = run(replace(cell, batch=batch))
        peak = result.allocator_peak if result.allocator_peak is not None else result.resident_peak
        if result.ok and limit is not None and (peak or 0) > limit:
            ends[batch] = f"over the limit: took {(peak or 0) / 2**20:,.0f} MiB"
        else:
            ends[batch] = "" if result.ok else f"{result.outcome}: {result.said}"
        return not ends[batch]

    low, high = 0, 1
    while high <= _MOST and trains(high):
        low, high = high, 2 * high
    if high > _MOST:
        return Found(low, None, "", len(ends))
    while high - low > max(1, int(margin * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if trains(middle) else (low, middle)
    return Found(low, high, ends[high], len(ends))


def search_row(cell: Cell, found: Found, margin: float, limit: int | None) -> dict[str, Any]:
    """The row of a cell: what was found, and beside it what was planned."""
    return {
        **{name: value for name, value in described(cell).items() if name != "batch"},
        "largest_batch": found.largest,
        "smallest_failed": found.failed,
        "said": found.why,
        "margin": margin,
        "tries": found.tries,
        "planned_batch": planned_batch(cell, limit),
        "limit_mib": None if limit is None else round(limit / 2**20),
    }


def planned_batch(cell: Cell, limit: int | None) -> int | None:
    """Returns the batch that the plan of memory holds for the largest; None where there is nothing to plan.

    Args:
        cell: One of zoo's.
        limit: In bytes; None for the GPU's whole memory.
    """
    if cell.peer != "zoo":
        return None
    import tensorflow as tf

    from zoo.registry import get_net
    from zoo.training.plan import plan_step

    tf.config.set_visible_devices([], "GPU")  # the memory is for the processes that are measured
    try:
        capacity = gpu_memory(gpu_number(cell.device)) * 2**20 if limit is None else limit
    except ValueError:  # the driver does not say how large the GPU is
        return None
    options = {"input_shape": (cell.size, cell.size, 3), "num_classes": cell.classes, **cell.options}
    policy = "mixed_bfloat16" if cell.precision == "bfloat16" else cell.precision
    return plan_step(get_net(cell.net), options, cell.memory, policy, "sgd").largest_batch(int(capacity))
