"""``zoo predict``: what a network with trained weights, or the model of a finished run, sees in pictures."""

import csv
import json
import os
import shutil
import stat
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from zoo.cli._app import BAD, FAILED, App
from zoo.cli._options import NetOptions, parse_options
from zoo.cli._train_run import kind_of_run, load_train_predictor, refuse_other_runs
from zoo.files import parse_json, reading

if TYPE_CHECKING:
    import numpy as np

    from zoo.transfer.run import Predictor

app = App()

NONE = "none of these"

# What --json prints, whatever the model is: a list of rows, and behind them what could not be read.
Guess = TypedDict("Guess", {"class": str, "index": int, "probability": float})


class Row(TypedDict):
    """A picture; its label is None where no class is likely enough."""

    file: str
    label: str | None
    predictions: list[Guess]


class Unread(TypedDict):
    """A file that is no picture."""

    file: str
    error: str


@app.example(
    "zoo predict RUN photo.jpg --reject-below 0.5",
    "zoo predict inception_v3 --weights imagenet PICTURES --top 3",
)
def predict(
    net: Annotated[
        str,
        typer.Argument(
            metavar="NET|RUN", help="A network from 'zoo list', or a folder of 'zoo retrain' or 'zoo train'."
        ),
    ],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Picture files, and folders of them.")],
    weights: Annotated[
        str | None, typer.Option(help="For a network: a path in any format, or a name: imagenet, slim, torchvision.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 5,
    labels: Annotated[Path | None, typer.Option(help="For a network: class names, a line each, or JSON.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
    option: NetOptions = None,
    reject_below: Annotated[
        float, typer.Option(min=0, max=1, help="With a smaller probability, answer 'none of these'.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Name what pictures show. Ends with 1 when a picture could not be read, and with 2 when none could."""
    if as_json and as_csv:
        raise ValueError("--json and --csv exclude each other.")
    kind = kind_of_run(net)
    refuse_other_runs(Path(net), kind)
    if kind and (weights is not None or labels is not None or option):
        raise ValueError(f"{net} is a finished run: it has its own weights, labels and options.")
    if not kind and weights is None:
        raise ValueError(f"{net} needs --weights, as it is no folder of a finished run.")
    files, bad, others = find_pictures(images)
    for name, reason in others.items():
        _say(f"zoo: left {name} alone: {reason}")
    if not files and not bad:
        raise ValueError(f"No pictures in {', '.join(map(str, images))}.")
    from zoo.cli._quiet import import_tensorflow

    import_tensorflow()
    if kind:
        predictor = load_any_predictor(Path(net), kind)
    else:
        predictor = _network_predictor(net, str(weights), parse_options(option), labels, name=bool(files))
    form = "json" if as_json else "csv" if as_csv else "table"
    name_pictures(predictor, files, bad, top=top, reject_below=reject_below, batch_size=batch_size, form=form)


def load_any_predictor(run: Path, kind: str) -> "Predictor":
    """Loads the model of a finished run of ``zoo retrain`` or ``zoo train``."""
    from zoo.transfer.run import load_predictor

    return load_train_predictor(run) if kind == "train" else load_predictor(run)


def find_pictures(paths: Iterable[Path]) -> tuple[list[Path], dict[str, str], dict[str, str]]:
    """Returns the files to read, what is wrong with paths that cannot be, and why others in folders are left alone.

    Of a folder those are read that are called as pictures are, or begin as they do.
    """
    from zoo.data.folders import list_files, looks_like_image, what_it_is
    from zoo.data.images import sniff

    files: list[Path] = []
    bad: dict[str, str] = {}
    others: dict[str, str] = {}
    for path in paths:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            bad[str(path)] = "no such file or folder" if isinstance(error, FileNotFoundError) else str(error.strerror)
            continue
        if stat.S_ISREG(mode):
            files.append(path)
            continue
        if not stat.S_ISDIR(mode):
            bad[str(path)] = f"{what_it_is(mode)} is no picture file"
            continue
        listing = list_files(path)
        others |= {str(path): note for note in listing.notes}
        for found in listing.files:
            if found.problem:
                bad[str(found.path)] = found.problem[1]
            elif looks_like_image(found.path.name) or sniff(_head(found.path)):
                files.append(found.path)
            else:
                others[str(found.path)] = "it is no picture"
    return files, bad, others


def _head(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(32)
    return b""


def name_pictures(
    predictor: "Predictor",
    files: Sequence[Path],
    bad: dict[str, str],
    *,
    top: int,
    reject_below: float = 0.0,
    batch_size: int = 16,
    form: str = "table",
) -> None:
    """Predicts pictures and prints the result as a "table", "json" or "csv": the same, whatever the model is.

    Each batch is printed when it is known. `bad` are paths that cannot be read, with the reason; pictures that cannot
    be decoded are added, each with its own. The command ends with 1 when there are any, and with 2 when nothing else is
    there.
    """
    for name, reason in bad.items():
        _say(f"zoo: skipped {name}: {reason}")

    def batches() -> Iterator[list[Row]]:
        for start in range(0, len(files), batch_size):
            named = _classify(predictor, files[start : start + batch_size], bad)
            yield [_row(predictor.classes, file, probabilities, top, reject_below) for file, probabilities in named]

    if form == "json":
        found = _print_json(batches(), bad)
    elif form == "csv":
        found = _print_csv(batches())
    else:
        found = _print_table(batches(), files, predictor.classes)
    if bad:
        raise typer.Exit(FAILED if found else BAD)


def _row(classes: Sequence[str], file: Path, probabilities: "np.ndarray", top: int, reject_below: float) -> Row:
    best = [
        Guess({"class": classes[i], "index": int(i), "probability": round(float(probabilities[i]), 6)})
        for i in probabilities.argsort()[::-1][:top]
    ]
    sure = probabilities.max() >= reject_below
    return {"file": str(file), "label": best[0]["class"] if sure else None, "predictions": best}


def _classify(predictor: "Predictor", files: Sequence[Path], bad: dict[str, str]) -> list[tuple[Path, "np.ndarray"]]:
    """Returns the files that can be read, with their probabilities; the reason of the others goes to `bad`."""
    from zoo.data.images import ImageError, remark

    read = []
    for file in files:
        try:
            data = file.read_bytes()
            read.append((file, predictor.reader.read(data)))
            if words := remark(data):
                _say(f"zoo: {file}: {words}")
        except (ImageError, OSError, MemoryError) as error:
            bad[str(file)] = str(error) or "there is not enough memory for it"
            _say(f"zoo: skipped {file}: {bad[str(file)]}")
    table = predictor.classify([picture for _, picture in read])
    return [(file, row) for (file, _), row in zip(read, table, strict=True)]


def _print_json(batches: Iterable[Sequence[Row]], bad: Mapping[str, str]) -> int:
    """Prints a JSON list, a row or an error at a time; returns the number of rows."""
    count, before = 0, "["

    def entry(value: Row | Unread) -> None:
        nonlocal before
        typer.echo(before + "\n" + textwrap.indent(json.dumps(value, indent=2, ensure_ascii=False), "  "), nl=False)
        sys.stdout.flush()
        before = ","

    for rows in batches:
        for row in rows:
            entry(row)
        count += len(rows)
    for name, reason in bad.items():
        entry({"file": name, "error": reason})
    typer.echo("\n]")
    return count


def _print_csv(batches: Iterable[Sequence[Row]]) -> int:
    writer = csv.writer(sys.stdout)
    writer.writerow(["file", "label", "class", "probability"])
    count = 0
    for rows in batches:
        for row in rows:
            label = NONE if row["label"] is None else row["label"]
            guesses = row["predictions"]
            writer.writerows([row["file"], label, one["class"], f"{one['probability']:.6f}"] for one in guesses)
        sys.stdout.flush()
        count += len(rows)
    return count


def _print_table(batches: Iterable[Sequence[Row]], files: Sequence[Path], classes: Sequence[str]) -> int:
    from zoo.cli._print import print_table

    common = os.path.commonpath([file.parent for file in files]) if len(files) > 1 else ""
    names = {str(file): os.path.relpath(file, common) if common else str(file) for file in files}
    most = shutil.get_terminal_size((120, 0)).columns // 3
    widths = [min(most, max(map(len, column), default=0)) for column in (names.values(), classes, ["probability"])]
    count = 0
    for rows in batches:
        cells = []
        for row in rows:
            first = names[row["file"]] if row["label"] is not None else f"{names[row['file']]} ({NONE})"
            for one in row["predictions"]:
                cells.append([first, one["class"], f"{one['probability']:.1%}"])
                first = ""
        if cells:
            print_table(["picture", "class", "probability >"], cells, widths=widths, titles=not count)
        count += len(rows)
    return count


def _network_predictor(
    net: str, weights: str, options: dict[str, Any], labels: Path | None, *, name: bool
) -> "Predictor":
    """Builds a network with trained weights; its classes are named where that is asked for."""
    from zoo.data.preprocessing import Preprocessing
    from zoo.registry import get_net
    from zoo.transfer.reader import Reader
    from zoo.transfer.run import Predictor

    network = get_net(net)
    model = _build(network, weights, options)
    count = int(model.options.get("num_classes", network.spec.num_classes))
    classes = _class_names(labels, count, model.card) if name else []
    _say(f"{net} with {model.card.get('source') or weights}")
    return Predictor(model, Reader(Preprocessing.from_dict(model.card["preprocessing"]), fit="stretch"), tuple(classes))


def _build(network: Any, weights: str, options: dict[str, Any]) -> Any:
    """Builds the network with as many classes as the weights have, and loads them."""
    from zoo.weights.loading import open_for

    network.check_options(options)
    given = options
    file, options = open_for(network.spec, weights, given, network.options())
    if file is not None and "num_classes" not in given:
        if not file.num_classes:
            raise ValueError(
                f"{weights} has no classifier of one layer: nothing to predict with. Train one: zoo retrain."
            )
        background = file.family == "slim" and file.num_classes == 1001
        options["num_classes"] = 1000 if background else file.num_classes
    model = network(weights=file if file is not None else weights, **options)
    if "preprocessing" not in model.card:
        raise ValueError(f"{network.spec.name} does not take pictures.")
    return model


def _class_names(labels: Path | None, count: int, card: dict[str, Any]) -> list[str]:
    """The classes' names: from the file, the weights' card, or ImageNet's own; numbers where there are none."""
    if labels is not None:
        names = _read_labels(labels)
    elif card.get("class_names"):
        names = [str(name) for name in card["class_names"]]
    elif count == 1000:
        from zoo.weights.published import IMAGENET_CLASSES, FetchError, fetch

        try:
            names = _read_labels(fetch(IMAGENET_CLASSES, progress=False, timeout=5.0))
        except FetchError as error:
            _say(f"zoo: classes go by number, as their names could not be fetched ({error}); --labels FILE gives them")
            names = []
    else:
        names = []
    if names and len(names) != count:
        raise ValueError(f"{labels or 'The card'} names {len(names)} classes, but the network has {count}.")
    return names or [f"class {i}" for i in range(count)]


def _read_labels(path: Path) -> list[str]:
    """Reads names: one a line, a JSON list, or a JSON object of number to name or to [id, name]."""
    with reading(path, "class names"):
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix != ".json":
            return [line.strip() for line in text.splitlines() if line.strip()]
        values = parse_json(text, path)
        if isinstance(values, dict):
            values = [values[str(i)] for i in range(len(values))]
        names = [value[-1] if isinstance(value, list) else value for value in values]
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path}: class names are a list of texts, or an object of number to text or [id, text]")
        return [name.replace("_", " ") for name in names]


def _say(text: str) -> None:
    typer.echo(text, err=True)
