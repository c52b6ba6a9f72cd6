"""``zoo info``: what a network is made of and what it costs."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo.cli._app import App, choice, networks
from zoo.cli._options import OPTIMIZERS, NetOptions, parse_options
from zoo.cli._quiet import import_tensorflow

if TYPE_CHECKING:
    from zoo.scoping.cost import ScopeCost

app = App()


@app.example(
    "zoo info inception_v3",
    "zoo info lenet5 --option variant=original --batch 64 --json",
)
def info(
    net: Annotated[str, typer.Argument(help="A network from 'zoo list'.", autocompletion=networks)],
    option: NetOptions = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Estimate the memory that batches of this size take.")
    ] = None,
    optimizer: Annotated[str, choice(*OPTIMIZERS, help="With --batch: for which optimizer.")] = "momentum",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a network's scopes: parameters, MACs and output sizes.

    MACs are multiply-accumulates. With --batch, also the memory that training takes, as estimated.
    """
    import_tensorflow()
    from zoo.registry import get_net
    from zoo.scoping.cost import one_step, scope_costs

    network = get_net(net)
    options = parse_options(option)
    network.check_options(options)
    inputs = network.spec.input_shape(options)
    counted, per_step = one_step(inputs)
    rows = scope_costs(network.network, counted, **options)
    variables = [variable for row in rows for variable in row.variables]
    total = sum(variable.size for variable in variables)
    trainable = sum(variable.size for variable in variables if variable.trainable)
    macs = sum(row.macs for row in rows)
    if per_step and batch is not None:
        raise ValueError(f"--batch: {net} reads sequences of any length, on which the memory of a batch depends")
    memory = None if batch is None else memory_of(network, options, batch, optimizer)

    if as_json:
        about = {
            "name": net,
            "options": options,
            "trainable_params": trainable,
            "total_params": total,
            "gmacs": macs / 1e9,
            "per_step": per_step,
            "input_size": _input_sizes(inputs),
            "variables": [{"name": v.name, "shape": v.shape, "trainable": v.trainable} for v in variables],
            "scopes": [{"scope": r.scope, "params": r.params, "macs": r.macs, "output": r.output} for r in rows],
            "paper": network.spec.paper,
        }
        if memory is not None:
            about["memory"] = {"batch": batch, "optimizer": optimizer, **memory}
        typer.echo(json.dumps(about, indent=2))
        return
    typer.echo(f"{net}: {network.spec.paper}")
    typer.echo(f"input {json.dumps(_input_sizes(inputs))}, {trainable:,} trainable of {total:,} parameters")
    _print_scopes(rows, total, macs)
    if per_step:
        typer.echo("a sequence may have any length: MACs and outputs are those of one step")
    if memory is not None:
        typer.echo(f"memory at batch {batch} (estimate; TensorFlow itself takes some 400 MB more):")
        for what, size in memory.items():
            typer.echo(f"  {what.replace('_', ' '):<22} {size / 2**20:10,.1f} MiB")


def _print_scopes(rows: Sequence["ScopeCost"], total: int, macs: int) -> None:
    from zoo.cli._print import print_table

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


def memory_of(network: Any, options: dict[str, Any], batch: int, optimizer: str) -> dict[str, int]:
    """Estimates the bytes that training and inference take, from the traced step, by what takes them.

    Only inference for networks that are no classifiers of one input.
    """
    import tensorflow as tf

    from zoo.training import Trainer, estimate_inference, estimate_memory

    model = network(**options)
    specs = tf.nest.map_structure(lambda s: tf.TensorSpec((batch, *s.shape[1:]), s.dtype), model.input_specs)
    weights = sum(tf.as_dtype(v.dtype).size * v.numpy().size for v in model.variables)
    found = {"inference": weights + estimate_inference(model, specs)}
    if network.spec.num_classes is None or not isinstance(specs, tf.TensorSpec):
        return {"weights": weights, **found}
    labels = tf.TensorSpec((batch,), tf.int64)
    estimate = estimate_memory(Trainer(model, optimizer=optimizer).build((specs, labels)), (specs, labels))
    parts = {"weights": estimate.weights, "optimizer": estimate.optimizer, "activations_gradients": estimate.step}
    return {**parts, "training": estimate.total, **found}


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
