"""The learning-rate range test: a few steps with rates from tiny to huge, and the loss at each."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.tfrecord.files import damage_named
from zoo.files import replacing
from zoo.training.checkpoints import to_numpy
from zoo.training.feed import Feed
from zoo.training.state import assign, variables_of

if TYPE_CHECKING:
    from zoo.training.trainer import Trainer


@dataclass
class RangeTest:
    """What the range test found.

    Args:
        rates: learning rates tried, rising.
        losses: total loss before each update.
        smoothed: their exponential mean, corrected for its start.
        suggestion: the rate at which the smoothed loss falls fastest.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    suggestion: float

    def write(self, path: str | Path) -> Path:
        """Writes rates and losses as CSV."""
        with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["learning_rate", "loss", "smoothed_loss"])
            writer.writerows(zip(self.rates, self.losses, self.smoothed, strict=True))
        return Path(path)

    def plot(self, path: str | Path) -> Path:
        """Draws loss against learning rate with the suggestion marked.

        Args:
            path: the picture to write; its ending says the format.

        Returns:
            The path.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        axes.plot(self.rates, self.losses, alpha=0.3, label="loss of a batch")
        axes.plot(self.rates, self.smoothed, label="smoothed")
        axes.axvline(self.suggestion, color="tab:red", linestyle="--", label=f"steepest: {self.suggestion:.2g}")
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
        axes.set_ylim(0.9 * min(self.smoothed), 1.1 * max(self.smoothed))
        axes.grid(alpha=0.3)
        axes.legend()
        with replacing(path, Path(path).suffix) as temporary:
            figure.savefig(temporary, dpi=120)
        return Path(path)


@damage_named()
def find_learning_rate(
    trainer: Trainer,
    data: Any,
    *,
    lowest: float = 1e-6,
    highest: float = 10.0,
    steps: int = 100,
    smoothing: float = 0.9,
) -> RangeTest:
    """Runs the learning-rate range test (Smith 2017, arXiv 1506.01186, section 3.3) and puts everything back.

    The rate rises exponentially from step to step; the test ends when the smoothed loss is four times its least value
    or is not finite. The optimizer starts afresh; weights, optimizer, averages and the step are restored afterwards.

    Args:
        trainer: what would be trained.
        data: as for `Trainer.fit`; repeated when it is shorter than `steps`.
        lowest: first rate.
        highest: last rate.
        steps: most updates.
        smoothing: of the exponential mean of the losses, 0 to below 1.

    Returns:
        Rates, losses, and the rate at which the loss falls fastest.

    Raises:
        ValueError: rates that do not rise, fewer than 10 steps, or a loss that is not finite from the start.
    """
    if not 0 < lowest < highest:
        raise ValueError(f"the rates must rise from above 0, received {lowest} to {highest}")
    if steps < 10 or not 0 <= smoothing < 1:
        raise ValueError(f"a range test needs 10 steps and smoothing in [0, 1), received {steps} and {smoothing}")
    feed = Feed(data, trainer.strategy, global_batch=trainer.global_batch, seed=trainer.seed, steps_per_epoch=None)
    engine = trainer.build(feed.element_spec)
    variables = variables_of(engine)
    before = {name: to_numpy(variable).copy() for name, variable in variables.items()}
    for name, variable in variables.items():
        if name.startswith("optimizer/") and len(variable.shape):
            variable.assign(np.zeros_like(before[name]))  # old momentum would move the weights whatever the rate
    step, tested, mean = engine.plain_step(), RangeTest([], [], [], lowest), 0.0
    try:
        for number in range(steps):
            rate = lowest * (highest / lowest) ** (number / (steps - 1))
            engine.optimizer.learning_rate.assign(rate)
            if feed.iterator is None:
                feed.open()
            losses, _ = step(feed.iterator)
            loss = float(losses[0] + losses[1])
            mean = smoothing * mean + (1 - smoothing) * loss
            smoothed = mean / (1 - smoothing ** (number + 1))
            if not math.isfinite(loss) or smoothed > 4 * min(tested.smoothed, default=math.inf):
                break
            tested.rates.append(rate)
            tested.losses.append(loss)
            tested.smoothed.append(smoothed)
            feed.advance(1)
    finally:
        assign(variables, before, "before the range test")
    if len(tested.rates) < 5:
        raise ValueError(
            f"the loss was not finite or exploded after {len(tested.rates)} steps; try a smaller lowest rate"
        )
    tested.suggestion = _steepest(tested.rates, tested.smoothed)
    return tested


def _steepest(rates: list[float], losses: list[float]) -> float:
    """The middle of the window in which a straight line through the losses falls most, up to the least loss."""
    lowest = max(int(np.argmin(losses)) + 1, 5)
    width = max(5, lowest // 4)
    logs = np.log(rates)
    starts = range(max(1, lowest - width + 1))
    slopes = [np.polyfit(logs[start : start + width], losses[start : start + width], 1)[0] for start in starts]
    return rates[min(int(np.argmin(slopes)) + width // 2, len(rates) - 1)]
