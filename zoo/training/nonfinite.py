"""What became NaN or Inf in a step, and which examples may have made it so."""

from __future__ import annotations

import numpy as np

from zoo.training.feed import Feed
from zoo.training.step import GRADIENT, REGULARIZATION, TASK


def word_not_finite(feed: Feed, row: np.ndarray, examples: np.ndarray, where: str, epoch: int, batch: int) -> str:
    """Words a step that is not finite.

    ReLU turns NaN into 0, so that an example with NaN can have a finite loss; then the gradient tells, and the batch's
    inputs are looked at.

    Args:
        feed: the training data.
        row: the step's row of `StepResult.losses`.
        examples: the loss of every example, [global batch].
        where: step, learning rate, epoch and batch in words.
        epoch: the batch's epoch.
        batch: its number in the epoch.

    Returns:
        For instance ``the loss is not finite at step 3 (...): examples 5 of 8 (their inputs hold NaN or Inf)``.
    """
    if np.isfinite(row[[TASK, REGULARIZATION]]).all() and not np.isfinite(row[GRADIENT]):
        found = feed.broken_inputs(epoch, batch)
        return f"the gradient is not finite at {where}, though the loss is: {found}"
    kind = "regularization loss" if np.isfinite(row[TASK]) else "loss"
    which = feed.describe(epoch, batch, examples)
    bad = ~np.isfinite(examples)
    if bad.all() or not bad.any():
        before = feed.broken_inputs(epoch, batch - 1)
        which += f". The weights may have been bad already; the batch before: {before}"
    return f"the {kind} is not finite at {where}: {which}"
