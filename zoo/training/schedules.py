"""Learning rates as functions of the step; a step is one update with one global batch, on however many devices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.optimizers.schedules import LearningRateSchedule as Schedule

from zoo.training.settings import check_finite


def constant(learning_rate: float) -> float:
    """A learning rate that stays.

    Args:
        learning_rate: the rate.

    Returns:
        The rate itself, so that callbacks may change it while training.
    """
    return learning_rate


def exponential(learning_rate: float, decay_steps: int, decay_rate: float = 0.94, staircase: bool = False) -> Schedule:
    """Exponential decay: ``learning_rate * decay_rate ** (step / decay_steps)``.

    Args:
        learning_rate: rate at step 0.
        decay_steps: steps after which the rate has been multiplied once.
        decay_rate: the factor.
        staircase: round the exponent down, so that the rate falls in jumps.

    Returns:
        A Keras schedule.
    """
    return keras.optimizers.schedules.ExponentialDecay(learning_rate, decay_steps, decay_rate, staircase)


def per_epoch(
    learning_rate: float,
    steps_per_epoch: int,
    decay_rate: float = 0.94,
    epochs_per_decay: float = 2.0,
    staircase: bool = True,
) -> Schedule:
    """TF-Slim's decay in epochs: the rate is multiplied by `decay_rate` every `epochs_per_decay` epochs.

    Args:
        learning_rate: rate in the first epochs.
        steps_per_epoch: global batches in one epoch.
        decay_rate: the factor.
        epochs_per_decay: epochs between two multiplications.
        staircase: False decays at every step instead.

    Returns:
        A Keras schedule.
    """
    return exponential(learning_rate, max(1, round(steps_per_epoch * epochs_per_decay)), decay_rate, staircase)


def piecewise(boundaries: Sequence[int], values: Sequence[float]) -> Schedule:
    """Constant pieces: ``values[0]`` up to and with step ``boundaries[0]``, then ``values[1]``, and so on.

    Args:
        boundaries: steps, rising.
        values: rates, one more than boundaries.

    Returns:
        A Keras schedule.

    Raises:
        ValueError: wrong counts, or boundaries that do not rise.
    """
    if len(values) != len(boundaries) + 1:
        raise ValueError(
            f"piecewise needs one value more than boundaries, received {len(values)} and {len(boundaries)}"
        )
    if list(boundaries) != sorted(set(boundaries)):
        raise ValueError(f"piecewise boundaries must rise, received {list(boundaries)}")
    return keras.optimizers.schedules.PiecewiseConstantDecay(list(boundaries), [float(value) for value in values])


def polynomial(
    learning_rate: float, decay_steps: int, end_learning_rate: float = 1e-4, power: float = 1.0, cycle: bool = False
) -> Schedule:
    """Polynomial decay from `learning_rate` to `end_learning_rate` over `decay_steps`.

    Args:
        learning_rate: rate at step 0.
        decay_steps: steps until the end rate.
        end_learning_rate: rate from then on.
        power: 1 is a straight line.
        cycle: start again, each time with longer cycles.

    Returns:
        A Keras schedule.
    """
    return keras.optimizers.schedules.PolynomialDecay(learning_rate, decay_steps, end_learning_rate, power, cycle)


def cosine(learning_rate: float, decay_steps: int, alpha: float = 0.0) -> Schedule:
    """Cosine decay (Loshchilov & Hutter, SGDR, equation 5): half a cosine down to `alpha * learning_rate`.

    Args:
        learning_rate: rate at step 0.
        decay_steps: steps until the end rate.
        alpha: end rate as a fraction of the first.

    Returns:
        A Keras schedule.
    """
    return keras.optimizers.schedules.CosineDecay(learning_rate, decay_steps, alpha)


@keras.saving.register_keras_serializable("zoo")
class WarmUp(Schedule):
    """A straight line from 0 to a schedule's first rate, then the schedule, counted from the end of the warm-up.

    Step k of the warm-up has rate ``(k + 1) / steps`` of the first rate, so that step 0 already learns.

    Args:
        schedule: a rate or a Keras schedule.
        steps: steps of the warm-up; 0 is none.

    Raises:
        ValueError: `steps` is negative.
    """

    def __init__(self, schedule: float | Schedule, steps: int) -> None:
        if steps < 0:
            raise ValueError(f"warm-up steps must not be negative, received {steps}")
        self.schedule = keras.saving.deserialize_keras_object(schedule) if isinstance(schedule, dict) else schedule
        self.steps = steps

    def __call__(self, step: Any) -> tf.Tensor:
        """Returns the rate at a step: float32 scalar."""
        done = tf.cast(step, tf.float32) - float(self.steps)
        rate = (
            self.schedule(tf.maximum(done, 0.0)) if callable(self.schedule) else tf.constant(self.schedule, tf.float32)
        )
        return rate * tf.minimum(1.0, 1.0 + (done + 1.0) / max(self.steps, 1)) if self.steps else tf.identity(rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        schedule = self.schedule
        return {
            "schedule": keras.saving.serialize_keras_object(schedule) if callable(schedule) else schedule,
            "steps": self.steps,
        }


SCHEDULES: dict[str, Callable[..., Any]] = {
    "constant": constant,
    "exponential": exponential,
    "per_epoch": per_epoch,
    "piecewise": piecewise,
    "polynomial": polynomial,
    "cosine": cosine,
}


def make_schedule(name: str, *, warmup_steps: int = 0, **options: Any) -> float | Schedule:
    """Makes a schedule by name.

    Args:
        name: a key of `SCHEDULES`.
        warmup_steps: steps of a linear warm-up before it.
        **options: arguments of the schedule; those it does not have are refused.

    Returns:
        A rate, or a Keras schedule.

    Raises:
        ValueError: unknown name or option, an option that is missing, or NaN or Inf.
    """
    if name not in SCHEDULES:
        raise ValueError(f"unknown schedule '{name}'; known are {', '.join(SCHEDULES)}")
    signature = inspect.signature(SCHEDULES[name])
    try:
        signature.bind(**options)
    except TypeError as error:
        raise ValueError(f"schedule '{name}' takes {', '.join(signature.parameters)}; {error}") from error
    check_finite(options)
    schedule = SCHEDULES[name](**options)
    return WarmUp(schedule, warmup_steps) if warmup_steps else schedule
