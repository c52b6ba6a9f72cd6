"""``zoo bench scaling``: a training step on one device and shared by several, side by side."""

import csv
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from zoo.cli._app import choice
from zoo.cli._bench_run import machine, ratio
from zoo.cli._devices import device_options
from zoo.cli._options import NetOptions, Overwrite, parse_options
from zoo.cli._print import print_table
from zoo.files import refuse_existing, replacing


@device_options
def scaling(
    nets: Annotated[str, typer.Option(help="Networks for pictures, from 'zoo list'.")] = "lenet5",
    batch: Annotated[int, typer.Option(min=1, help="Examples a step over all devices.")] = 512,
    weak: Annotated[bool, typer.Option("--weak", help="So many on each device instead.")] = False,
    strategies: Annotated[
        str, choice("towers", "mirrored", several=True, help="How devices share each batch.")
    ] = "towers,mirrored",
    batch_norm: Annotated[str, choice("mean", "sync", help="Batch norm over devices.")] = "mean",
    counts: Annotated[str, typer.Option(help="Numbers of devices; all there are by default.")] = "",
    rounds: Annotated[int, typer.Option(min=3, help="Measured steps of each.")] = 20,
    option: NetOptions = None,
    out: Annotated[Path, typer.Option(help="Folder for the CSV.")] = Path("bench"),
    name: Annotated[str, typer.Option(help="Stem of its name.")] = "scaling",
    overwrite: Overwrite = False,
) -> None:
    """Time of a training step by strategy and number of devices.

    The steps are taken in rounds, one of each after the other. Try it without GPUs: --devices cpu:0,cpu:1.
    """
    from zoo.parallel import available_devices
    from zoo.registry import get_net

    refuse_existing("--out", [out / f"{name}.csv"], overwrite)
    there = available_devices()
    numbers = [word.strip() for word in counts.split(",") if word.strip()]
    if not all(word.isdecimal() for word in numbers):
        raise ValueError(f"--counts are numbers of devices, such as 2,4; got {counts!r}")
    wanted = [int(word) for word in numbers] or sorted({2, len(there)} - {1})
    if not wanted or min(wanted) < 1 or max(wanted) > len(there):
        raise ValueError(
            f"there are {len(there)} devices ({', '.join(there)}) and {wanted or 'more than one'} are to be measured; "
            "--devices cpu:0,cpu:1 divides the CPU"
        )
    kinds = [word.strip() for word in strategies.split(",") if word.strip()]
    names = [word.strip() for word in nets.split(",")]
    for net in names:
        if get_net(net).spec.preprocessing is None:
            raise ValueError(f"--nets are networks for pictures; {net} takes other inputs")
    rows: list[dict[str, Any]] = []
    for net in names:
        cells = [("single", 1), *((kind, count) for kind in kinds for count in wanted)]
        examples = [batch * count if weak else batch for _, count in cells]
        steps = [
            make_step(net, kind, there[:count], size, batch_norm, parse_options(option))
            for (kind, count), size in zip(cells, examples, strict=True)
        ]
        seconds = in_rounds(steps, rounds)
        for (kind, count), size, taken in zip(cells, examples, seconds, strict=True):
            middle, low, high = ratio(taken, seconds[0])
            row = {"net": net, "strategy": kind, "devices": count, "batch": size, "batch_norm": batch_norm}
            row |= {"median_s": round(median(taken), 5), "images_per_s": round(size / median(taken), 1)}
            rows.append(row | {"ratio": round(middle, 4), "ratio_low": round(low, 4), "ratio_high": round(high, 4)})
    write(out / f"{name}.csv", rows, rounds)
    print_table(
        ["net", "strategy", "devices >", "batch >", "s/step >", "images/s >", "beside one device >"],
        [
            [
                *(row["net"], row["strategy"], str(row["devices"]), str(row["batch"]), f"{row['median_s']:.4f}"),
                *(
                    f"{row['images_per_s']:,.0f}",
                    f"{row['ratio']:.3f} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]",
                ),
            ]
            for row in rows
        ],
    )
    typer.echo(str(out / f"{name}.csv"))


def make_step(
    net: str, strategy: str, devices: Sequence[str], batch: int, batch_norm: str, options: dict[str, Any]
) -> Callable[[], None]:
    """Returns a function that takes one training step on a batch of random pictures that is always the same."""
    import contextlib

    import numpy as np
    import tensorflow as tf

    from zoo.parallel import Towers, mirrored
    from zoo.registry import get_net
    from zoo.training import Trainer

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
    pictures = chance.random((batch, *model.book.input_specs.shape[1:]), dtype=np.float32)
    labels = chance.integers(0, model.book.output_specs.shape[-1], batch)
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


def in_rounds(steps: Sequence[Callable[[], Any]], rounds: int, warmup: int = 3) -> list[list[float]]:
    """Times functions in turn, forwards and backwards by turns; returns the seconds of each."""
    for step in steps:
        for _ in range(warmup):
            step()
    seconds: list[list[float]] = [[] for _ in steps]
    for turn in range(rounds):
        order = range(len(steps)) if turn % 2 == 0 else range(len(steps) - 1, -1, -1)
        for number in order:
            started = time.perf_counter()
            steps[number]()
            seconds[number].append(time.perf_counter() - started)
    return seconds


def write(path: Path, rows: Sequence[dict[str, Any]], rounds: int) -> None:
    """Writes the rows with machine, versions and command; the file appears whole or not at all."""
    import keras
    import tensorflow as tf

    about = {
        "rounds": rounds,
        "machine": machine(),
        "versions": f"tensorflow {tf.__version__} keras {keras.__version__}",
        "date": date.today().isoformat(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0], *about])
        table.writeheader()
        table.writerows({**row, **about} for row in rows)
