"""What a user is told of a run that goes wrong, or is too short for something: a step that is not finite, warnings."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from zoo._compat import layers_inside, own_variables
from zoo.layers.moments import decay_of
from zoo.training.checkpoints import to_numpy
from zoo.training.feed import Feed
from zoo.training.schedules import WarmUp
from zoo.training.step import GRADIENT, REGULARIZATION, TASK

_log = logging.getLogger("zoo")


class NonFiniteLossError(ArithmeticError):
    """The loss or its gradient became NaN or Inf; says step, learning rate, examples and the last good checkpoint."""


def word_not_finite(feed: Feed, row: np.ndarray, examples: np.ndarray, where: str, epoch: int, batch: int) -> str:
    """Words a step that is not finite.

    ReLU turns NaN into 0, so that an example with NaN can have a finite loss; then the gradient tells, and the batch's
    inputs are looked at. `row` is the step's of `StepResult.losses`, `examples` the loss of each, [global batch].
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


def warn_of_short_run(model: keras.Model, steps: int | None) -> None:
    """Warns when fresh moving statistics, m = d m + (1 - d) batch, see fewer than 1 / (1 - d) steps.

    Evaluation would then use values near the initial ones, and look random after a training that went well. Frozen
    parts and statistics that came with weights are left out.
    """
    slow = max(_decays_of_fresh_statistics(model), default=0.0)
    needed = math.ceil(1 / (1 - slow) - 1e-6) if slow < 1 else math.inf
    if steps is not None and steps < needed:
        _log.warning(
            "batch norm keeps %g of its moving statistics a step, so evaluation is right after about %s steps of "
            "training; this run has %d. Train longer, or lower the decay (batch_norm_decay, or Keras' momentum)",
            *(slow, f"{needed:,}", steps),
        )


def warn_of_what_never_comes(
    schedule: Callable[..., Any] | None, profile: tuple[int, int] | None, steps: int | None
) -> None:
    """Warns when the warm-up does not end within the run of so many steps, or the profile ends after it."""
    if steps is None:
        return
    if isinstance(schedule, WarmUp) and schedule.steps >= steps:
        _log.warning(
            "the warm-up takes %d steps, but the run has %d: the rate only rises. Shorten it (--warmup-steps)",
            *(schedule.steps, steps),
        )
    if profile is not None and profile[1] > steps:
        what = "nothing is traced" if profile[0] > steps else "the trace ends early"
        _log.warning("the profile is of steps %d to %d, but the run has %d: %s", *profile, steps, what)


def warn_of_large_batch(batch: int | None, examples: int | None) -> None:
    """Warns when the data has fewer examples than a batch is to have: every step then sees all of them."""
    if batch is not None and examples is not None and batch > examples:
        _log.warning(
            "a batch is to have %d examples, but the data has %d: every step sees all of them", batch, examples
        )


def _decays_of_fresh_statistics(model: keras.Model) -> Iterator[float]:
    for layer in layers_inside(model):
        for variable in (v for v in own_variables(layer) if not v.trainable and layer.trainable):
            keras_own = isinstance(layer, keras.layers.BatchNormalization) and variable is layer.moving_mean
            decay = layer.momentum if keras_own else decay_of(variable.value)
            if decay is not None and not np.any(to_numpy(variable)):
                yield decay
