"""``zoo weights``: list, fetch, verify, convert and inspect weights."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from zoo.cli._app import FAILED, App, choice
from zoo.cli._options import NetOptions, Overwrite, parse_options
from zoo.files import refuse_existing

app = App(no_args_is_help=True, help="List, fetch, verify, convert and inspect weights.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.example("zoo weights inspect model.ckpt-1000 --pattern '*/weights'")
def inspect(
    file: Annotated[
        str, typer.Argument(help="Any weights: TF1 V1 or V2, Keras, PyTorch, safetensors, TF.js, zoo's own.")
    ],
    pattern: Annotated[str, typer.Option(help="Only names that match, such as '*/weights'.")] = "*",
    statistics: Annotated[bool, typer.Option(help="Read the values: mean, deviation, range, NaN.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what is in a checkpoint: names, shapes, types, statistics."""
    from zoo.cli._quiet import import_tensorflow

    import_tensorflow()
    kind, values, notes = open_any(file)
    chosen = [name for name in values if fnmatchcase(name, pattern)]
    if not chosen:
        raise ValueError(
            f"no name in {file} matches {pattern!r}; it has {len(values)}, such as {next(iter(values), 'none')}"
        )
    rows = [_row(name, values, statistics) for name in chosen]
    total = sum(row["size"] for row in rows)
    if as_json:
        typer.echo(json.dumps({"file": file, "format": kind, **notes, "values": total, "tensors": rows}, indent=2))
        return
    from zoo.cli._print import print_table

    typer.echo(f"{file}: {kind}, {len(rows)} tensors, {total:,} values")
    for name, note in notes.items():
        typer.echo(f"{name}: {note}")
    columns = ["mean", "std", "min", "max"] if statistics else []
    print_table(
        ["name", "shape >", "type", *(f"{column} >" for column in columns), "NaN, Inf >"][: None if statistics else 3],
        [
            [
                row["name"],
                " x ".join(map(str, row["shape"])) or "scalar",
                row["dtype"],
                *([_short(row[column]) for column in columns] + [str(row["not_finite"] or "")] if statistics else []),
            ]
            for row in rows
        ],
    )


def open_any(file: str) -> tuple[str, Mapping[str, Any], dict[str, Any]]:
    """Opens a checkpoint of any kind by its content.

    Args:
        file: a file, a prefix of a TF1 checkpoint, or a folder.

    Returns:
        The format, name to array (lazily where the format allows), and facts worth a line.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: not a format that zoo reads, or damaged.
    """
    from zoo.hdf5 import read_h5
    from zoo.training.checkpoints import DamagedCheckpointError, read_checkpoint, read_header
    from zoo.weights.formats import sniff
    from zoo.weights.safetensors_files import read_safetensors
    from zoo.weights.tf1 import read_tf1
    from zoo.weights.tfjs import read_tfjs
    from zoo.weights.torch_files import read_pth

    kind = sniff(file)
    if kind == "tf1":
        checkpoint = read_tf1(file)
        return f"TF1 checkpoint {checkpoint.format.upper()}", checkpoint, {}
    if kind == "safetensors":
        try:
            read_header(file)
        except DamagedCheckpointError:
            return "safetensors", read_safetensors(file)[0], {}
        whole = read_checkpoint(file)
        facts = ("step", "epoch", "batch", "metric", "run")
        notes: dict[str, Any] = {name: whole.state[name] for name in facts if name in whole.state}
        return "zoo training checkpoint", whole.arrays, notes
    if kind == "keras":
        return "Keras", read_h5(file).arrays, {}
    if kind == "tfjs":
        return "TensorFlow.js", read_tfjs(file)[0], {}
    return "PyTorch", read_pth(file), {}


def _row(name: str, values: Mapping[str, Any], statistics: bool) -> dict[str, Any]:
    import numpy as np

    shapes, dtypes = getattr(values, "shapes", None), getattr(values, "dtypes", None)
    if not statistics and shapes is not None and dtypes is not None:
        shape, dtype = shapes[name], dtypes[name]
        return {"name": name, "shape": list(shape), "dtype": str(dtype), "size": int(np.prod(shape, dtype=int))}
    array = np.asarray(values[name])
    row: dict[str, Any] = {"name": name, "shape": list(array.shape), "dtype": str(array.dtype), "size": int(array.size)}
    if not statistics:
        return row
    numeric = array.size and (array.dtype.kind in "fiub" or array.dtype.name == "bfloat16")
    numbers = array.astype(np.float64).reshape(-1) if numeric else np.array([])
    finite = numbers[np.isfinite(numbers)]
    facts: dict[str, Any] = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
    row |= {fact: float(function(finite)) if finite.size else None for fact, function in facts.items()}
    return row | {"not_finite": int(numbers.size - finite.size)}


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


@app.example("zoo weights list 'inception*'", name="list")
def list_weights(
    pattern: Annotated[str, typer.Argument(help="A glob, such as 'inception*'.")] = "*", as_json: AsJson = False
) -> None:
    """List published weights: how large, how accurate, and if here."""
    from zoo.cli._print import print_table
    from zoo.weights.published import cache_folder, list_sources

    sources = list_sources(pattern)
    if not sources:
        raise ValueError(f"No published weights match {pattern!r}; 'zoo weights list' shows all.")
    here = {s.name: (cache_folder() / "weights" / s.name / s.file_name).is_file() for s in sources}
    if as_json:
        rows = [{**vars(source), "fetched": here[source.name]} for source in sources]
        typer.echo(json.dumps(rows, indent=2))
        return
    print_table(
        ["name", "classes >", "top-1 >", "top-5 >", "MB >", "checked by", "licence", "here"],
        [
            [
                source.name,
                str(source.num_classes or ""),
                f"{source.accuracy.get('top1', 0):.1f}",
                f"{source.accuracy.get('top5', 0):.1f}",
                f"{source.size / 1e6:.0f}" if source.size else "",
                source.digest.partition(":")[0] or "first download",
                source.licence,
                "yes" if here[source.name] else "",
            ]
            for source in sources
        ],
    )


@app.example("zoo weights fetch inception_v3.torchvision")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names from 'zoo weights list'.")],
) -> None:
    """Download published weights into the cache and check them.

    The cache is the folder that ZOO_HOME names. Their paths are printed.
    """
    from zoo.weights.published import fetch as fetch_weights
    from zoo.weights.published import get_source

    for source in [get_source(name) for name in names]:
        typer.echo(fetch_weights(source))


@app.example("zoo weights verify")
def verify() -> None:
    """Hash every file in the cache again.

    Ends with 1 when one is not what it was.
    """
    from zoo.weights.published import cache_folder
    from zoo.weights.published import verify as verify_weights

    results = verify_weights()
    for name, result in results.items():
        typer.echo(f"{name}: {result}")
    if not results:
        typer.echo(f"Nothing was fetched yet into {cache_folder()}.")
    if any(result != "ok" for result in results.values()):
        raise typer.Exit(FAILED)


@app.example(
    "zoo weights convert inception_v3.ckpt inception_v3.safetensors --net inception_v3",
    "zoo weights convert model.pth model.weights.h5 --net densenet121 --to keras",
)
def convert(
    source: Annotated[str, typer.Argument(help="Weights in any format, or a name from 'zoo weights list'.")],
    target: Annotated[Path, typer.Argument(help=".safetensors, .ckpt, .weights.h5, .h5 or .keras.")],
    net: Annotated[str | None, typer.Option(help="The network the weights are for; their card's by default.")] = None,
    to: Annotated[
        str | None, choice("zoo", "slim", "keras", "torchvision", help="Layout; by the ending if not given.")
    ] = None,
    option: NetOptions = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Convert weights from any format to another.

    It says what was loaded and what was left out.
    """
    from zoo.cli._quiet import import_tensorflow

    refuse_existing("target", _written(target), overwrite)
    import_tensorflow()
    from zoo.registry import get_net
    from zoo.weights import bundled
    from zoo.weights.loading import input_shape, load, open_for, open_source
    from zoo.weights.saving import save

    if net is not None and source in bundled.names(get_net(net).spec.name):
        raise ValueError(f"{source!r} comes with zoo as safetensors; give the path of another file.")
    opened = open_source(source, net or "")
    network = get_net(_network_of(opened, net))
    file, options = opened, open_for(network.spec, opened, parse_options(option), network.options())[1]
    options.setdefault("num_classes", file.num_classes or 0)
    options.setdefault("input_shape", input_shape(file))  # the auxiliary head's shape follows from it
    network.check_options(options)
    model: Any = network(**options)
    report = load(model, file)
    notes = save(model, target, format=to)
    if as_json:
        summary = {"target": str(target), "loaded": len(report.loaded), "notes": [*report.notes, *notes]}
        summary |= {key: getattr(report, key) for key in ("format", "missing", "unexpected")}
        typer.echo(json.dumps(summary, indent=2))
        return
    typer.echo(report)
    typer.echo("\n".join([f"written: {target}", *(f"  note: {note}" for note in notes)]))


def _network_of(file: Any, net: str | None) -> str:
    """The network that weights are for: what was given, or what their card names; both must agree."""
    named = file.own_card.net if file.own_card is not None else ""
    if net and named and net != named:
        raise ValueError(f"--net {net}: the card of {file.path} says that the weights are {named}'s; leave --net out")
    if not net and not named:
        raise ValueError(f"{file.path} has no card that names its network; say which it is: --net inception_v3")
    return net or named


def _written(target: Path) -> list[Path]:
    """The files that a target stands for: of a TF1 checkpoint's prefix, two."""
    if target.suffix in (".safetensors", ".h5", ".keras"):
        return [target]
    return [target.with_name(target.name + ending) for ending in (".index", ".data-00000-of-00001")]
