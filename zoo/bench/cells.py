"""Runs a benchmark's cells, each alone in a fresh process, whatever becomes of it."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("peers.py")


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
        device: "cpu" or "gpu:0".
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
    """What came out of a cell; sizes in bytes, None where nobody counts them.

    Args:
        cell: The cell.
        seconds: Of each measured step.
        resident_peak: Largest resident size of the process.
        allocator_peak: Most that the framework's allocator had given out since the warm-up.
        versions: Of the frameworks, and on a GPU of driver, CUDA and cuDNN.
        start_peak: Most that the allocator had given out from the start on: with the warm-up, in which a GPU's
            convolutions try out their algorithms.
        in_use: Given out when the first measured step began.
        reserved: Most that PyTorch's allocator held of a GPU since the warm-up.
        driver: What the driver counts for the process.
        device: Name of the GPU, and its clocks after the last step.
        outcome: "ok", "out of memory", "died", "hung" or "failed".
        said: What ended a cell that is not "ok": the request that was not met, a signal, an error's first line.
    """

    cell: Cell
    seconds: tuple[float, ...] = ()
    resident_peak: int | None = None
    allocator_peak: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    start_peak: int | None = None
    in_use: int | None = None
    reserved: int | None = None
    driver: int | None = None
    device: str = ""
    outcome: str = "ok"
    said: str = ""

    @property
    def ok(self) -> bool:
        """Whether the cell took its steps."""
        return self.outcome == "ok"


def run_cell(cell: Cell, rounds: int, timeout: float) -> Result:
    """Measures a cell in a fresh process, which has ended when this returns: one process on the device at a time.

    Args:
        cell: The cell.
        rounds: Measured steps.
        timeout: Seconds for the start with its warm-up, and for each step; a process that takes longer hangs.

    Returns:
        The result, also of a cell that runs out of memory, dies or hangs.
    """
    worker = _Worker(cell, timeout)
    try:
        return worker.run(rounds)
    except _EndedError as ended:
        return Result(cell, tuple(worker.seconds), versions=worker.versions, outcome=ended.outcome, said=ended.said)
    finally:
        worker.close()


class _EndedError(Exception):
    """A cell's process ended too early, or was silent for too long."""

    def __init__(self, outcome: str, said: str) -> None:
        super().__init__(said)
        self.outcome, self.said = outcome, said


class _Worker:
    """One cell's process."""

    def __init__(self, cell: Cell, timeout: float) -> None:
        self.cell, self.timeout = cell, timeout
        described = asdict(cell)
        root = str(Path(__file__).parents[2])
        paths = [root, os.environ.get("PYTHONPATH", "")] if cell.peer == "zoo" else [os.environ.get("PYTHONPATH", "")]
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would stop the process
        self.process = subprocess.Popen(
            [cell.python, str(SCRIPT), json.dumps(described)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.versions: dict[str, str] = {}
        self.seconds: list[float] = []

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.put(line)
        self.lines.put(None)

    def run(self, rounds: int) -> Result:
        """Takes the steps and reads the peaks."""
        warm = self._answer("its start")
        self.versions = warm["versions"]
        for number in range(rounds):
            self._ask("\n")
            self.seconds.append(self._answer(f"step {number + 1}")["seconds"])
        if self.process.stdin is not None:
            self.process.stdin.close()
        peaks = self._answer("its end")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)  # it gives the device back in good order
        clocks = [f"{key[:-10]} {peaks[key]} MHz" for key in ("sm_clock_mhz", "memory_clock_mhz") if key in peaks]
        driver = {"driver": peaks["driver"]} if "driver" in peaks else {}
        return Result(
            self.cell,
            tuple(self.seconds),
            peaks["resident_peak_bytes"],
            peaks["allocator_peak_bytes"],
            {**self.versions, **driver},
            start_peak=warm["start_peak_bytes"],
            in_use=warm["in_use_bytes"],
            reserved=peaks["reserved_bytes"],
            driver=peaks.get("driver_bytes", peaks.get("driver_device_bytes")),
            device=", ".join(filter(None, [warm["device"], *clocks])),
        )

    def _ask(self, line: str) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended; its answer says how
                self.process.stdin.write(line)
                self.process.stdin.flush()

    def _answer(self, what: str) -> dict[str, Any]:
        """Waits for the next JSON line."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise _EndedError("hung", f"{what} took more than {self.timeout:g} s") from None
            if line is None:
                raise self._death(what)
            if line.startswith("{"):
                values = dict(json.loads(line))
                if "failed" in values:
                    raise _EndedError(values["failed"], values["said"])
                return values

    def _death(self, what: str) -> _EndedError:
        """Says how a process ended that said nothing itself."""
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            hint = ": the system may have run out of memory" if name == "SIGKILL" else ""
            return _EndedError("died", f"killed by {name} in {what}{hint}")
        self.said.seek(0)
        last = self.said.read().decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
        return _EndedError("died", f"ended with code {code} in {what} and said: {last[0][:300]}")

    def close(self) -> None:
        """Ends the process, if it has not ended, and waits until it has given back its memory."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self.said.close()
