"""``zoo list``: the networks there are."""

import json
from typing import Annotated

import typer

from zoo.cli._app import App

app = App()


@app.example(
    "zoo list 'dense*'",
    "zoo list --json",
)
def list_networks(
    pattern: Annotated[str, typer.Argument(help="A glob such as 'dense*'.")] = "*",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the networks whose name matches a pattern."""
    from zoo.cli._print import print_table
    from zoo.registry import index, list_nets
    from zoo.weights import bundled

    names = list_nets(pattern)
    if not names:
        raise ValueError(f"no network matches {pattern!r}; there are {', '.join(list_nets())}")
    about = {name: index()[name] for name in names}
    if as_json:
        kept = ("input_size", "num_classes", "published_params", "gmacs")
        rows = [
            {"name": name, **{key: net[key] for key in kept}, "weights": bundled.names(name), "paper": net["paper"]}
            for name, net in about.items()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    print_table(
        ["name", "input", "all parameters >", "GMACs >", "weights"],
        [
            [
                name,
                " x ".join(map(str, net["input_size"])),
                f"{net['published_params']['total']:,}",
                "" if net["gmacs"] is None else f"{net['gmacs']:.4g}",
                ", ".join(bundled.names(name)),
            ]
            for name, net in about.items()
        ],
    )
