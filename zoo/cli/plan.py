"""``zoo plan``: what of a network's training fits into a memory, before anything runs."""

import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo.cli._app import FAILED, App, choice, networks
from zoo.cli._options import OPTIMIZERS, PRECISIONS, NetOptions, parse_options
from zoo.cli._quiet import import_tensorflow
from zoo.cli._records import Record, with_records
from zoo.devices import parse_size

if TYPE_CHECKING:
    from zoo.training.plan import StepPlan

app = App()

_LEVELS = ("store", "recompute", "minimal")  # from the fastest on, as a rule
_GIB, _MIB = 2**30, 2**20


@dataclass(frozen=True)
class _Step(Record):
    """How the step is made."""

    memory: Annotated[str, choice("all", *_LEVELS, several=True, help="Memory levels.")] = "all"
    precision: Annotated[
        str, choice(*PRECISIONS, several=True, metavar="POLICY,...", help=f"Of types: {', '.join(PRECISIONS)}.")
    ] = "float32"
    optimizer: Annotated[str, choice(*OPTIMIZERS, help="Its slots count.")] = "momentum"
    reserve: Annotated[
        str, typer.Option(metavar="SIZE", help="Of it for context, code and workspace: assumed, not measured.")
    ] = "1GiB"


@app.example(
    "zoo plan densenet121 --gpu 24GiB",
    "zoo plan densenet_cifar --gpu 2GiB --batch 256 --optimizer adam",
)
@with_records
def plan(
    net: Annotated[str, typer.Argument(help="A classifier from 'zoo list'.", autocompletion=networks)],
    gpu: Annotated[str, typer.Option(metavar="SIZE", help="Memory that there is: 24GiB, 24GB, 800MiB.")],
    batch: Annotated[int | None, typer.Option(min=1, help="Examples a step; default: the largest.")] = None,
    wanted: _Step = _Step(),
    option: NetOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan which batch, level and type fit into a memory.

    No GPU is needed.
    The step is traced, the lives of its tensors are counted, and an allocator as TensorFlow's gives out the chunks.
    "Fits" is with the stated error of 20 % on top of what is planned.
    """
    limit, kept_back = parse_size(gpu, "--gpu"), parse_size(wanted.reserve, "--reserve")
    if kept_back >= limit:
        raise ValueError(f"--gpu {gpu} is no more than --reserve {wanted.reserve}: nothing is left for the step")
    import_tensorflow()
    from zoo.registry import get_net
    from zoo.training.plan import STATED_ERROR

    network, options = get_net(net), parse_options(option)
    network.check_options(options)
    has_levels = "memory" in inspect.signature(network.network).parameters
    asked = [] if wanted.memory == "all" else list(dict.fromkeys(word.strip() for word in wanted.memory.split(",")))
    if asked and (not has_levels or "memory" in options):
        raise ValueError(
            f"--memory: {net} has no memory levels" if not has_levels else "--memory or -o memory=, not both"
        )
    levels = asked or ([*_LEVELS] if has_levels and "memory" not in options else [""])
    rows = []
    for policy in dict.fromkeys(word.strip() for word in wanted.precision.split(",")):
        for made in _plans(network, options, levels, policy, wanted.optimizer, asked=bool(asked)):
            largest = made.largest_batch(limit - kept_back)
            size = batch or max(1, largest)
            parts = {**made.parts(size), "reserve": kept_back}
            total = sum(parts.values())
            rows.append(
                {"memory": made.memory, "precision": policy, "batch": size, **parts, "total": total}
                | {"largest_batch": largest, "fits": size <= largest}
            )
    fitting = [row for row in rows if row["fits"]]
    if as_json:
        typer.echo(json.dumps({"net": net, "gpu": limit, "error": STATED_ERROR, "plans": rows}, indent=2))
    else:
        _print(rows, fitting, f"{net} with {wanted.optimizer} in {limit / _GIB:,.2f} GiB", batch)
    if not fitting:
        raise typer.Exit(FAILED)


def _plans(
    network: Any, options: dict[str, Any], levels: list[str], precision: str, optimizer: str, *, asked: bool
) -> list["StepPlan"]:
    """The plans of the levels that the network has."""
    from zoo.training.plan import plan_step

    found = []
    for level in levels:
        try:
            found.append(plan_step(network, options, level, precision, optimizer))
        except ValueError as error:
            if asked or not level or not str(error).startswith("memory "):
                raise  # else a level that this network has not
    return found


def _print(rows: list[dict[str, Any]], fitting: list[dict[str, Any]], title: str, batch: int | None) -> None:
    from zoo.cli._print import print_table

    parts = ("weights", "slots", "gradients", "kept", "moment", "allocator", "reserve", "total")
    typer.echo(f"{title}; MiB at the fullest moment of a step, planned:")
    print_table(
        ["memory", "precision", "batch >", *(f"{part} >" for part in parts), "largest batch >"],
        [
            [row["memory"] or "-", row["precision"], str(row["batch"])]
            + [f"{row[part] / _MIB:,.0f}" for part in parts]
            + [f"{row['largest_batch']:,}"]
            for row in rows
        ],
    )
    if not fitting:
        typer.echo("nothing fits" if batch is None else f"no level fits batch {batch}")
    elif batch is not None:
        first = fitting[0]
        typer.echo(f"the cheapest that fits batch {batch}: {first['memory'] or 'the network'} in {first['precision']}")
