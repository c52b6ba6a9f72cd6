"""What a retraining run is made with, and what one call of ``retrain`` is to do."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zoo.data.folders import LAYOUTS
from zoo.data.scan import parse_limit
from zoo.transfer.suspicious import CONFLICTS, DROP

HEADS = ("softmax", "sgd", "adam")
FITS = ("pad", "stretch", "crop")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a run is made with; all of it is kept in ``run.json``.

    Args:
        net: The trunk's network.
        weights: Its weights, see ``load_trunk``.
        size: Side of the trunk's input; the weights' own when None.
        net_options: Options of the network.
        bottleneck: End points the head reads: a name, several joined by "+", "final" (the pooled last map), or "auto",
            which lets cross-validation inside the training part choose.
        views: Augmented views of each training picture: the first is its mirror image, others are random crops.
        fit: How pictures become squares, see ``Reader``.
        background: RGB under transparent pixels.
        orient: Turn pictures as their camera noted.
        layout: See ``scan_images``.
        validation: Share of the pictures that calibrate and judge fine-tuning.
        test: Share of the pictures that measure.
        max_bad: How many bad files are acceptable.
        conflicts: What becomes of a picture that lies in two classes, which ``suspicious.csv`` lists: "drop" leaves it
            out, "first" takes the label that is first in the order of names, "refuse" refuses.
        near: Cosine of the standardised features of a middle end point from which two pictures are near-duplicates; the
            trunk's own when None, see ``Trunk.near``.
        balance: Lets every class count alike.
        head: "softmax" (L-BFGS), or "sgd" or "adam": a head trained by steps.
        hidden: Width of a hidden layer, for a head trained by steps.
        dropout: Share that dropout takes away, for a head trained by steps.
        finetune_from: First end point of the trunk to train too; None leaves the trunk alone.
        epochs: Epochs of fine-tuning.
        finetune_rate: Learning rate of the trunk; the head's is ten times that.
        train_batch_norm: Batch norm trains too where the trunk does.
        seed: Of the split, the folds and the fine-tuning.
    """

    net: str = "inception_v3"
    weights: str = "imagenet"
    size: int | None = None
    net_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bottleneck: str = "auto"
    views: int = 0
    fit: str = "pad"
    background: tuple[int, int, int] = (255, 255, 255)
    orient: bool = True
    layout: str = "auto"
    validation: float = 0.1
    test: float = 0.1
    max_bad: str = "1%"
    conflicts: str = DROP
    near: float | None = None
    balance: bool = False
    head: str = "softmax"
    hidden: int = 0
    dropout: float = 0.0
    finetune_from: str | None = None
    epochs: int = 10
    finetune_rate: float = 1e-4
    train_batch_norm: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        number = lambda value: math.isfinite(value) and value >= 0  # noqa: E731
        rules = (
            (self.size is None or self.size >= 16, "size must be 16 or more", self.size),
            (self.views >= 0, "views must be 0 or more", self.views),
            (self.fit in FITS, f"fit must be one of {', '.join(FITS)}", self.fit),
            (self.layout in LAYOUTS, f"layout must be one of {', '.join(LAYOUTS)}", self.layout),
            (self.conflicts in CONFLICTS, f"conflicts must be one of {', '.join(CONFLICTS)}", self.conflicts),
            (self.head in HEADS, f"head must be one of {', '.join(HEADS)}", self.head),
            (self.hidden >= 0, "hidden must be 0 or more", self.hidden),
            (0 <= self.dropout < 1, "dropout must lie in [0, 1)", self.dropout),
            (number(self.validation), "validation must be a share, 0 or more", self.validation),
            (number(self.test), "test must be a share, 0 or more", self.test),
            (self.validation + self.test < 1, "validation and test must leave something to train on", None),
            (
                self.near is None or (math.isfinite(self.near) and self.near >= -1),
                "near must be a cosine; above 1 joins nothing",
                self.near,
            ),
            (
                self.head != "softmax" or not (self.hidden or self.dropout),
                "hidden and dropout need head sgd or adam",
                None,
            ),
            (self.epochs > 0, "epochs must be above 0", self.epochs),
            (number(self.finetune_rate) and self.finetune_rate, "finetune_rate must be above 0", self.finetune_rate),
            (
                self.finetune_from is None or self.validation > 0,
                "fine-tuning needs a validation part to be judged by; set validation above 0",
                None,
            ),
            (self.finetune_from or not self.train_batch_norm, "train_batch_norm needs finetune_from", None),
        )
        for holds, rule, value in rules:
            if not holds:
                raise ValueError(f"{rule}." if value is None else f"{rule}. Received: {value!r}")
        parse_limit(self.max_bad, 1)
        if len(self.background) != 3 or not all(0 <= level <= 255 for level in self.background):
            raise ValueError(f"background takes three levels in 0..255. Received: {self.background!r}")

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {**dataclasses.asdict(self), "background": list(self.background), "net_options": dict(self.net_options)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Settings":
        """Reads what ``to_dict`` gave."""
        return cls(**{**values, "background": tuple(values["background"])})


def silent(*_: object) -> None:
    """Tells nobody."""


@dataclasses.dataclass(frozen=True)
class Job:
    """What one call of ``retrain`` is to do.

    Args:
        settings: What the run is made with.
        folder: The run folder.
        cache: Folder of the bottleneck caches.
        batch_size: Pictures at a time in the trunk.
        workers: Threads that read pictures; one a CPU when None.
        export: Writes the SavedModel and the ``.keras`` file too.
        accept_changes: Replace the finished run that is there although the settings are others.
        tell: Called with a line of text at each stage.
        progress: Called with (stage, done, total).
        made_in: Where the run is made that is to replace a finished one; None for the run folder itself.
    """

    settings: Settings
    folder: Path
    cache: Path
    batch_size: int = 16
    workers: int | None = None
    export: bool = True
    accept_changes: bool = False
    tell: Callable[[str], None] = silent
    progress: Callable[[str, int, int], None] = silent
    made_in: Path | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1 or (self.workers is not None and self.workers < 1):
            raise ValueError(
                f"batch_size and workers must be 1 or more. Received: {self.batch_size} and {self.workers}"
            )

    @property
    def place(self) -> Path:
        """The folder to write into."""
        return self.made_in or self.folder
