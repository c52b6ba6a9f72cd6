"""``zoo info``: what a network is made of and what it costs."""

import json
from typing import Annotated, Any

import typer

from zoo.cli._options import NetOptions, parse_options
from zoo.cli._quiet import import_tensorflow

app = typer.Typer()


@app.command()
def info(
    net: Annotated[str, typer.Argument(help="A network from 'zoo list'.")],
    option: NetOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a network's scopes: variables, parameters, multiply-accumulates (MACs), output size."""
    import_tensorflow()
    from zoo.cli._print import print_table
    from zoo.registry import get_net
    from zoo.scoping.cost import scope_costs

    network = get_net(net)
    options = parse_options(option)
    network.check_options(options)
    inputs = network.spec.input_shape(options)
    rows = scope_costs(network.network, inputs, **options)
    variables = [variable for row in rows for variable in row.variables]
    total = sum(variable.size for variable in variables)
    trainable = sum(variable.size for variable in variables if variable.trainable)
    macs = sum(row.macs for row in rows)

    if as_json:
        about = {
            "name": net,
            "options": options,
            "trainable_params": trainable,
            "total_params": total,
            "gmacs": macs / 1e9,
            "input_size": _input_sizes(inputs),
            "variables": [{"name": v.name, "shape": v.shape, "trainable": v.trainable} for v in variables],
            "scopes": [{"scope": r.scope, "params": r.params, "macs": r.macs, "output": r.output} for r in rows],
            "paper": network.spec.paper,
        }
        typer.echo(json.dumps(about, indent=2))
        return
    typer.echo(f"{net}: {network.spec.paper}")
    typer.echo(f"input {json.dumps(_input_sizes(inputs))}, {trainable:,} trainable of {total:,} parameters")
    print_table(
        ["scope", "variables", "parameters >", "MACs >", "output >"],
        [
            [
                row.scope,
                ", ".join(f"{v.name.rpartition('/')[2]} {_times(v.shape)}" for v in row.variables),
                f"{row.params:,}" if row.variables else "",
                f"{row.macs:,}" if row.macs else "",
                _times(row.output),
            ]
            for row in rows
        ],
        ["total", "", f"{total:,}", f"{macs:,}", ""],
    )


def _times(shape: tuple[int | None, ...] | None) -> str:
    if shape is None:
        return ""
    return " x ".join("?" if size is None else str(size) for size in shape) if shape else "scalar"


def _input_sizes(inputs: Any) -> Any:
    """The input's shape without batch as JSON: a list, or a structure of lists."""
    if isinstance(inputs, dict):
        return {name: _input_sizes(value) for name, value in inputs.items()}
    if hasattr(inputs, "shape"):
        return inputs.shape.as_list()[1:]
    if all(size is None or isinstance(size, int) for size in inputs):
        return list(inputs)
    return [_input_sizes(value) for value in inputs]
