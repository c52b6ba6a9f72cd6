"""The compiled steps with parameter servers: the chief hands batches to workers that update shared variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from zoo.training.step import Engine, Observation, StepResult


class _Remote:
    """What workers return, as the loop reads results: by `numpy`, which waits for them."""

    def __init__(self, values: list[Any], part: int) -> None:
        self._values, self._part = values, part

    def numpy(self) -> np.ndarray:
        found = [np.asarray(value.fetch()[self._part]) for value in self._values]
        return np.concatenate(found) if self._part == 0 else found[-1]


class ParameterServerEngine(Engine):
    """Steps that are scheduled on whichever worker is free; arguments as for `Engine`.

    Between two workers' steps nobody waits, so gradients are of weights that others have changed since. When a worker
    dies its step is taken by another.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self._tested_batch = tf.function(self._test_parts, autograph=False, reduce_retracing=True)

    def train(self, iterator: Any, steps: int) -> StepResult:
        """Schedules steps on the iterator's next batches, one worker each."""
        return self._scheduled([next(iterator) for _ in range(steps)])

    def train_on(self, batch: Any) -> StepResult:
        """Schedules one step."""
        return self._scheduled([batch])

    def observe(self, iterator: Any) -> tuple[StepResult, Observation]:
        """Cannot be: a worker's step is out of sight."""
        raise ValueError("with parameter servers a step cannot be looked into: take summaries='scalars'")

    def evaluate(self, iterator: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Measures the next batch on a worker."""
        try:
            batch = next(iterator)
        except StopIteration:
            raise tf.errors.OutOfRangeError(None, None, "the data ended") from None
        total, count = self.coordinator.schedule(self._tested_batch, args=(batch,)).fetch()
        return total, count

    def _scheduled(self, batches: list[Any]) -> StepResult:
        values = [self.coordinator.schedule(self._given, args=(batch,)) for batch in batches]
        return StepResult(_Remote(values, 0), _Remote(values, 1))
