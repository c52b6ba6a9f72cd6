"""What a user sees of a run: a progress bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

SHOWN = ("auto", "bar", "lines", "none")
_SHOWN_LAST = ("epoch", "step", "kind", "seconds", "regularization_loss", "task_loss", "val_regularization_loss")


class _Bar(RichProgress):
    """A bar with the newest results on a line of their own: beside it they would push it off a narrow terminal."""

    results = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar, and below it the results."""
        yield self.make_tasks_table(self.tasks)
        if self.results:
            yield Text(self.results)


class Progress:
    """Shows a run's progress from step `first` to `total`, if that is known, on standard error.

    `show` is ``auto`` (a bar on a terminal, else lines), ``bar``, ``lines`` (one in so many seconds) or ``none``.
    """

    def __init__(
        self,
        first: int,
        total: int | None,
        *,
        show: str = "auto",
        seconds: float = 60.0,
        console: Console | None = None,
    ) -> None:
        if show not in SHOWN:
            raise ValueError(f"progress must be {', '.join(SHOWN[:-1])} or {SHOWN[-1]}, received '{show}'")
        self.console = console or Console(stderr=True)
        self.show = ("bar" if self.console.is_terminal else "lines") if show == "auto" else show
        self.total, self.seconds, self._first = total, seconds, first
        self._started = self._said = time.monotonic()
        self._values: Mapping[str, Any] = {}
        self._bar: _Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        if self.show == "bar":
            columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = _Bar(*columns, console=self.console)
            self._bar.start()
            self._task = self._bar.add_task("steps", total=self.total, completed=self._first)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Prints a line, above the bar if there is one."""
        if self.show != "none":
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def step(self, step: int, values: Mapping[str, Any] | None = None) -> None:
        """Notes the steps done, and newest results by name; now and then the user sees it."""
        if values:
            self._values = values
        if self._bar is not None and self._task is not None:
            self._bar.results = describe(self._values)
            self._bar.update(self._task, completed=step)
        elif self.show == "lines" and time.monotonic() - self._said >= self.seconds:
            self._said = time.monotonic()
            self.say(self.line(step))

    def line(self, step: int) -> str:
        """Words the state: step, values, time left."""
        of = f" of {self.total}" if self.total else ""
        left = ""
        if self.total and step > self._first:
            seconds = (time.monotonic() - self._started) / (step - self._first) * (self.total - step)
            left = f", {duration(seconds)} left"
        values = describe(self._values)
        return f"step {step}{of}{': ' if values else ''}{values}{left}"


def describe(values: Mapping[str, Any]) -> str:
    """Words results shortly: ``loss 0.312 accuracy 0.91``."""
    shown = {name: value for name, value in values.items() if name not in _SHOWN_LAST}
    return " ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in shown.items())


def duration(seconds: float) -> str:
    """Words a time: ``45 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
