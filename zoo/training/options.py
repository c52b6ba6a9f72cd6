"""How a run is run, and what comes back from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import keras
import numpy as np

from zoo.training.settings import check_finite
from zoo.training.step import REGULARIZATION, TASK
from zoo.training.watch import SHOWN


class NonFiniteLossError(ArithmeticError):
    """The loss or its gradient became NaN or Inf; says step, learning rate, examples and the last good checkpoint."""


@dataclass
class RunOptions:
    """How a run is run; nothing here but validation changes its numbers.

    Args:
        epochs: length of the whole run in epochs.
        steps: length of the whole run in steps.
        steps_per_epoch: batches that count as an epoch; needed for data without end.
        validate_every: steps between validations; None validates after every epoch.
        monitor: the validation value that decides which model is best.
        mode: ``min``, ``max`` or ``auto``.
        patience: stop after so many validations without a better one.
        min_delta: how much better counts as better.
        restore_best: end with the best model's weights instead of the last's.
        folder: run folder for checkpoints, metrics.jsonl and summaries; None keeps nothing.
        resume: ``auto`` or True go on with the run that the folder holds, if any; False refuses one.
        accept_changes: go on although the configuration has changed; a complete run stays as it is.
        recipe: words that make this run, as a command; kept with the segments of the run, see `History`.
        checkpoint_steps: steps between checkpoints.
        checkpoint_minutes: minutes between checkpoints.
        keep: how many of the newest checkpoints stay.
        keep_every_hours: also keep one every so many hours.
        background_save: write checkpoints beside training.
        summaries: ``none``, ``scalars`` or ``all``.
        summary_options: more arguments of `zoo.training.summaries.Summaries`.
        profile: first and last step of a profiler trace, as ``(100, 110)``.
        log_every: steps between lines in metrics.jsonl; there is one after every epoch too.
        callbacks: Keras callbacks; their plain attributes travel in the checkpoints.
        progress: ``auto``, ``bar``, ``lines`` or ``none``.

    Raises:
        ValueError: not exactly one length, or a number below 1.
    """

    epochs: int | None = None
    steps: int | None = None
    steps_per_epoch: int | None = None
    validate_every: int | None = None
    monitor: str = "val_loss"
    mode: str = "auto"
    patience: int | None = None
    min_delta: float = 0.0
    restore_best: bool = True
    folder: str | Path | None = None
    resume: bool | str = "auto"
    accept_changes: bool = False
    recipe: str | None = None
    checkpoint_steps: int | None = None
    checkpoint_minutes: float | None = 10.0
    keep: int = 5
    keep_every_hours: float | None = None
    background_save: bool = True
    summaries: str = "scalars"
    summary_options: Mapping[str, Any] = field(default_factory=dict)
    profile: tuple[int, int] | None = None
    log_every: int = 100
    callbacks: Sequence[keras.callbacks.Callback] = ()
    progress: str = "auto"

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                f"give the run's length as epochs or as steps, received epochs={self.epochs}, steps={self.steps}"
            )
        check_finite({name: getattr(self, name) for name in ("min_delta", "checkpoint_minutes", "keep_every_hours")})
        for name in ("epochs", "steps", "steps_per_epoch", "validate_every", "checkpoint_steps", "log_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, received {value}")
        if self.resume not in (True, False, "auto"):
            raise ValueError(f"resume must be True, False or 'auto', received {self.resume!r}")
        if self.checkpoint_minutes is not None and self.checkpoint_minutes < 0:
            raise ValueError(f"checkpoint_minutes must be at least 0, received {self.checkpoint_minutes}")
        if self.progress not in SHOWN:
            raise ValueError(f"progress must be {', '.join(SHOWN[:-1])} or {SHOWN[-1]}, received {self.progress!r}")
        if self.profile is not None and not 0 < self.profile[0] <= self.profile[1]:
            raise ValueError(f"profile must be (first step, last step), received {self.profile}")

    @staticmethod
    def names() -> list[str]:
        """Returns the names of all options."""
        return [one.name for one in fields(RunOptions)]


@dataclass
class History:
    """What a run measured.

    Args:
        lines: the lines of metrics.jsonl, of earlier processes too.
        best_step: step of the best validation; None without one.
        best: its monitored value.
        stopped: why it ended: ``complete``, ``early stopping`` or ``callback``.
        step: steps done.
        first_step: steps that were done before this process; as many as `step` where it found the run complete.
        segments: what made the weights: ``from_step``, ``recipe`` and the ``changes`` that were accepted there. One for
            a run whose configuration never changed. A change accepted by a complete run is none: nothing was trained.
    """

    lines: list[dict[str, Any]]
    best_step: int | None
    best: float | None
    stopped: str
    step: int
    first_step: int = 0
    segments: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Sums:
    """Losses since a line or an epoch began."""

    task: float = 0.0
    regularization: float = 0.0
    steps: int = 0

    def add(self, row: np.ndarray) -> None:
        """Adds a step's losses."""
        self.task += float(row[TASK])
        self.regularization += float(row[REGULARIZATION])
        self.steps += 1

    def means(self) -> dict[str, float]:
        """Returns the mean total, task and regularization loss."""
        count = max(self.steps, 1)
        task, regularization = self.task / count, self.regularization / count
        return {"loss": task + regularization, "task_loss": task, "regularization_loss": regularization}
