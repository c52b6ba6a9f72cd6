"""Runs benchmark cells, each in a fresh process, and puts their steps side by side."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_name("peers.py")


@dataclass(frozen=True)
class Cell:
    """What one process measures.

    Args:
        peer: "zoo", "keras" or "torchvision".
        net: The network's name.
        memory: Memory level; for torchvision "store" or "memory_efficient".
        batch: Images a step.
        precision: "float32" or "bfloat16".
        xla: Whether the step is compiled by XLA.
        device: "cpu" or "gpu".
        size: Height and width of the images.
        classes: Width of the logits.
        options: Further options of zoo's network.
        warmup: Steps before the measured ones.
        python: Interpreter that runs the cell.
    """

    peer: str
    net: str
    memory: str = "store"
    batch: int = 8
    precision: str = "float32"
    xla: bool = False
    device: str = "cpu"
    size: int = 224
    classes: int = 1000
    options: dict[str, Any] = field(default_factory=dict)
    warmup: int = 2
    python: str = sys.executable


@dataclass(frozen=True)
class Result:
    """What came out of a cell.

    Args:
        cell: The cell.
        seconds: Of each step, in the order of the rounds.
        resident_peak: Largest resident size of the process, bytes.
        allocator_peak: Most that the framework's allocator had given out since the warm-up, bytes; None if unknown.
        versions: Of the frameworks.
    """

    cell: Cell
    seconds: tuple[float, ...]
    resident_peak: int
    allocator_peak: int | None
    versions: dict[str, str]


def run_cells(cells: Sequence[Cell], rounds: int) -> list[Result]:
    """Starts all cells' processes, lets them warm up in turn, and takes their steps in rounds, one after the other.

    Only one process works at any time, and what the machine does besides hits the cells of a round alike. With a single
    round there is nothing to set side by side, and each process ends before the next one starts.

    Args:
        cells: At least one; with more than one round they must fit into memory together.
        rounds: Measured steps of each.

    Returns:
        The results, in the order of the cells.

    Raises:
        RuntimeError: A cell's process failed; the message ends with what it said.
    """
    if rounds == 1 and len(cells) > 1:
        return [result for cell in cells for result in run_cells([cell], 1)]
    workers = []
    try:
        for cell in cells:
            workers.append(_Worker(cell))
            workers[-1].answer()
        for turn in range(rounds):
            ordered = workers if turn % 2 == 0 else workers[::-1]
            for worker in ordered:
                worker.step()
        return [worker.finish() for worker in workers]
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


class _Worker:
    """One cell's process."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        described = asdict(cell)
        root = str(Path(__file__).parents[2])
        paths = [root, os.environ.get("PYTHONPATH", "")] if cell.peer == "zoo" else [os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [cell.python, str(_SCRIPT), json.dumps(described)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.versions: dict[str, str] = {}
        self.seconds: list[float] = []

    def answer(self) -> dict[str, Any]:
        """Reads the next JSON line."""
        for line in self.process.stdout or ():
            if line.startswith("{"):
                values = json.loads(line)
                self.versions = values.get("versions", self.versions)
                return dict(values)
        said = self.process.stderr.read() if self.process.stderr else ""
        last = said.strip().splitlines()[-1:] or ["nothing"]
        raise RuntimeError(
            f"The cell {self.cell.peer} {self.cell.net} batch {self.cell.batch} failed and said: {last[0]}"
        )

    def step(self) -> None:
        """Takes one step and waits for it."""
        if self.process.stdin is not None:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        self.seconds.append(self.answer()["seconds"])

    def finish(self) -> Result:
        """Ends the process and reads its peaks."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        peaks = self.answer()
        return Result(
            self.cell,
            tuple(self.seconds),
            peaks["resident_peak_bytes"],
            peaks["allocator_peak_bytes"],
            self.versions,
        )
