"""Exponential moving averages of weights: TF1's formula, TF1's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from zoo.parallel.places import raw
from zoo.training.checkpoints import to_numpy
from zoo.weights.tf1 import AVERAGE_SUFFIX


class ExponentialMovingAverage:
    """Shadows that follow the weights: ``shadow -= (1 - decay) * (shadow - variable)``.

    With `num_updates` the decay is ``min(decay, (1 + n) / (10 + n))``, so that averages move faster at first; n counts
    the updates of the weights so far, this one included (TF1: ``apply`` after ``minimize`` on the global step). A
    shadow starts at its variable's value.

    Args:
        decay: close to 1, such as 0.9999.
        num_updates: use the step to limit the decay.

    Raises:
        ValueError: `decay` is not in [0, 1).
    """

    def __init__(self, decay: float, *, num_updates: bool = False) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1), received {decay}")
        self.decay, self.num_updates = decay, num_updates
        self.shadows: dict[str, tf.Variable] = {}
        self._variables: dict[str, Any] = {}
        self._strategy = tf.distribute.get_strategy()

    def build(self, variables: Mapping[str, Any]) -> None:
        """Makes the shadows of these variables, by name; call it under the strategy's scope."""
        if self.shadows:
            return
        self._strategy = tf.distribute.get_strategy()
        self._variables = dict(variables)
        for name, variable in self._variables.items():
            self.shadows[name] = tf.Variable(
                to_numpy(variable),
                trainable=False,
                name=name.replace(":", "_") + AVERAGE_SUFFIX,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def shadow_name(self, name: str) -> str:
        """Returns the average's name in TF1 checkpoints: ``<name>/ExponentialMovingAverage``."""
        return name + AVERAGE_SUFFIX

    def decay_at(self, step: Any) -> tf.Tensor:
        """Returns the decay after `step` updates of the weights: float32 scalar."""
        if not self.num_updates:
            return tf.constant(self.decay, tf.float32)
        number = tf.cast(step, tf.float32)
        return tf.minimum(self.decay, (1.0 + number) / (10.0 + number))

    def update(self, step: Any) -> None:
        """Moves every shadow towards its variable, after `step` updates of the weights; outside the replicas."""
        rate = 1.0 - self.decay_at(step)

        def move(shadow: Any, value: Any, rate: Any) -> Any:
            return shadow.assign_sub(tf.cast(rate, shadow.dtype) * (shadow - value))

        with self._strategy.scope():
            for name, shadow in self.shadows.items():
                self._strategy.extended.update(shadow, move, args=(raw(self._variables[name]), rate), group=True)

    @contextmanager
    def in_weights(self) -> Iterator[None]:
        """Puts the averages into the weights and the weights back afterwards, bit for bit."""
        kept = {name: to_numpy(variable).copy() for name, variable in self._variables.items()}
        self.to_weights()
        try:
            yield
        finally:
            for name, value in kept.items():
                self._variables[name].assign(value)

    def to_weights(self) -> None:
        """Puts the averages into the weights for good."""
        for name, shadow in self.shadows.items():
            self._variables[name].assign(shadow.numpy())

    def with_names(self) -> dict[str, tf.Variable]:
        """Returns TF1 name to shadow, to be saved with `zoo.weights.save_tf1` beside the weights."""
        return {self.shadow_name(name): shadow for name, shadow in self.shadows.items()}
