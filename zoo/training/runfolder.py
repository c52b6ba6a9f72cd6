"""A run's folder: checkpoints, metrics.jsonl, summaries, profile; and whether a run may go on there."""

from __future__ import annotations

import json
import logging
import math
import platform
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import keras
import numpy as np
import tensorflow as tf

from zoo import files
from zoo.files import parse_json, write_whole
from zoo.training.checkpoints import Checkpoint, Checkpoints, DamagedCheckpointError, read_checkpoint, view
from zoo.training.settings import RunOptions
from zoo.training.state import ConfigChangedError, config_difference, variables_of
from zoo.training.step import Engine
from zoo.training.summaries import Summaries

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
        """Drops what was logged after a step, and a line that was left half-written; returns the lines that stay."""
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
    """What a run leaves behind, and takes up again; it is told what to keep, and hands back what it found.

    A run without a folder leaves nothing. Of several workers one `writes`; the others take the run up from the same
    folder, and take part in reading what that one saves: variables of metrics are summed over the workers by it.

    Attributes:
        complete: whether the run that is there has nothing left to do.
        segments: what made its weights, see `zoo.training.History`.
    """

    def __init__(
        self, options: RunOptions, config: dict[str, Any], *, smaller_is_better: bool, writes: bool = True
    ) -> None:
        self.options, self.config, self.writes = options, config, writes
        self.path = Path(options.folder) if options.folder is not None else None
        self.summaries = Summaries(
            (self.path or Path()) / "summaries", level=options.summaries, **options.summary_options
        )
        if self.path is None:
            self.summaries.level = "none"
        self.segments: list[dict[str, Any]] = [{"from_step": 0, "changes": [], "recipe": options.recipe}]
        self.complete = False
        self.run_id = uuid.uuid4().hex[:12]
        self.log = MetricsLog((self.path or Path()) / "metrics.jsonl")
        self.checkpoints: Checkpoints | None = None
        self._lock: TextIO | None = None
        self._profiling = False
        if self.path is not None:
            self.checkpoints = Checkpoints(
                self.path,
                keep=options.keep,
                keep_every_hours=options.keep_every_hours,
                smaller_is_better=smaller_is_better,
                background=options.background_save,
            )

    def open(self) -> Checkpoint | None:
        """Takes the folder, and returns the newest checkpoint of the run that is there; None for a new run.

        Raises:
            FileExistsError: a run is there and `resume` is False, or the remains of one that cannot go on.
            BlockingIOError: another process runs there.
            DamagedCheckpointError: no checkpoint can be read.
        """
        if self.path is None or self.checkpoints is None:
            return None
        if not self.writes:
            return self.checkpoints.newest() if self.path.is_dir() else None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            busy = f"another process is training in {self.path}; wait for it or choose another folder"
            self._lock = files.lock(self.path / ".lock", busy)
        except BlockingIOError:
            raise
        except OSError as error:
            raise type(error)(f"run folder {self.path} cannot be written: {error.strerror or error}") from error
        self.checkpoints.remove_unfinished()
        found = self.checkpoints.newest()
        if found is None and self.log.read():
            raise FileExistsError(
                f"{self.path} has a metrics.jsonl but no checkpoint to go on from; choose another folder"
            )
        if found is not None and self.options.resume is False:
            raise FileExistsError(
                f"{self.path} holds a run at step {found.state['step']}; resume it or choose another folder"
            )
        return found

    def changes(self, found: Checkpoint) -> list[str]:
        """Returns the settings in which this run differs from the one that is there, a line each; they are accepted.

        Raises:
            ConfigChangedError: they are not.
        """
        changes = config_difference(found.state["config"], self.config)
        if changes and not self.options.accept_changes:
            raise ConfigChangedError(self.path, changes)
        for line in changes:
            _log.warning("changed: %s", line)
        return changes

    def take_up(self, found: Checkpoint, changes: list[str], *, complete: bool) -> None:
        """Goes on with the run that is there; a complete one stays as it is, whatever has changed."""
        state, recipe = found.state, self.options.recipe
        self.run_id, self.complete = state["run"], complete
        self.segments = [dict(one) for one in state.get("segments", [{**self.segments[0], "recipe": None}])]
        if complete:
            self.config = state["config"]
            if not changes:
                self.segments[-1]["recipe"] = self.segments[-1]["recipe"] or recipe
        elif changes:
            if self.segments[-1]["from_step"] == state["step"]:
                self.segments.pop()  # it made nothing
            more = changes if self.segments else []
            self.segments.append({"from_step": state["step"], "changes": more, "recipe": recipe})
        elif recipe is not None:
            self.segments[-1]["recipe"] = recipe

    def begin(self, step: int, engine: Engine, element_spec: Any) -> list[dict[str, Any]]:
        """Opens the files of a run that goes on after `step`, unless it is complete; returns the lines up to there."""
        if self.path is None or self.checkpoints is None:
            return []
        lines = self.log.cut(step) if self.writes else []
        if self.complete and self.writes:
            return lines
        graph = engine.graph(element_spec) if self.look_every and step == 0 else None
        if self.writes:
            about = {**self.config, **(self.options.command or {})}
            write_whole(self.path / "config.json", json.dumps(about, indent=2, ensure_ascii=False) + "\n")
            self.summaries.start(step, self.config)
            self.summaries.graph(graph)
            self.checkpoints.prepare(variables_of(engine))
        else:
            self._read(variables_of(engine))
        return lines

    @property
    def look_every(self) -> int | None:
        """Steps between two that are looked into for summaries, from the first on; None for never."""
        return self.summaries.every if self.summaries.level == "all" else None

    @property
    def profile_edges(self) -> tuple[int, ...]:
        """Steps done when the profiler starts and stops."""
        return () if self.options.profile is None else (self.options.profile[0] - 1, self.options.profile[1])

    def before_step(self) -> list[Callable[[int], None]]:
        """Returns what is to be called before steps, with the number of those done."""
        return [self._profile] if self.options.profile is not None and self.writes else []

    def after_step(self) -> list[Callable[[int], None]]:
        """Returns what is to be called after steps, with the number of those done."""
        return [self._check] if self.checkpoints is not None and self.writes else []

    def save(self, variables: Mapping[str, Any], state: Mapping[str, Any], *, wait: bool = False) -> None:
        """Saves a checkpoint, if there is a folder."""
        if self.checkpoints is None:
            return
        if not self.writes:
            self._read(variables)
            return
        versions = {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__}
        more = {"config": self.config, "segments": self.segments, "run": self.run_id, "versions": versions}
        self.checkpoints.save(variables, {**state, **more}, wait=wait)
        self.summaries.flush()

    def write(self, values: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl and to the scalars."""
        if self.checkpoints is None or not self.writes:
            return
        self.log.write(values)
        self.summaries.scalars(values["step"], {name: value for name, value in values.items() if name != "step"})

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

    def best_arrays(self, step: int) -> dict[str, np.ndarray] | None:
        """Returns the arrays of the best checkpoint, of that step; None, with a warning, when it is gone."""
        entry = self.checkpoints.best() if self.checkpoints is not None else None
        if entry is None or entry.step != step:
            _log.warning("the best checkpoint (step %s) is gone; the model is the last one", step)
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

    def _check(self, _: int) -> None:
        """Raises the error of a background write."""
        if self.checkpoints is not None:
            self.checkpoints.check()

    def _profile(self, step: int) -> None:
        """Starts or stops the profiler between two steps."""
        start, stop = self.profile_edges
        if not self._profiling and start <= step < stop:
            tf.profiler.experimental.start(str((self.path or Path("profile")) / "summaries"))
            self._profiling = True
        elif self._profiling and step >= stop:
            self._stop_profile()

    def _stop_profile(self) -> None:
        tf.profiler.experimental.stop()
        self._profiling = False

    @staticmethod
    def _read(variables: Mapping[str, Any]) -> None:
        for variable in variables.values():
            view(variable)


def _clean(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
