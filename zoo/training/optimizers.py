"""Keras optimizers by name, with the defaults that the old recipes used, and loss scaling for float16; clipping."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from zoo._compat import sum_gradients_by
from zoo.parallel.gradients import merge_rows


class SGD(keras.optimizers.SGD):
    """Keras' SGD, which without momentum goes over a weight once: ``w -= learning_rate * scale * gradient``."""

    _scale: Any = None

    @property
    def scalable(self) -> bool:
        """Whether a factor of the gradients can go into the rate."""
        clips = (self.clipnorm, self.clipvalue, self.global_clipnorm)
        return not self.momentum and self.gradient_accumulation_steps is None and all(clip is None for clip in clips)

    @contextlib.contextmanager
    def scaled(self, scale: tf.Tensor) -> Iterator[None]:
        """Multiplies the gradients of updates made inside by `scale`, without a pass of its own."""
        self._scale = scale
        try:
            yield
        finally:
            self._scale = None

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """See Keras."""
        rate = tf.cast(learning_rate if self._scale is None else learning_rate * self._scale, variable.dtype)
        if self.momentum or isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, rate)
        else:
            handle = getattr(variable, "handle", None)
            if handle is None:  # a Keras variable
                handle = variable.value.handle
            tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=rate, delta=tf.cast(gradient, variable.dtype))


OPTIMIZERS: dict[str, Callable[..., keras.optimizers.Optimizer]] = {
    "sgd": SGD,
    "momentum": lambda rate, **more: keras.optimizers.SGD(rate, **{"momentum": 0.9, **more}),
    "nesterov": lambda rate, **more: keras.optimizers.SGD(rate, **{"momentum": 0.9, "nesterov": True, **more}),
    # TF-Slim's train_image_classifier: decay 0.9, momentum 0.9, epsilon 1.0 (Keras has 0.9, 0, 1e-7).
    "rmsprop": lambda rate, **more: keras.optimizers.RMSprop(
        rate, **{"rho": 0.9, "momentum": 0.9, "epsilon": 1.0, **more}
    ),
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "lion": keras.optimizers.Lion,
}


def make_optimizer(
    optimizer: str | keras.optimizers.Optimizer, learning_rate: float, *, loss_scaling: bool = False, **options: Any
) -> keras.optimizers.Optimizer:
    """Makes a Keras optimizer.

    Args:
        optimizer: a key of `OPTIMIZERS`, or an optimizer that is returned as it is.
        learning_rate: first rate; for names only.
        loss_scaling: wrap it for float16: dynamic loss scaling, updates with Inf or NaN gradients are left out.
        **options: arguments of the optimizer; for names only.

    Returns:
        The optimizer.

    Raises:
        ValueError: unknown name or option.
        TypeError: neither a name nor a Keras optimizer.
    """
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise ValueError(
                f"unknown optimizer '{optimizer}'; known are {', '.join(OPTIMIZERS)}, or pass a Keras object"
            )
        try:
            made = OPTIMIZERS[optimizer](learning_rate, **options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"optimizer '{optimizer}' does not take {options}: {error}") from error
    elif isinstance(optimizer, keras.optimizers.Optimizer):
        made = optimizer
    else:
        raise TypeError(f"optimizer must be a name or a Keras optimizer, received {type(optimizer).__name__}")
    if loss_scaling and not isinstance(made, keras.optimizers.LossScaleOptimizer):
        return keras.optimizers.LossScaleOptimizer(made)
    return made


_SUMMED: ContextVar[bool] = ContextVar("zoo_gradients_are_summed", default=False)


@contextlib.contextmanager
def already_summed() -> Iterator[None]:
    """Tells optimizers that `take_summed_gradients` prepared that the gradients are summed over the replicas."""
    token = _SUMMED.set(True)
    try:
        yield
    finally:
        _SUMMED.reset(token)


def take_summed_gradients(optimizer: keras.optimizers.Optimizer) -> None:
    """Lets an optimizer take gradients that are summed over the replicas, inside `already_summed`.

    Rows of an embedding that two replicas name must be added up before Keras sees them, for it squares each by itself.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    sum_gradients_by(inner, lambda pairs, by_keras: list(pairs) if _SUMMED.get() else by_keras(pairs))


def apply_clipped(
    optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], variables: Sequence[Any], limit: tf.Tensor
) -> tf.Tensor:
    """Updates with gradients whose global norm is at most `limit`, a scalar; returns the norm before clipping."""
    if isinstance(optimizer, SGD) and optimizer.scalable:
        norm = tf.linalg.global_norm(gradients)
        with optimizer.scaled(limit / tf.maximum(norm, limit) + (norm - norm)):  # NaN where the norm is not finite
            optimizer.apply(gradients, variables)
    else:
        clipped, norm = tf.clip_by_global_norm(gradients, limit)
        optimizer.apply([merge_rows(gradient) for gradient in clipped], variables)
    return norm


def gradient_sum(gradients: Sequence[Any]) -> tf.Tensor:
    """Returns the sum of all elements of all gradients: a float32 scalar that is finite when they are.

    A norm would say the same but for squares that overflow from 1e19 on, which Adam and its like can live with.
    """
    parts = [gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient for gradient in gradients]
    return tf.add_n([tf.cast(tf.reduce_sum(part), tf.float32) for part in parts])
