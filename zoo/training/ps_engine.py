"""The compiled steps with parameter servers: the chief hands batches to workers that update shared variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from zoo.parallel.shards import own_batch
from zoo.training.step import RATE, Engine, Observation, StepResult

_ATTEMPTS = 10  # at a batch to be tested, whose workers die one after the other


def lost_with_its_worker(error: tf.errors.OpError) -> bool:
    """Whether a result cannot be had because the worker that held it is gone (its step was taken all the same)."""
    words = str(error)
    if "/job:worker" not in words or "remote target /job:ps" in words:
        return False
    gone = isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError)
    return gone or "Unable to find the relevant tensor remote_handle" in words


class _Remote:
    """What workers return, as the loop reads results: by `numpy`, which waits for them.

    A result stays on its worker until it is read. What is lost with a worker is left out: the step has been taken.
    """

    def __init__(self, values: list[Any], part: int) -> None:
        self._values, self._part = values, part

    def numpy(self) -> np.ndarray:
        found = []
        for value in self._values:
            try:
                found.append(np.asarray(value.fetch()[self._part]))
            except tf.errors.OpError as error:
                if not lost_with_its_worker(error):
                    raise
        if self._part == 0:
            return np.concatenate(found) if found else np.zeros((0, RATE + 1))
        return found[-1] if found else np.zeros(0)


class ParameterServerEngine(Engine):
    """Steps that are scheduled on whichever worker is free; arguments as for `Engine`.

    Between two workers' steps nobody waits, so gradients are of weights that others have changed since. When a worker
    dies its step is taken by another.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self._own = tf.function(lambda iterator: self._row(own_batch(iterator)), autograph=False)
        self._tested_batch = tf.function(self._test_parts, autograph=False, reduce_retracing=True)

    def train(self, iterator: Any, steps: int) -> StepResult:
        """Schedules steps on the iterator's next batches, one worker each; or on the workers' own batches."""
        if isinstance(iterator, tf.distribute.experimental.coordinator.PerWorkerValues):
            return self._results([self.coordinator.schedule(self._own, args=(iterator,)) for _ in range(steps)])
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
        error: Exception | None = None
        for _ in range(_ATTEMPTS):  # a worker may die between its answer and our reading it
            try:
                total, count = self.coordinator.schedule(self._tested_batch, args=(batch,)).fetch()
                return total, count
            except tf.errors.OpError as lost:
                if not lost_with_its_worker(lost):
                    raise
                error = lost
        raise RuntimeError(f"{_ATTEMPTS} workers died, one after the other, at the same batch") from error

    def _scheduled(self, batches: list[Any]) -> StepResult:
        return self._results([self.coordinator.schedule(self._given, args=(batch,)) for batch in batches])

    def _results(self, values: list[Any]) -> StepResult:
        return StepResult(_Remote(values, 0), _Remote(values, 1))
