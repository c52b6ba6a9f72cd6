"""Keras optimizers by name, with the defaults that the old recipes used, and loss scaling for float16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

OPTIMIZERS: dict[str, Callable[..., keras.optimizers.Optimizer]] = {
    "sgd": keras.optimizers.SGD,
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
