"""Tells what a training run is doing: a progress bar on a terminal, a line an epoch elsewhere; metrics to files."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import keras
import rich.progress
import tensorflow as tf

from zoo.cli._run_folder import RunFolder


class EpochReport(keras.callbacks.Callback):
    """Writes each epoch to the run folder, keeps the state to go on from, and shows the progress.

    Args:
        folder: Takes ``metrics.jsonl`` and TensorBoard's events.
        keeper: Saves the state after each epoch; its checkpoint has an ``epoch`` variable.
        epochs: Epochs of the whole run.
        steps: Steps in an epoch.
        terminal: Show a moving bar; otherwise print a line an epoch.

    Raises:
        FloatingPointError: The loss is no longer a number.
    """

    def __init__(
        self, folder: RunFolder, keeper: tf.train.CheckpointManager, epochs: int, steps: int, *, terminal: bool
    ) -> None:
        super().__init__()
        self.folder, self.keeper, self.epochs, self.steps = folder, keeper, epochs, steps
        self.rows = folder.metrics
        self.events = tf.summary.create_file_writer(str(folder.path / "events"))
        self.progress = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TimeRemainingColumn(),
            disable=not terminal,
        )
        self.task = self.progress.add_task("", total=epochs * steps, completed=len(self.rows) * steps)

    def __enter__(self) -> "EpochReport":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        self.events.close()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the epoch's clock."""
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Moves the bar."""
        self.progress.advance(self.task)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the epoch's row, then the state that contains it."""
        values = {name.replace("val_", "test_"): float(value) for name, value in (logs or {}).items()}
        if not values["loss"] < float("inf"):
            raise FloatingPointError(f"the loss is {values['loss']} in epoch {epoch + 1}; lower --learning-rate")
        row = {"epoch": epoch + 1, "step": (epoch + 1) * self.steps, **values}
        row["learning_rate"] = float(self.model.optimizer.learning_rate)
        row["seconds"] = round(time.perf_counter() - self.started, 3)
        self.rows.append(row)
        self.folder.write_metrics(self.rows)
        with self.events.as_default(step=row["step"]):
            for name in (*values, "learning_rate"):
                tf.summary.scalar(name, row[name])
        self.keeper.checkpoint.epoch.assign(epoch + 1)
        self.keeper.save(epoch + 1)
        said = (
            f"epoch {epoch + 1:>{len(str(self.epochs))}}/{self.epochs}  loss {row['loss']:.4f}  "
            f"accuracy {row['accuracy']:.4f}  test {row['test_accuracy']:.4f}"
        )
        if self.progress.disable:
            print(f"{said}  {row['seconds']:.1f} s", flush=True)
        self.progress.update(self.task, description=said)
