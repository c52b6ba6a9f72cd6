"""``zoo predict``: what a network with trained weights sees in pictures."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from zoo.cli._app import App
from zoo.cli._options import NetOptions, parse_options
from zoo.cli._predict_run import find_pictures, is_run, predict_run
from zoo.files import parse_json, reading

app = App()


@app.example(
    "zoo predict RUN photo.jpg --reject-below 0.5",
    "zoo predict inception_v3 --weights imagenet PICTURES --top 3",
)
def predict(
    net: Annotated[
        str, typer.Argument(metavar="NET|RUN", help="A network from 'zoo list', or a folder of a retraining.")
    ],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Picture files, and folders of them.")],
    weights: Annotated[
        str | None, typer.Option(help="For a network: a path in any format, or a name: imagenet, slim, torchvision.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 5,
    labels: Annotated[Path | None, typer.Option(help="Class names: a line each, or JSON.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
    option: NetOptions = None,
    reject_below: Annotated[
        float, typer.Option(min=0, max=1, help="For a RUN: with a smaller probability, answer 'none of these'.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a RUN.")] = False,
) -> None:
    """Name what pictures show. Ends with 1 when a picture could not be read, and with 2 when none could."""
    if is_run(net):
        if weights is not None or labels is not None or option:
            raise ValueError(f"{net} is a finished retraining: it has its own weights, labels and options.")
        predict_run(
            Path(net),
            images,
            top=top,
            reject_below=reject_below,
            as_json=as_json,
            as_csv=as_csv,
            batch_size=batch_size,
        )
        return
    if weights is None:
        raise ValueError(f"{net} needs --weights, as it is no folder of a finished retraining.")
    files, bad = find_pictures(images)
    if not files and not bad:
        raise ValueError(f"No pictures in {', '.join(map(str, images))}.")
    from zoo.cli._quiet import import_tensorflow

    import_tensorflow()
    from zoo.data.preprocessing import Preprocessing
    from zoo.registry import get_net

    model = _build(get_net(net), weights, parse_options(option))
    prepare = Preprocessing.from_dict(model.card["preprocessing"])
    if not as_json:
        _say(f"{net} with {model.card.get('source') or weights}")
    rows, width = [], 0
    for names, batch in _batches(files, prepare, batch_size, bad):
        for name, probabilities in zip(names, _probabilities(model, batch), strict=True):
            width = len(probabilities)
            best = probabilities.argsort()[::-1][:top]
            rows.append((name, [(int(i), float(probabilities[i])) for i in best]))
    classes = _class_names(labels, width, model.card) if rows else []
    _print(rows, classes, bad, as_json)
    for name, reason in bad.items():
        _say(f"zoo: skipped {name}: {reason}")
    if bad:
        raise typer.Exit(1 if rows else 2)


def _build(network: Any, weights: str, options: dict[str, Any]) -> Any:
    """Builds the network with as many classes as the weights have, and loads them."""
    from zoo.weights.building import open_for

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


def _batches(files: Sequence[Path], prepare: Any, size: int, bad: dict[str, str]) -> Iterator[tuple[list[str], Any]]:
    """Decodes and prepares pictures, ``size`` at a time; those that cannot be read go to ``bad``."""
    import numpy as np

    from zoo.data.images import ImageError, decode

    names: list[str] = []
    batch: list[Any] = []
    for file in files:
        try:
            batch.append(prepare(decode(file.read_bytes())).numpy())
            names.append(str(file))
        except (ImageError, OSError) as error:
            bad[str(file)] = str(error)
        if len(batch) == size:
            yield names, np.stack(batch)
            names, batch = [], []
    if batch:
        yield names, np.stack(batch)


def _probabilities(model: Any, batch: Any) -> Any:
    import tensorflow as tf

    return tf.nn.softmax(model.predict_on_batch(batch)).numpy()


def _class_names(labels: Path | None, count: int, card: dict[str, Any]) -> list[str]:
    """The classes' names: from the file, the weights' card, or ImageNet's own; numbers where there are none."""
    if labels is not None:
        names = _read_labels(labels)
    elif card.get("class_names"):
        names = [str(name) for name in card["class_names"]]
    elif count == 1000:
        from zoo.weights.download import FetchError, fetch
        from zoo.weights.sources import IMAGENET_CLASSES

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


def _print(
    rows: Sequence[tuple[str, list[tuple[int, float]]]], classes: list[str], bad: dict[str, str], as_json: bool
) -> None:
    if as_json:
        found = [
            {
                "file": name,
                "predictions": [{"class": i, "name": classes[i], "probability": round(p, 6)} for i, p in best],
            }
            for name, best in rows
        ]
        typer.echo(json.dumps(found + [{"file": name, "error": reason} for name, reason in bad.items()], indent=2))
        return
    from zoo.cli._print import print_table

    shown = os.path.commonpath([Path(name).parent for name, _ in rows]) if len(rows) > 1 else ""
    cells = []
    for name, best in rows:
        first = os.path.relpath(name, shown) if shown else name
        for i, p in best:
            cells.append([first, classes[i], f"{p:.1%}"])
            first = ""
    print_table(["picture", "class", "probability >"], cells)


def _say(text: str) -> None:
    typer.echo(text, err=True)
