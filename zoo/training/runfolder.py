"""A run's folder: checkpoints, metrics.jsonl, summaries, profile; and whether a run may go on there."""

from __future__ import annotations

import json
import logging
import math
import platform
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import keras
import numpy as np
import tensorflow as tf

from zoo import files
from zoo.files import parse_json, write_whole
from zoo.training.checkpoints import Checkpoint, Checkpoints, DamagedCheckpointError, read_checkpoint
from zoo.training.progress import Progress, duration
from zoo.training.state import ConfigChangedError, assign, config_difference, variables_of
from zoo.training.summaries import Summaries

if TYPE_CHECKING:
    from zoo.training.loop import Loop

_log = logging.getLogger("zoo")


class MetricsLog:
    """A run's metrics.jsonl: one JSON object a line, never behind and never ahead of its checkpoint.

    A line is ``{"step": 100, "epoch": 1, "loss": 0.3, ...}``; the file is made at the first.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def write(self, values: Mapping[str, Any]) -> None:
        """Appends a line; numbers that are not finite become null."""
        clean = {name: _clean(value) for name, value in values.items()}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(clean, ensure_ascii=False) + "\n")

    def cut(self, step: int) -> list[dict[str, Any]]:
        """Drops what was logged after a step, and a line that a killed process left half-written.

        Args:
            step: the checkpoint's step.

        Returns:
            The lines that stay.
        """
        lines = [line for line in self.read() if line.get("step", 0) <= step]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        if self.path.exists() and self.path.read_text(encoding="utf-8", errors="replace") != text:
            write_whole(self.path, text)
        return lines

    def read(self) -> list[dict[str, Any]]:
        """Returns the whole lines; lines that are none, but for a last one that was cut, are named in a warning."""
        if not self.path.exists():
            return []
        found: list[dict[str, Any]] = []
        bad: list[int] = []
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                value = parse_json(line, self.path)
            except ValueError:
                value = None
            if isinstance(value, dict) and isinstance(value.get("step", 0), int | float):
                found.append(value)
            else:
                bad.append(number)
        if bad and bad != [len(lines)]:
            shown = ", ".join(map(str, bad[:5])) + (" and others" if len(bad) > 5 else "")
            _log.warning("%s: what is no record of numbers is left out: line %s", self.path, shown)
        return found


class RunFolder:
    """What a run leaves behind, and takes up again.

    Args:
        loop: the run; its options say the folder, or None for a run that leaves nothing.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop, self.options = loop, loop.options
        run = self.options
        self.path = Path(run.folder) if run.folder is not None else None
        where = (self.path or Path()) / "summaries"
        level = run.summaries if self.path is not None else "none"
        self.summaries = Summaries(where, level=run.summaries, **run.summary_options)
        self.summaries.level = level
        self.checkpoints: Checkpoints | None = None
        self.log: MetricsLog | None = None
        self.config = self._config()
        self.segments: list[dict[str, Any]] = [{"from_step": 0, "changes": [], "recipe": run.recipe}]
        self.complete = False
        self.run_id, self._story = uuid.uuid4().hex[:12], ""
        self._lock: TextIO | None = None
        self._profiling = False
        if self.path is not None:
            self.checkpoints = Checkpoints(
                self.path,
                keep=run.keep,
                keep_every_hours=run.keep_every_hours,
                smaller_is_better=loop.monitor.smaller_is_better,
                background=run.background_save,
            )
            self.log = MetricsLog(self.path / "metrics.jsonl")

    def open(self) -> list[dict[str, Any]]:
        """Starts a run, or restores the one that is there.

        Returns:
            The lines logged so far.

        Raises:
            FileExistsError: a run is there and `resume` is False, or the remains of one that cannot go on.
            BlockingIOError: another process runs there.
            ConfigChangedError: the run there has another configuration.
            DamagedCheckpointError: no checkpoint can be read.
        """
        if self.path is None or self.checkpoints is None or self.log is None:
            return []
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except BlockingIOError:
            raise
        except OSError as error:
            raise type(error)(f"run folder {self.path} cannot be written: {error.strerror or error}") from error
        self.checkpoints.remove_unfinished()
        found = self.checkpoints.newest()
        if found is None:
            lines: list[dict[str, Any]] = []
            if self.log.read():
                raise FileExistsError(
                    f"{self.path} has a metrics.jsonl but no checkpoint to go on from; choose another folder"
                )
            total = self.loop.total
            self._story = f"new run in {self.path}{f', {total} steps' if total else ''}"
        else:
            if self.options.resume is False:
                raise FileExistsError(
                    f"{self.path} holds a run at step {found.state['step']}; resume it or choose another folder"
                )
            self._resume(found)
            lines = self.log.cut(self.loop.step)
            if self.complete:
                return lines
        write_whole(self.path / "config.json", json.dumps(self.config, indent=2, ensure_ascii=False) + "\n")
        self.summaries.start(self.loop.step, self.config)
        if self.summaries.level == "all" and self.loop.step == 0:
            self.summaries.graph(self.loop.engine.graph(self.loop.feed.element_spec))
        self.checkpoints.prepare(variables_of(self.loop.engine))
        return lines

    def announce(self, progress: Progress) -> None:
        """Tells the user what the folder was found to be."""
        if self._story:
            progress.say(self._story)

    def save(self, variables: Mapping[str, Any], state: Mapping[str, Any], *, wait: bool = False) -> None:
        """Saves a checkpoint, if there is a folder."""
        if self.checkpoints is not None:
            versions = {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__}
            more = {"config": self.config, "segments": self.segments, "run": self.run_id, "versions": versions}
            self.checkpoints.save(variables, {**state, **more}, wait=wait)
            self.summaries.flush()

    def write(self, values: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl and to the scalars."""
        if self.log is not None:
            self.log.write(values)
        numbers = {name: value for name, value in values.items() if name != "step"}
        self.summaries.scalars(values["step"], numbers)

    @property
    def looks_inside(self) -> bool:
        """Whether some steps are looked into for summaries."""
        return self.summaries.level == "all"

    @property
    def profile_edges(self) -> tuple[int, ...]:
        """Steps done when the profiler starts and stops."""
        return () if self.options.profile is None else (self.options.profile[0] - 1, self.options.profile[1])

    def profile(self, step: int) -> None:
        """Starts or stops the profiler between two steps."""
        if self.options.profile is None:
            return
        start, stop = self.profile_edges
        if not self._profiling and start <= step < stop:
            tf.profiler.experimental.start(str((self.path or Path("profile")) / "summaries"))
            self._profiling = True
        elif self._profiling and step >= stop:
            self._stop_profile()

    def check(self) -> None:
        """Raises the error of a background write."""
        if self.checkpoints is not None:
            self.checkpoints.check()

    def wait(self) -> None:
        """Waits for the background write."""
        if self.checkpoints is not None:
            self.checkpoints.wait()

    def close(self) -> None:
        """Ends writing; the folder is free for another process."""
        try:
            if self._profiling:
                self._stop_profile()
            self.summaries.close()
            if self.checkpoints is not None:
                self.checkpoints.close()
        finally:
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def best_arrays(self) -> dict[str, np.ndarray] | None:
        """Returns the arrays of the best checkpoint; None, with a warning, when it is gone."""
        entry = self.checkpoints.best() if self.checkpoints is not None else None
        if entry is None or entry.step != self.loop.monitor.best_step:
            _log.warning(
                "the best checkpoint (step %s) is gone; the model is the last one", self.loop.monitor.best_step
            )
            return None
        try:
            return read_checkpoint(entry.path).arrays
        except DamagedCheckpointError as error:
            _log.warning("%s; the model is the last one", error)
            return None

    def last_good(self) -> str:
        """Words which checkpoint is the last good one."""
        if self.checkpoints is None:
            return "No checkpoint was kept (no folder)."
        try:
            self.checkpoints.wait()
        except (ArithmeticError, OSError) as error:
            _log.warning("%s", error)
        entries = self.checkpoints.entries()
        return f"The last good checkpoint is {entries[-1].path}." if entries else "There is no checkpoint yet."

    def farewell(self, step: int) -> str:
        """Words what was saved when a signal ended the run."""
        if self.path is None:
            return f"stopped after step {step}; nothing was saved, because the run has no folder"
        return (
            f"stopped after step {step}; saved {self.path / f'model.ckpt-{step}'}. The same command goes on from there"
        )

    def _resume(self, found: Checkpoint) -> None:
        state, loop = found.state, self.loop
        changes = config_difference(state["config"], self.config)
        if changes and not self.options.accept_changes:
            raise ConfigChangedError(self.path, changes)
        for line in changes:
            _log.warning("changed: %s", line)
        assign(variables_of(loop.engine), found.arrays, found.path)
        loop.restore(state)
        self.run_id = state["run"]
        ended = loop.has_ended()
        self.complete = ended and (bool(changes) or loop.is_written())
        self.segments = [dict(one) for one in state.get("segments", [{**self.segments[0], "recipe": None}])]
        if self.complete:
            self.config = state["config"]
            if not changes:
                self.segments[-1]["recipe"] = self.segments[-1]["recipe"] or self.options.recipe
        elif changes:
            if self.segments[-1]["from_step"] == loop.step:
                self.segments.pop()  # it made nothing
            more = changes if self.segments else []
            self.segments.append({"from_step": loop.step, "changes": more, "recipe": self.options.recipe})
        elif self.options.recipe is not None:
            self.segments[-1]["recipe"] = self.options.recipe
        epoch, batch, batches = loop.feed.epoch, loop.feed.batch, loop.feed.batches
        where = f"epoch {epoch + 1}, batch {batch + 1}{f' of {batches}' if batches else ''}"
        ago = duration(max(0.0, time.time() - state["time"]))
        self._story = f"{self.path} holds this run at step {loop.step}, saved {ago} ago in {found.path.name}: "
        if not ended:
            self._story += f"going on at step {loop.step + 1} ({where})"
        else:
            self._story += "it is complete" + (", so the changes change nothing" if changes else "")

    def _config(self) -> dict[str, Any]:
        feed, run = self.loop.feed, self.options
        data = {"batches": feed.batches, "examples": feed.stream.examples, "global_batch": feed.global_batch}
        names = ("validate_every", "monitor", "mode", "patience", "min_delta")
        validation = {name: getattr(run, name) for name in names} if self.loop.tests is not None else {}
        return {**self.loop.trainer.describe(), "data": data, "validation": validation}

    def _take_lock(self) -> None:
        """Locks the folder; the lock goes with the process, however it ends."""
        self._lock = files.lock(
            (self.path or Path()) / ".lock",
            f"another process is training in {self.path}; wait for it or choose another folder",
        )

    def _stop_profile(self) -> None:
        tf.profiler.experimental.stop()
        self._profiling = False


def _clean(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
