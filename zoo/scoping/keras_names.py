"""Keras' names of activations, initializers and regularizers, where a scoped function takes such a thing."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from zoo.scoping.frames import random_seed

Activation = str | Callable[[Any], Any] | None
Initializer = str | Callable[..., Any] | None
Regularizer = str | Callable[[Any], tf.Tensor | None] | None

_SAME: dict[Any, Any] = {"relu": tf.nn.relu, "tanh": tf.tanh}  # the very functions that layers have faster ways for


def activation(value: Any, where: str) -> Callable[[Any], Any] | None:
    """The function that an activation argument of `where` means: a function, Keras' name of one ("relu"), or None.

    Raises ValueError for a name that Keras does not know, TypeError for what is neither name nor function.
    """
    if value is None or (callable(value) and type(value) is not type):
        return value
    return _SAME.get(value) or _found(value, keras.activations, f"{where}: the activation", "tf.nn.relu")


def initializer(value: Any, where: str) -> Any:
    """The initializer that an argument of `where` means; what draws without a seed of its own follows the model's.

    It is a callable `(shape, dtype=...)`, Keras' name of one ("he_normal", ...; ValueError for others), a constant, or
    None.
    """
    if isinstance(value, str):
        value = _found(value, keras.initializers, f"{where}: the initializer", "zoo.layers.zeros_initializer()")
    if isinstance(value, keras.initializers.Initializer):
        config = value.get_config()
        if "seed" in config and config["seed"] is None:
            return type(value).from_config({**config, "seed": _ModelSeed()})
    return value


def regularizer(value: Any, where: str) -> Any:
    """The regularizer that an argument of `where` means; "l2" is Keras' sum of squares times 0.01.

    Raises ValueError for a name that Keras does not know, TypeError for what is neither name nor function.
    """
    if value is None or (callable(value) and not inspect.isclass(value)):
        return value
    return _found(value, keras.regularizers, f"{where}: the regularizer", "zoo.layers.l2_regularizer(4e-5)")


def _found(value: Any, module: Any, what: str, example: str) -> Any:
    """What Keras knows by that name."""
    if not isinstance(value, str):
        given = f"the class {value.__name__}" if inspect.isclass(value) else repr(value)
        raise TypeError(f"{what} is a function such as {example}, or Keras' name of one, got {given}")
    known = [name for name in dir(module) if name.islower() and name not in ("get", "serialize", "deserialize")]
    try:
        return module.get(getattr(module, value) if value in known else value)
    except (TypeError, ValueError):  # TypeError: of one that does nothing without a value
        near = difflib.get_close_matches(value.lower(), [name for name in known if name != value], n=3, cutoff=0.5)
        advice = f"did you mean {' or '.join(map(repr, near))}?" if near else f"give a function such as {example}"
        raise ValueError(f"{what} {value!r} is no name that Keras knows; {advice}") from None


class _ModelSeed(keras.random.SeedGenerator):
    """Gives Keras' initializers the seeds of the model, the store or the graph; keeps no state of its own."""

    def __init__(self) -> None:
        self.name = "model_seed"

    def next(self, ordered: bool = True) -> tf.Tensor:
        """The seed of the variable that is being made."""
        return tf.bitcast(random_seed(), tf.uint32)
