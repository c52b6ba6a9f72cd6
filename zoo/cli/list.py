"""``zoo list``: the networks there are."""

import json
from typing import Annotated

import typer

from zoo.cli._app import App
from zoo.cli._quiet import import_tensorflow

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
    import_tensorflow()
    from zoo.cli._print import print_table
    from zoo.registry import get_net, list_nets
    from zoo.weights import bundled

    names = list_nets(pattern)
    if not names:
        raise ValueError(f"no network matches {pattern!r}; there are {', '.join(list_nets())}")
    specs = [get_net(name).spec for name in names]
    if as_json:
        rows = [
            {
                "name": spec.name,
                "input_size": spec.input_size,
                "num_classes": spec.num_classes,
                "published_params": dict(spec.published_params),
                "gmacs": spec.gmacs,
                "weights": bundled.names(spec.name),
                "paper": spec.paper,
            }
            for spec in specs
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    print_table(
        ["name", "input", "all parameters >", "GMACs >", "weights"],
        [
            [
                spec.name,
                " x ".join(map(str, spec.input_size)),
                f"{spec.published_params['total']:,}",
                "" if spec.gmacs is None else f"{spec.gmacs:.4g}",
                ", ".join(bundled.names(spec.name)),
            ]
            for spec in specs
        ],
    )
