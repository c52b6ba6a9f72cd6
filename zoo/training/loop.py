"""The loop of one run: steps, validation, checkpoints, and what they must remember; what ends it."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from zoo.files import validated
from zoo.parallel.strategies import is_chief, is_multi_worker
from zoo.training.checkpoints import to_numpy
from zoo.training.feed import Feed
from zoo.training.progress import Progress, describe, duration
from zoo.training.run_warnings import (
    NonFiniteLossError,
    warn_of_large_batch,
    warn_of_short_run,
    warn_of_what_never_comes,
    word_not_finite,
)
from zoo.training.runfolder import RunFolder
from zoo.training.settings import RunOptions
from zoo.training.state import (
    RunState,
    Sums,
    assign,
    callback_states,
    plain,
    random_state,
    restore_callbacks,
    restore_random_state,
    variables_of,
)
from zoo.training.step import RATE, StepResult
from zoo.weights.saving import card_of

if TYPE_CHECKING:
    from zoo.training.trainer import Trainer

_log = logging.getLogger("zoo")
_ASKED_EVERY = 8  # steps between two questions to all workers, each of which costs a collective operation
_LARGER = ("acc", "auc", "precision", "recall", "f1", "top", "iou", "r2")


class InterruptedRunError(SystemExit):
    """Training was asked to stop; the state is saved. Exit status 128 + signal: 143 for SIGTERM, 130 for Ctrl-C.

    Args:
        signum: the signal.
        message: what was saved and how to go on.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(128 + signum)
        self.signum, self.message = signum, message

    def __str__(self) -> str:
        return self.message


@dataclass
class History:
    """What a run measured.

    Args:
        lines: the lines of metrics.jsonl, of earlier processes too.
        best_step: step of the best validation; None without one.
        best: its monitored value.
        stopped: why it ended: ``complete``, ``early stopping`` or ``callback``.
        step: steps done.
        first_step: steps that were done before this process; as many as `step` where it found the run complete.
        segments: what made the weights: ``from_step``, ``recipe`` and the ``changes`` that were accepted there. One for
            a run whose configuration never changed. A change accepted by a complete run is none: nothing was trained.
    """

    lines: list[dict[str, Any]]
    best_step: int | None
    best: float | None
    stopped: str
    step: int
    first_step: int = 0
    segments: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class EarlyStopping:
    """Follows one validation value: the best so far, and when to stop; its state travels in the checkpoints.

    `best` and `best_step` are of the best validation, None before the first; `worse` counts the validations since then.
    """

    name: str = "val_loss"
    mode: str = "auto"
    patience: int | None = None
    min_delta: float = 0.0
    best: float | None = None
    best_step: int | None = None
    worse: int = 0

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "min", "max"):
            raise ValueError(f"mode must be auto, min or max, received '{self.mode}'")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience must be at least 1, received {self.patience}")

    @property
    def smaller_is_better(self) -> bool:
        """Whether the value is a loss rather than an accuracy."""
        return self.mode == "min" or (self.mode == "auto" and not any(part in self.name for part in _LARGER))

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self.patience is not None and self.worse >= self.patience

    def check(self, measured: Iterable[str]) -> None:
        """Raises ValueError when the followed value is not among the names."""
        if self.name not in (names := sorted(measured)):
            raise ValueError(f"the monitored '{self.name}' is not measured; measured are {', '.join(names)}")

    def update(self, step: int, values: Mapping[str, Any]) -> bool:
        """Takes a validation's values by name, and says whether this is the best so far."""
        self.check(values)
        value = float(values[self.name])
        sign = 1.0 if self.smaller_is_better else -1.0
        if math.isfinite(value) and (self.best is None or sign * value < sign * self.best - self.min_delta):
            self.best, self.best_step, self.worse = value, step, 0
            return True
        self.worse += 1
        return False

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps."""
        return {"best": self.best, "best_step": self.best_step, "worse": self.worse}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` returned."""
        self.best, self.best_step, self.worse = state["best"], state["best_step"], state["worse"]


class Interrupts:
    """Notes SIGTERM and SIGINT (`signum`) while it is entered; a second signal acts at once."""

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self._SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._put_back()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signum = number
        self._put_back()

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class Agreement:
    """Answers that must be the same in all workers of a run, or some would wait for the others for ever.

    Where one process does all, its own answer counts at once. One worker of a run `writes` its files.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.together = is_multi_worker(strategy)
        self.writes = not self.together or is_chief()
        self._strategy = strategy
        self._summed = tf.function(self._sum)

    def any(self, flag: bool, step: int) -> bool:
        """Says whether any worker says yes; asked now and then only."""
        if not self.together:
            return flag
        return step % _ASKED_EVERY == 0 and float(self._summed(tf.constant(float(flag)))) > 0

    def _sum(self, flag: tf.Tensor) -> tf.Tensor:
        parts = self._strategy.run(tf.identity, args=(flag,))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)


class Loop:
    """One run of a built trainer with its training data, and with validation batches or None."""

    def __init__(self, trainer: Trainer, feed: Feed, tests: tf.data.Dataset | None, run: RunOptions) -> None:
        self.trainer, self.feed, self.tests, self.options = trainer, feed, tests, run
        self.engine = trainer.build(feed.element_spec)
        self.monitor = EarlyStopping(run.monitor, run.mode, run.patience, run.min_delta)
        self._check_options()
        warn_of_short_run(trainer.model, self.total)
        warn_of_large_batch(feed.global_batch, feed.stream.examples)
        warn_of_what_never_comes(trainer.schedule, run.profile, self.total)
        self.step, self.rate, self.stopped = int(self.engine.step.numpy()), 0.0, ""
        self.line_sums, self.epoch_sums = Sums(0.0, 0.0, 0), Sums(0.0, 0.0, 0)
        self.last = {"log": self.step, "validation": self.step, "save": -1, "epoch_end": self.step}
        self.results: dict[str, Any] = {}
        self.training_seconds, self._saved_at, self._line_at = 0.0, time.monotonic(), time.monotonic()
        self._pending: tuple[StepResult, int, int] | None = None
        self._best_weights: dict[str, np.ndarray] | None = None
        feed.go_to(*trainer.position)
        self.agreement = Agreement(trainer.strategy)
        self.folder = RunFolder(
            run, self._config(), smaller_is_better=self.monitor.smaller_is_better, writes=self.agreement.writes
        )
        self.look_every, self.profile_edges = self.folder.look_every, self.folder.profile_edges
        self.marks = [n for n in (run.log_every, run.validate_every, run.checkpoint_steps, self.look_every) if n]
        self.callbacks = keras.callbacks.CallbackList(list(run.callbacks), add_history=False, add_progbar=False)
        self.before_step: list[Callable[[int], None]] = []  # called with the number of steps done
        self.after_step: list[Callable[[int], None]] = []

    @property
    def total(self) -> int | None:
        """Steps of the whole run; None when the length of an epoch is not known yet."""
        if self.options.steps is not None:
            return self.options.steps
        return self.feed.batches * (self.options.epochs or 0) if self.feed.batches is not None else None

    def run(self) -> History:
        """Runs to the end; see `Trainer.fit`."""
        self._attach_callbacks()
        try:
            story = self._take_up()
            self.lines = self.folder.begin(self.step, self.engine, self.feed.element_spec)
            show = self.options.progress if self.agreement.writes else "none"
            with Interrupts() as interrupts, Progress(self.step, self.total, show=show) as progress:
                self.interrupts, self.progress = interrupts, progress
                if story:
                    progress.say(story)
                self._hook()
                self.callbacks.on_train_begin()
                first = self.step
                if not self.folder.complete:
                    self._loop()
                    self._finish()
                self._take_best()
        finally:
            self.folder.close()
        self.trainer.position = (self.feed.epoch, self.feed.batch)
        self.callbacks.on_train_end(self.results)
        end = (self.monitor.best_step if self.options.restore_best else None) or self.step
        segments = [one for one in self.folder.segments if not one["from_step"] or one["from_step"] < end]
        best = (self.monitor.best_step, self.monitor.best)
        return History(self.lines, *best, self.stopped, self.step, first_step=first, segments=segments)

    def _take_up(self) -> str:
        """Restores the run that the folder holds, if any; returns what to tell the user."""
        folder, total = self.folder, self.total
        found = folder.open()
        if found is None:
            return f"new run in {folder.path}{f', {total} steps' if total else ''}" if folder.path else ""
        validated(RunState, found.state, found.path)
        changes = folder.changes(found)
        assign(variables_of(self.engine), found.arrays, found.path)
        self.restore(found.state)
        ended = self.has_ended()
        folder.take_up(found, changes, complete=ended and (bool(changes) or self._is_written()))
        ago = duration(max(0.0, time.time() - found.state["time"]))
        story = f"{folder.path} holds this run at step {self.step}, saved {ago} ago in {found.path.name}: "
        if ended:
            return f"{story}it is complete{', so the changes change nothing' if changes else ''}"
        epoch, batch, batches = self.feed.epoch, self.feed.batch, self.feed.batches
        where = f"epoch {epoch + 1}, batch {batch + 1}{f' of {batches}' if batches else ''}"
        return f"{story}going on at step {self.step + 1} ({where})"

    def _config(self) -> dict[str, Any]:
        """What is compared at a resume."""
        feed = self.feed
        data = {"batches": feed.batches, "examples": feed.stream.examples, "global_batch": feed.global_batch}
        names = ("validate_every", "monitor", "mode", "patience", "min_delta")
        validation = {name: getattr(self.options, name) for name in names} if self.tests is not None else {}
        return {**self.trainer.describe(), "data": data, "validation": validation}

    def _hook(self) -> None:
        """Notes what is called around steps: only what has something to do, for a step may take a millisecond."""
        self.before_step += self.folder.before_step()
        if self.options.callbacks:
            self.before_step.append(lambda _: self.callbacks.on_train_batch_begin(self.feed.batch))
            self.after_step.append(lambda _: self._batch_ends())
        elif self.look_every:
            self.after_step.append(lambda _: self._drain())
        if self.progress.show != "none":
            self.after_step.append(self.progress.step)
        self.after_step += self.folder.after_step()

    def _check_options(self) -> None:
        """Refuses what would be noticed late, before anything is written."""
        if self.tests is None:
            for name in ("patience", "validate_every"):
                if getattr(self.options, name) is not None:
                    raise ValueError(f"{name} needs validation data; give fit validation=, or leave {name} out")
            return
        names = ["loss", "regularization_loss", *(metric.name for metric in self.engine.validation_metrics)]
        self.monitor.check([f"val_{name}" for name in names])

    # The loop.

    def _loop(self) -> None:
        while True:
            self._boundary()
            if self.has_ended():
                return
            if self.feed.batch == 0 and not self.epoch_sums.steps:
                self.callbacks.on_epoch_begin(self.feed.epoch)
            epoch, batch, batches = self.feed.epoch, self.feed.batch, self.feed.batches
            left = None if batches is None else batches - batch
            if self.feed.iterator is None:
                self.feed.open()
            for hook in self.before_step:
                hook(self.step)
            count = self._count(left)
            try:
                result = self._call(count, left)
            except StopIteration:
                self._drain()
                self.feed.end_epoch()
                continue
            self._drain()
            self._pending, self._last_batch = (result, epoch, batch), batch + count - 1  # in its epoch
            self.step += count
            self.feed.advance(count)
            for hook in self.after_step:
                hook(self.step)
            if self.agreement.any(self.interrupts.signum is not None, self.step):
                self._leave()

    def _call(self, count: int, left: int | None) -> StepResult:
        if self._looks():
            result, seen = self.engine.observe(self.feed.iterator)
            if self.folder.writes:
                variables = dict(zip(self.engine.names, self.engine.variables, strict=True))
                self.folder.summaries.inside(self.step + 1, seen, variables)
            return result
        if left is None:  # a compiled step that meets the end has done half of its work: ask before
            return self.engine.train_on(next(self.feed.iterator))
        return self.engine.train(self.feed.iterator, count)

    def _looks(self) -> bool:
        """Whether the next step is one to look into."""
        return self.look_every is not None and self.step % self.look_every == 0

    def _count(self, left: int | None) -> int:
        """Steps of the next call: up to the next thing that has to happen between two steps."""
        if left is None or self._looks():
            return 1
        gaps = [every - self.step % every for every in self.marks]
        if self.options.steps is not None:
            gaps.append(self.options.steps - self.step)
        gaps += [edge - self.step for edge in self.profile_edges if edge > self.step]
        return min(self.trainer.steps_per_call, left, *gaps)

    def _batch_ends(self) -> None:
        """Tells callbacks what the last call measured."""
        self._drain()
        self.callbacks.on_train_batch_end(self._last_batch, {**self.line_sums.means(), **self._metrics()})

    def _drain(self) -> None:
        """Takes in the results of the last call; by then the device works on the next one."""
        if self._pending is None:
            return
        (result, epoch, batch), self._pending = self._pending, None
        losses = result.losses.numpy()
        if not len(losses):  # lost with the worker that took the steps
            return
        for row in losses:
            self.line_sums.add(row)
            self.epoch_sums.add(row)
        self.rate = float(losses[-1, RATE])
        if not np.isfinite(losses[-1]).all():
            self._not_finite(losses[-1], result.examples.numpy(), epoch, batch + len(losses) - 1)

    def _not_finite(self, row: np.ndarray, examples: np.ndarray, epoch: int, batch: int) -> None:
        step = self.last["log"] + self.line_sums.steps
        where = f"step {step} (learning rate {self.rate:g}, epoch {epoch + 1}, batch {batch + 1})"
        raise NonFiniteLossError(
            f"{word_not_finite(self.feed, row, examples, where, epoch, batch)}. {self.folder.last_good()} Lower the "
            "learning rate, clip the gradients (clip_norm) or repair the data"
        )

    # Between two steps.

    def _boundary(self) -> None:
        """What is due after this step; each part happens once, also when a run is taken up here."""
        if self.step == 0 and self.last["save"] < 0:
            self._save()
        if self.step == 0:
            return
        epoch_ended = self.feed.batch == 0
        final = self.options.steps is not None and self.step >= self.options.steps
        if (self.step % self.options.log_every == 0 or epoch_ended or final) and self.last["log"] != self.step:
            self._log()
        every = self.options.validate_every
        due = self.step % every == 0 if every else epoch_ended
        if self.tests is not None and (due or final) and self.last["validation"] != self.step:
            self._validate()
        if epoch_ended and self.last["epoch_end"] != self.step:
            self.last["epoch_end"] = self.step
            logs = {**self.epoch_sums.means(), **{k: v for k, v in self.results.items() if k not in ("step", "epoch")}}
            self.epoch_sums = Sums(0.0, 0.0, 0)
            self.callbacks.on_epoch_end(self.feed.epoch - 1, logs)
        minutes = self.options.checkpoint_minutes
        due = bool(self.options.checkpoint_steps and self.step % self.options.checkpoint_steps == 0)
        if minutes is not None and self.agreement.any(time.monotonic() - self._saved_at >= minutes * 60, self.step):
            due = True
        if (due or self.last["validation"] == self.step == self.monitor.best_step) and self.last["save"] != self.step:
            self._save()

    def _is_written(self) -> bool:
        """Whether the log line and the validation of this step are in metrics.jsonl."""
        return self.step == self.last["log"] and (self.tests is None or self.step == self.last["validation"])

    def has_ended(self) -> bool:
        """Whether the run has its length or is to stop; `stopped` then says why."""
        steps, epochs = self.options.steps, self.options.epochs
        if self.monitor.exhausted:
            self.stopped = "early stopping"
        elif self.options.callbacks and getattr(self.trainer.model, "stop_training", False):
            self.stopped = "callback"
        elif (steps is not None and self.step >= steps) or (epochs is not None and self.feed.epoch >= epochs):
            self.stopped = "complete"
        return bool(self.stopped)

    def _metrics(self) -> dict[str, float]:
        return {metric.name: float(metric.result()) for metric in self.engine.metrics}

    def _log(self) -> None:
        self._drain()
        seconds = time.monotonic() - self._line_at
        means = {**self.line_sums.means(), **self._metrics(), "learning_rate": self.rate}
        speed = self.line_sums.steps * (self.feed.global_batch or 0) / max(seconds, 1e-9)
        epoch = self.feed.epoch + 1 - (self.feed.batch == 0)
        self.results = {**means, **{k: v for k, v in self.results.items() if k.startswith("val_")}}
        self._line(
            {"step": self.step, "epoch": epoch, "kind": "train", **means, "examples_per_second": round(speed, 1)}
        )
        self.last["log"] = self.step
        self.line_sums = Sums(0.0, 0.0, 0)
        for metric in self.engine.metrics:
            metric.reset_state()
        self.training_seconds += seconds
        self._line_at = time.monotonic()

    def _line(self, values: dict[str, Any]) -> None:
        self.lines.append(values)
        self.folder.write(values)
        self.progress.step(self.step, {**self.results, **values})

    def _validate(self) -> None:
        self._drain()
        if self.tests is None:
            return
        started = time.monotonic()
        self.callbacks.on_test_begin()
        found = self.trainer.measure(self.tests, going_on=lambda: self.agreement.together or not self.interrupts.signum)
        if not found:
            self._leave()
        values = {f"val_{name}": value for name, value in found.items()}
        self.results |= values
        self.last["validation"] = self.step
        better = self.monitor.update(self.step, values)
        self.callbacks.on_test_end(values)
        epoch = self.feed.epoch + 1 - (self.feed.batch == 0)
        self._line({"step": self.step, "epoch": epoch, "kind": "validation", **values})
        self.progress.say(
            f"step {self.step}: {describe(values)}{' (best so far)' if better and self.options.restore_best else ''}"
        )
        if better and self.folder.checkpoints is None and self.options.restore_best:
            model = {
                name: v for name, v in variables_of(self.engine).items() if name.startswith(("model/", "averages/"))
            }
            self._best_weights = {name: to_numpy(variable).copy() for name, variable in model.items()}
        self._line_at += time.monotonic() - started

    # Saving, leaving, ending.

    def _save(self, wait: bool = False) -> None:
        self._drain()
        self.last["save"] = self.step
        if self.folder.checkpoints is not None:
            self.folder.save(variables_of(self.engine), self.state(), wait=wait)
        self._saved_at = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps beside the variables."""
        validated = self.last["validation"] == self.step and self.step > 0
        return {
            "step": self.step,
            "epoch": self.feed.epoch,
            "batch": self.feed.batch,
            "monitor": self.monitor.state(),
            "metric": self.results.get(self.monitor.name) if validated else None,
            "line_sums": vars(self.line_sums),
            "epoch_sums": vars(self.epoch_sums),
            "last": self.last,
            "results": self.results,
            "rate": self.rate,
            "training_seconds": self.training_seconds + time.monotonic() - self._line_at,
            "callbacks": callback_states(self.options.callbacks),
            "random": random_state(),
            "card": plain(card_of(self.trainer.model).to_dict()) if hasattr(self.trainer.model, "network") else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` returned; the variables are restored already."""
        self.step, self.rate, self.results = state["step"], state["rate"], dict(state["results"])
        self.feed.go_to(state["epoch"], state["batch"])
        self.monitor.restore(state["monitor"])
        self.line_sums, self.epoch_sums = Sums(**state["line_sums"]), Sums(**state["epoch_sums"])
        self.last = {**state["last"], "save": state["step"]}
        self.training_seconds = state["training_seconds"]
        restore_callbacks(self.options.callbacks, state["callbacks"])
        restore_random_state(state["random"])

    def _leave(self) -> None:
        """Saves and ends the process's run because of a signal."""
        self._drain()
        signum = self.interrupts.signum or 15  # or another worker's
        if self.last["save"] != self.step:
            self._save(wait=True)
        self.folder.wait()
        raise InterruptedRunError(signum, self.folder.farewell(self.step))

    def _finish(self) -> None:
        self._drain()
        if self.last["log"] != self.step:
            self._log()
        if self.tests is not None and self.last["validation"] != self.step:
            self._validate()
        if self.last["save"] != self.step:
            self._save(wait=True)
        self.folder.wait()

    def _take_best(self) -> None:
        """Ends with the weights of the best validation."""
        if not self.options.restore_best or self.monitor.best_step is None:
            return
        kept = self.folder.checkpoints is not None
        best = self.folder.best_arrays(self.monitor.best_step) if kept else self._best_weights
        if best is not None:
            variables = variables_of(self.engine)
            assign(variables, best, "of the best validation", only="model/")
            if self.trainer.averages is not None:
                assign(variables, best, "of the best validation", only="averages/")
                self.trainer.averages.to_weights()
            self.progress.say(f"the model is that of step {self.monitor.best_step}, the best by {self.monitor.name}")

    def _attach_callbacks(self) -> None:
        if self.options.callbacks:
            model = self.trainer.model
            model.stop_training = False
            if getattr(model, "optimizer", None) is None:
                model.optimizer = self.trainer.optimizer
            self.callbacks.set_model(model)
            self.callbacks.set_params({"epochs": self.options.epochs, "steps": self.feed.batches, "verbose": 0})
