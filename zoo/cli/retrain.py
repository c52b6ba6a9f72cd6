"""``zoo retrain``: from a folder of pictures to a model that can be trusted, in one command."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from zoo.cli._app import RARE, App, choice
from zoo.cli._devices import device_options
from zoo.cli._options import CONFLICTS, FITS, HEADS, LAYOUTS, NetOptions, parse_options
from zoo.cli._records import Record, configurable, given_options, with_records
from zoo.cli.scan import parse_colour, print_scan

app = App()
_PICTURES, _HEAD, _TUNING = "Pictures", "Head", "Fine-tuning"


@dataclass(frozen=True, kw_only=True)
class Trunk(Record):
    """The network that is retrained."""

    net: Annotated[str, typer.Option(help="The trunk: a network for pictures from 'zoo list'.")] = "inception_v3"
    weights: Annotated[
        str | None,
        typer.Option(
            help="imagenet (published, fetched once), embedded (small, comes with zoo), none, or a file. "
            "[default: imagenet; embedded with --demo]"
        ),
    ] = None
    size: Annotated[
        int | None, typer.Option(min=16, help="Side of the pictures in the trunk.", rich_help_panel=RARE)
    ] = None


@dataclass(frozen=True, kw_only=True)
class Head(Record):
    """What reads the trunk's features."""

    bottleneck: Annotated[
        str, typer.Option(help="auto, final, or end points joined by '+'.", rich_help_panel=_HEAD)
    ] = "auto"
    views: Annotated[
        int,
        typer.Option(min=0, help="Augmented views a picture; the first is its mirror image.", rich_help_panel=_HEAD),
    ] = 0
    balance: Annotated[bool, typer.Option("--balance", help="Let every class count alike.", rich_help_panel=_HEAD)] = (
        False
    )
    head: Annotated[
        str, choice(*HEADS, help="softmax is fitted by L-BFGS, the others by steps.", rich_help_panel=_HEAD)
    ] = "softmax"
    hidden: Annotated[
        int, typer.Option(min=0, help="Width of a hidden layer of an sgd or adam head.", rich_help_panel=_HEAD)
    ] = 0
    dropout: Annotated[
        float, typer.Option(min=0, max=0.9, help="Dropout of an sgd or adam head.", rich_help_panel=_HEAD)
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class Pictures(Record):
    """How pictures are read, counted and divided."""

    fit: Annotated[str, choice(*FITS, help="How pictures become squares.", rich_help_panel=_PICTURES)] = "pad"
    background: Annotated[
        str, typer.Option(help="What shows through transparent pixels: white, #rrggbb.", rich_help_panel=_PICTURES)
    ] = "white"
    orient: Annotated[bool, typer.Option(help="Turn pictures as their camera noted.", rich_help_panel=_PICTURES)] = True
    layout: Annotated[
        str, choice(*LAYOUTS, help="subsets: folders called train, val, test.", rich_help_panel=_PICTURES)
    ] = "auto"
    validation: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the validation part.", rich_help_panel=_PICTURES)
    ] = 0.1
    test: Annotated[float, typer.Option(min=0, max=0.9, help="Share of the test part.", rich_help_panel=_PICTURES)] = (
        0.1
    )
    max_bad: Annotated[
        str,
        typer.Option(help="How many bad files are acceptable: 1%, or a number of files.", rich_help_panel=_PICTURES),
    ] = "1%"
    conflicts: Annotated[
        str, choice(*CONFLICTS, help="Pictures in two classes: drop, first or refuse.", rich_help_panel=_PICTURES)
    ] = CONFLICTS[0]
    near: Annotated[
        float | None,
        typer.Option(
            help="Cosine from which pictures are near-duplicates. [default: the trunk's]", rich_help_panel=_PICTURES
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Tuning(Record):
    """How the trunk is trained too."""

    finetune_from: Annotated[
        str | None, typer.Option(help="Train the trunk too, from this end point on.", rich_help_panel=_TUNING)
    ] = None
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of fine-tuning. [default: 10]", rich_help_panel=_TUNING)
    ] = None
    finetune_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the trunk. [default: 0.0001]", rich_help_panel=_TUNING)
    ] = None
    train_batch_norm: Annotated[
        bool, typer.Option("--train-batch-norm", help="Fine-tune batch norm too.", rich_help_panel=_TUNING)
    ] = False


@dataclass(frozen=True, kw_only=True)
class Run(Record):
    """How the work is done."""

    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same run.")] = 0
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.", rich_help_panel=RARE)] = 16
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that read pictures; one a CPU.", rich_help_panel=RARE)
    ] = None
    cache: Annotated[Path | None, typer.Option(help="Folder of the bottleneck caches.", rich_help_panel=RARE)] = None
    export: Annotated[bool, typer.Option(help="Write saved_model and model.keras.", rich_help_panel=RARE)] = True
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Replace the finished run although settings have changed.")
    ] = False


def _of_run(values: dict[str, Any]) -> dict[str, Any] | None:
    """The options in the ``settings.json`` of a run; None for another file."""
    if not {"net", "net_options", "bottleneck"} <= values.keys():
        return None
    renamed = {"option": values["net_options"], "background": ",".join(map(str, values["background"]))}
    tuning = () if values.get("finetune_from") else ("epochs", "finetune_rate")  # which they are about
    flat = {name: value for name, value in values.items() if name not in ("net_options", *tuning)} | renamed
    groups: dict[str, type[Record]] = {"trunk": Trunk, "head": Head, "pictures": Pictures, "tuning": Tuning, "run": Run}
    found: dict[str, Any] = {
        group: {name: flat.pop(name) for name in record.table() if flat.get(name) is not None}
        for group, record in groups.items()
    }
    return found | {name: value for name, value in flat.items() if value is not None}


@app.example(
    "zoo retrain PICTURES --out RUN",
    "zoo retrain --demo",
)
@configurable(of_run=_of_run)
@device_options
@with_records
def retrain(
    context: typer.Context,
    images: Annotated[
        Path | None, typer.Argument(help="A folder with a folder for each class, or a CSV of path,label.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/NAME by default.")] = None,
    *,
    trunk: Trunk,
    head: Head,
    pictures: Pictures,
    tuning: Tuning,
    run: Run,
    option: NetOptions = None,
    demo: Annotated[bool, typer.Option("--demo", help="Try it on scikit-learn's digits; embedded trunk.")] = False,
) -> None:
    """Retrain a network on your own pictures.

    Models, figures and report.html go to the run folder.
    """
    if demo == (images is not None):
        raise ValueError("give either IMAGES, a folder with a folder for each class, or --demo")
    tuned = {name: value for name, value in vars(tuning).items() if value is not None}
    if tuned.keys() & {"epochs", "finetune_rate"} and tuning.finetune_from is None:
        raise ValueError("--epochs and --finetune-rate are about fine-tuning: give --finetune-from END_POINT too")
    from zoo.transfer.pipeline import retrain as run_all

    folder = out or Path("runs") / ("demo" if demo else (images or Path()).resolve().stem)
    settings = {**vars(trunk), **vars(head), **vars(pictures), **tuned, **vars(run)}
    settings["weights"] = trunk.weights or ("embedded" if demo else "imagenet")
    settings["background"] = parse_colour(pictures.background)
    with _progress() as progress:
        made = run_all(
            images or (lambda: _write_demo(folder)),
            folder,
            say=typer.echo,
            on_scan=_look(given_options(context) & {"validation", "test"}),
            progress=progress,
            net_options=parse_options(option),
            **settings,
        )
    typer.echo(f"report: {folder / 'report.html'}")
    if demo:
        _predict_one(made)
    elif run.export:
        typer.echo(f"predict: zoo predict {shlex.quote(str(folder))} PICTURE")


def _look(shares: set[str]) -> Callable[[Any], None]:
    """What to do with the scan: print it, and refuse shares of parts that have folders of their own."""

    def look(scan: Any) -> None:
        print_scan(scan)
        for part in sorted(shares & {picture.subset for picture in scan.pictures}):
            raise ValueError(f"{scan.root} has a {part} folder, which --{part} would not change: leave it out")

    return look


def _write_demo(folder: Path) -> Path:
    pictures = write_digits(folder.parent / f"{folder.name}-pictures")
    typer.echo(f"handwritten digits of scikit-learn, written as PNG files to {pictures}")
    return pictures


def _predict_one(run: Any) -> None:
    """Predicts the first test picture, as a user would."""
    picture = next(p for p in run.scan.pictures if run.split.sets[p.sha256] == run.facts["judged"])
    typer.echo(f"\n$ zoo predict {shlex.quote(str(run.folder))} {shlex.quote(picture.path)}")
    from zoo.cli.predict import name_pictures
    from zoo.transfer.run import load_predictor

    name_pictures(load_predictor(run.folder), [Path(picture.path)], {}, top=3)


def write_digits(folder: Path) -> Path:
    """Writes scikit-learn's 1,797 digits, 8 x 8, as PNG files of 32 x 32 into a folder a class."""
    import numpy as np
    from sklearn.datasets import load_digits

    from zoo.data.images import encode_png

    digits = load_digits()
    for number, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(digit) / f"{number:04d}.png"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            grey = np.repeat(np.repeat(255 - (pixels * 255 / 16).astype(np.uint8), 4, 0), 4, 1)
            path.write_bytes(encode_png(np.repeat(grey[..., None], 3, 2)))
    return folder


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Shows a bar a stage on the terminal's error stream; nothing where there is none."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TaskID

    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if total and stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            if stage in tasks:
                bars.update(tasks[stage], completed=done, total=total)

        yield show
