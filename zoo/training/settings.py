"""What a trainer and a run are told, checked before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import keras
import numpy as np

from zoo.training.progress import SHOWN


def check_finite(settings: Mapping[str, Any]) -> None:
    """Raises ValueError for a setting, or a number in a mapping of them, that is NaN or infinite."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            check_finite({f"{name}[{key!r}]": number for key, number in value.items()})
        elif isinstance(value, float | np.floating) and not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, received {value}")


def check_accumulate(accumulate: int, batch: int | None, replicas: int = 1) -> None:
    """Raises ValueError where a replica's share of the global batch, if known, has fewer examples than parts."""
    if batch is not None and accumulate > max(1, batch // replicas):
        shared = f" shared by {replicas} replicas" if replicas > 1 else ""
        raise ValueError(
            f"accumulate={accumulate} splits a batch into more parts than it has examples: the batch is {batch}"
            f"{shared}; lower accumulate to at most {max(1, batch // replicas)}, or raise the batch"
        )


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
        command: the same as the command's options, which `config.json` keeps and no resume compares.
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
    command: Mapping[str, Any] | None = None
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
