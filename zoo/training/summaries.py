"""TensorBoard: scalars always; histograms, images, activations and gradients when asked for all."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from zoo.training.state import flat
from zoo.training.step import Observation
from zoo.weights.names import select_names

LEVELS = ("none", "scalars", "all")


class Summaries:
    """Writes a run's TensorBoard files; several runs of one folder form one history.

    At level ``all`` one step in `every` is looked into: histograms of the variables that match `patterns` (None: all),
    and so many of the input images.
    """

    def __init__(
        self,
        folder: Path,
        *,
        level: str = "scalars",
        every: int = 500,
        patterns: list[str] | None = None,
        images: int = 4,
    ) -> None:
        if level not in LEVELS:
            raise ValueError(f"summaries must be one of {', '.join(LEVELS)}, received '{level}'")
        if every < 1:
            raise ValueError(f"summaries every {every} steps is not possible; give 1 or more")
        self.folder, self.level, self.every, self.patterns = Path(folder), level, every, patterns
        self.images = images
        self._writer: Any = None

    def start(self, step: int, config: Mapping[str, Any]) -> None:
        """Opens the files of a run that goes on at `step`; what a killed process wrote after it is disowned."""
        if self.level == "none":
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if step:
            self._disown(step + 1)
        self._writer = tf.summary.create_file_writer(str(self.folder))
        if step == 0:
            from tensorboard.plugins.hparams import api

            numbers = {key: value for key, value in flat(config).items() if isinstance(value, bool | int | float | str)}
            with self._writer.as_default(step=0):
                tf.summary.text("configuration", "```\n" + json.dumps(config, indent=2) + "\n```")
                api.hparams(numbers, trial_id="run")

    def scalars(self, step: int, values: Mapping[str, Any]) -> None:
        """Writes numbers by name."""
        if self._writer is None:
            return
        with self._writer.as_default(step=step):
            for name, value in values.items():
                if isinstance(value, int | float):
                    tf.summary.scalar(name, value)

    def graph(self, graph: tf.Graph | None) -> None:
        """Writes the training step's graph, if there is one."""
        if self._writer is not None and graph is not None:
            with self._writer.as_default(step=0):
                tf.summary.graph(graph)

    def inside(self, step: int, seen: Observation, variables: Mapping[str, Any]) -> None:
        """Writes histograms, mean and deviation of variables (after the step), gradients and activations; images."""
        names = list(variables) if self.patterns is None else select_names(variables, self.patterns)
        groups = {
            "variables": {name: tf.convert_to_tensor(variables[name]) for name in names},
            "gradients": {name: tensor for name, tensor in seen.gradients.items() if name in names},
            "activations": seen.activations,
        }
        with self._writer.as_default(step=step):
            for group, tensors in groups.items():
                for name, tensor in tensors.items():
                    if not tensor.dtype.is_floating:
                        continue
                    values = tf.cast(tensor, tf.float32)
                    tf.summary.histogram(f"{group}/{name}", values)
                    tf.summary.scalar(f"{group}_mean/{name}", tf.reduce_mean(values))
                    tf.summary.scalar(f"{group}_deviation/{name}", tf.math.reduce_std(values))
            for name, tensor in seen.inputs.items():
                self._input(name, tensor)

    def flush(self) -> None:
        """Writes what is buffered."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Closes the files."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _input(self, name: str, tensor: tf.Tensor) -> None:
        if tensor.shape.rank == 4 and tensor.shape[-1] in (1, 3, 4):
            pictures = tf.cast(tensor[: self.images], tf.float32)
            # Whatever the network's range is, the darkest value shows black and the brightest white.
            low, high = tf.reduce_min(pictures), tf.reduce_max(pictures)
            tf.summary.image(f"inputs/{name}", (pictures - low) / tf.maximum(high - low, 1e-6), max_outputs=self.images)

    def _disown(self, step: int) -> None:
        """Writes the mark by which TensorBoard drops earlier events from `step` on."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        writer = EventFileWriter(str(self.folder), filename_suffix=".resumed")
        log = SessionLog(status=SessionLog.START)
        writer.add_event(Event(wall_time=time.time(), step=step, session_log=log))
        writer.close()
