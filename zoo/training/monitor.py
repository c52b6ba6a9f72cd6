"""The best validation so far, and when to stop early; its state travels in the checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_LARGER = ("acc", "auc", "precision", "recall", "f1", "top", "iou", "r2")


@dataclass
class Monitor:
    """Follows one validation value.

    Args:
        name: which value, such as ``val_loss`` or ``val_accuracy``.
        mode: ``min``, ``max``, or ``auto``: max for accuracies and their like.
        patience: stop after so many validations without a better value; None never does.
        min_delta: how much better counts as better.

    Attributes:
        best: best value; None before the first validation.
        best_step: its step.
        worse: validations since then.

    Raises:
        ValueError: an unknown mode, or patience below 1.
    """

    name: str = "val_loss"
    mode: str = "auto"
    patience: int | None = None
    min_delta: float = 0.0
    best: float | None = None
    best_step: int | None = None
    worse: int = 0

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "min", "max"):
            raise ValueError(f"mode must be auto, min or max, received '{self.mode}'")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience must be at least 1, received {self.patience}")

    @property
    def smaller_is_better(self) -> bool:
        """Whether the value is a loss rather than an accuracy."""
        return self.mode == "min" or (self.mode == "auto" and not any(part in self.name for part in _LARGER))

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self.patience is not None and self.worse >= self.patience

    def check(self, measured: Iterable[str]) -> None:
        """Raises ValueError when the followed value is not among the names."""
        if self.name not in (names := sorted(measured)):
            raise ValueError(f"the monitored '{self.name}' is not measured; measured are {', '.join(names)}")

    def update(self, step: int, values: Mapping[str, Any]) -> bool:
        """Takes a validation's values.

        Args:
            step: when it was.
            values: its results by name.

        Returns:
            True when this is the best so far.

        Raises:
            ValueError: the followed value is not among them.
        """
        self.check(values)
        value = float(values[self.name])
        sign = 1.0 if self.smaller_is_better else -1.0
        if math.isfinite(value) and (self.best is None or sign * value < sign * self.best - self.min_delta):
            self.best, self.best_step, self.worse = value, step, 0
            return True
        self.worse += 1
        return False

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps."""
        return {"best": self.best, "best_step": self.best_step, "worse": self.worse}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` returned."""
        self.best, self.best_step, self.worse = state["best"], state["best_step"], state["worse"]
