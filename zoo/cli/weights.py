"""``zoo weights``: list, fetch, verify, convert and inspect weights."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from zoo.cli._app import App, choice
from zoo.cli._inspect import inspect
from zoo.cli._options import NetOptions, Overwrite, parse_options
from zoo.files import refuse_existing

app = App(no_args_is_help=True, help="List, fetch, verify, convert and inspect weights.")
app.example("zoo weights inspect model.ckpt-1000 --pattern '*/weights'")(inspect)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
        raise typer.Exit(1)


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
