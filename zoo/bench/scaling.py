"""A training step on one device and shared by several, side by side."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.bench.measures import in_rounds, ratio
from zoo.parallel import Towers, mirrored
from zoo.registry import get_net
from zoo.training import Trainer


@dataclass(frozen=True)
class Sharing:
    """How devices share the batches that are measured.

    Args:
        kinds: "towers", "mirrored".
        counts: Numbers of devices.
        devices: There are so many.
        batch: Examples a step over all devices.
        weak: So many on each device instead.
        batch_norm: "mean" or "sync".
    """

    kinds: Sequence[str]
    counts: Sequence[int]
    devices: Sequence[str]
    batch: int
    weak: bool = False
    batch_norm: str = "mean"


def measure(net: str, sharing: Sharing, rounds: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Takes the steps in rounds, one of each after the other; returns a row each, the one on one device first."""
    cells = [("single", 1), *((kind, count) for kind in sharing.kinds for count in sharing.counts)]
    examples = [sharing.batch * count if sharing.weak else sharing.batch for _, count in cells]
    steps = [
        make_step(net, kind, sharing.devices[:count], size, sharing.batch_norm, options)
        for (kind, count), size in zip(cells, examples, strict=True)
    ]
    seconds = in_rounds(steps, rounds)
    rows = []
    for (kind, count), size, taken in zip(cells, examples, seconds, strict=True):
        middle, low, high = ratio(taken, seconds[0])
        row = {"net": net, "strategy": kind, "devices": count, "batch": size, "batch_norm": sharing.batch_norm}
        row |= {"median_s": round(median(taken), 5), "images_per_s": round(size / median(taken), 1)}
        rows.append(row | {"ratio": round(middle, 4), "ratio_low": round(low, 4), "ratio_high": round(high, 4)})
    return rows


def make_step(
    net: str, strategy: str, devices: Sequence[str], batch: int, batch_norm: str, options: dict[str, Any]
) -> Callable[[], None]:
    """Returns a function that takes one training step on a batch of random pictures that is always the same."""
    network = get_net(net)
    network.check_options(options)
    place: Any = None
    if strategy == "towers":
        place = Towers(devices, batch_norm=batch_norm)
    elif strategy == "mirrored":
        place = mirrored(devices)
    with contextlib.nullcontext() if place is None else place.scope():
        model = network(seed=0, **options)
    chance = np.random.default_rng(0)
    pictures = chance.random((batch, *model.input_specs.shape[1:]), dtype=np.float32)
    labels = chance.integers(0, model.output_specs.shape[-1], batch)
    data = tf.data.Dataset.from_tensors((pictures, labels)).repeat()
    synchronized = strategy == "mirrored" and batch_norm == "sync"
    trainer = Trainer(
        model, optimizer="momentum", learning_rate=1e-4, metrics=(), strategy=place, sync_batch_norm=synchronized
    )
    engine = trainer.build(data.element_spec)
    iterator = iter(trainer.strategy.experimental_distribute_dataset(data))

    def step() -> None:
        engine.train(iterator, 1).losses.numpy()

    return step
