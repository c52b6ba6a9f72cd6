"""Runs of several workers: what they decide together, and the workers that write nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from zoo.parallel.strategies import is_chief, is_multi_worker
from zoo.training.checkpoints import view
from zoo.training.progress import Progress
from zoo.training.runfolder import RunFolder
from zoo.training.state import variables_of

EVERY = 8  # steps between two questions, each of which costs a collective operation


class Agreement:
    """Answers that must be the same in all workers of a run, or some would wait for the others for ever.

    Args:
        strategy: Of the run; where one process does all, its own answer counts at once.
    """

    def __init__(self, strategy: Any) -> None:
        self.together = is_multi_worker(strategy)
        self.writes = not self.together or is_chief()
        self._strategy = strategy
        self._summed = tf.function(self._sum)

    def any(self, flag: bool, step: int) -> bool:
        """Says whether any worker says yes; asked at every `EVERY`-th step only."""
        if not self.together:
            return flag
        return step % EVERY == 0 and float(self._summed(tf.constant(float(flag)))) > 0

    def _sum(self, flag: tf.Tensor) -> tf.Tensor:
        parts = self._strategy.run(tf.identity, args=(flag,))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)


class FollowerFolder(RunFolder):
    """The folder of a worker that is not the chief: it takes a run up from there and writes nothing."""

    def open(self) -> list[dict[str, Any]]:
        """Restores the run that is there, if any; see `RunFolder.open`."""
        if self.checkpoints is None:
            return []
        found = self.checkpoints.newest() if Path(self.checkpoints.folder).is_dir() else None
        if found is not None:
            self._resume(found)
        self._read(variables_of(self.loop.engine))
        return []

    def announce(self, progress: Progress) -> None:
        """Says nothing: the chief does."""

    def save(self, variables: Mapping[str, Any], state: Mapping[str, Any], *, wait: bool = False) -> None:
        """Takes part in reading what the chief saves."""
        self._read(variables)

    def write(self, values: Mapping[str, Any]) -> None:
        """Writes nothing."""

    def profile(self, step: int) -> None:
        """Traces nothing."""

    def _read(self, variables: Mapping[str, Any]) -> None:
        """Reads all variables, as the chief does: those of metrics are summed over the workers by that."""
        for variable in variables.values():
            view(variable)
