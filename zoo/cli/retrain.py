"""``zoo retrain``: from a folder of pictures to a model that can be trusted, in one command."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from zoo.cli._app import RARE, App, choice
from zoo.cli._devices import device_options
from zoo.cli._options import FITS, HEADS, LAYOUTS, NetOptions, given_options, parse_options
from zoo.cli.scan import parse_colour, print_scan

app = App()
_PICTURES, _HEAD, _TUNING = "Pictures", "Head", "Fine-tuning"


@app.example(
    "zoo retrain PICTURES --out RUN",
    "zoo retrain --demo",
)
@device_options
def retrain(
    context: typer.Context,
    images: Annotated[
        Path | None, typer.Argument(help="A folder with a folder for each class, or a CSV of path,label.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/NAME by default.")] = None,
    net: Annotated[str, typer.Option(help="The trunk: a network for pictures from 'zoo list'.")] = "inception_v3",
    weights: Annotated[
        str | None,
        typer.Option(
            help="imagenet (published, fetched once), embedded (small, comes with zoo), none, or a file. "
            "[default: imagenet; embedded with --demo]"
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=16, help="Side of the pictures in the trunk.", rich_help_panel=RARE)
    ] = None,
    bottleneck: Annotated[
        str, typer.Option(help="auto, final, or end points joined by '+'.", rich_help_panel=_HEAD)
    ] = "auto",
    views: Annotated[
        int,
        typer.Option(min=0, help="Augmented views a picture; the first is its mirror image.", rich_help_panel=_HEAD),
    ] = 0,
    fit: Annotated[str, choice(*FITS, help="How pictures become squares.", rich_help_panel=_PICTURES)] = "pad",
    background: Annotated[
        str, typer.Option(help="What shows through transparent pixels: white, #rrggbb.", rich_help_panel=_PICTURES)
    ] = "white",
    orient: Annotated[
        bool, typer.Option(help="Turn pictures as their camera noted.", rich_help_panel=_PICTURES)
    ] = True,
    layout: Annotated[
        str, choice(*LAYOUTS, help="subsets: folders called train, val, test.", rich_help_panel=_PICTURES)
    ] = "auto",
    validation: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the validation part.", rich_help_panel=_PICTURES)
    ] = 0.1,
    test: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the test part.", rich_help_panel=_PICTURES)
    ] = 0.1,
    max_bad: Annotated[
        str,
        typer.Option(help="How many bad files are acceptable: 1%, or a number of files.", rich_help_panel=_PICTURES),
    ] = "1%",
    near: Annotated[
        float, typer.Option(help="Cosine from which pictures are near-duplicates.", rich_help_panel=_PICTURES)
    ] = 0.95,
    balance: Annotated[
        bool, typer.Option("--balance", help="Let every class count alike.", rich_help_panel=_HEAD)
    ] = False,
    head: Annotated[
        str, choice(*HEADS, help="softmax is fitted by L-BFGS, the others by steps.", rich_help_panel=_HEAD)
    ] = "softmax",
    hidden: Annotated[
        int, typer.Option(min=0, help="Width of a hidden layer of an sgd or adam head.", rich_help_panel=_HEAD)
    ] = 0,
    dropout: Annotated[
        float, typer.Option(min=0, max=0.9, help="Dropout of an sgd or adam head.", rich_help_panel=_HEAD)
    ] = 0.0,
    finetune_from: Annotated[
        str | None, typer.Option(help="Train the trunk too, from this end point on.", rich_help_panel=_TUNING)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of fine-tuning. [default: 10]", rich_help_panel=_TUNING)
    ] = None,
    finetune_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the trunk. [default: 0.0001]", rich_help_panel=_TUNING)
    ] = None,
    train_batch_norm: Annotated[
        bool, typer.Option("--train-batch-norm", help="Fine-tune batch norm too.", rich_help_panel=_TUNING)
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same run.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.", rich_help_panel=RARE)] = 16,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that read pictures; one a CPU.", rich_help_panel=RARE)
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder of the bottleneck caches.", rich_help_panel=RARE)] = None,
    export: Annotated[bool, typer.Option(help="Write saved_model and model.keras.", rich_help_panel=RARE)] = True,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Replace the finished run although settings have changed.")
    ] = False,
    option: NetOptions = None,
    demo: Annotated[bool, typer.Option("--demo", help="Try it on scikit-learn's digits; embedded trunk.")] = False,
) -> None:
    """Retrain a network on your own pictures.

    Models, figures and report.html go to the run folder.
    """
    if demo == (images is not None):
        raise ValueError("give either IMAGES, a folder with a folder for each class, or --demo")
    tuning = {name: v for name, v in (("epochs", epochs), ("finetune_rate", finetune_rate)) if v is not None}
    if tuning and finetune_from is None:
        raise ValueError("--epochs and --finetune-rate are about fine-tuning: give --finetune-from END_POINT too")
    from zoo.transfer.pipeline import retrain as run_all

    folder = out or Path("runs") / ("demo" if demo else (images or Path()).resolve().stem)

    def write_demo() -> Path:
        pictures = write_digits(folder.parent / f"{folder.name}-pictures")
        typer.echo(f"handwritten digits of scikit-learn, written as PNG files to {pictures}")
        return pictures

    shares = given_options(context) & {"validation", "test"}

    def look(scan: Any) -> None:
        print_scan(scan)
        for part in sorted(shares & {picture.subset for picture in scan.pictures}):
            raise ValueError(f"{scan.root} has a {part} folder, which --{part} would not change: leave it out")

    with _progress() as progress:
        run = run_all(
            images or write_demo,
            folder,
            cache=cache,
            batch_size=batch_size,
            workers=workers,
            export=export,
            accept_changes=accept_changes,
            say=typer.echo,
            on_scan=look,
            progress=progress,
            net=net,
            weights=weights or ("embedded" if demo else "imagenet"),
            size=size,
            net_options=parse_options(option),
            bottleneck=bottleneck,
            views=views,
            fit=fit,
            background=parse_colour(background),
            orient=orient,
            layout=layout,
            validation=validation,
            test=test,
            max_bad=max_bad,
            near=near,
            balance=balance,
            head=head,
            hidden=hidden,
            dropout=dropout,
            finetune_from=finetune_from,
            **tuning,
            train_batch_norm=train_batch_norm,
            seed=seed,
        )
    typer.echo(f"report: {folder / 'report.html'}")
    if demo:
        _predict_one(run)
    elif export:
        typer.echo(f"predict: zoo predict {shlex.quote(str(folder))} PICTURE")


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
