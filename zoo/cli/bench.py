"""``zoo bench``: time and memory of a training step, beside other people's networks and shared by devices."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from zoo.bench import search
from zoo.bench.cells import Cell, Result, run_cell
from zoo.bench.densenet import LEVELS, PEERS, PRECISIONS, Grid
from zoo.bench.measures import command, machine, write_csv
from zoo.bench.table import Table
from zoo.cli._app import FAILED, App, choice
from zoo.cli._devices import device_options
from zoo.cli._options import NetOptions, Overwrite, check_numbers, parse_options
from zoo.cli._print import print_table
from zoo.files import refuse_existing

app = App()


@app.callback()
def _bench() -> None:
    """Measure time and memory of training steps."""


@app.example("zoo bench scaling --nets lenet5 --devices cpu:0,cpu:1")
@device_options
def scaling(
    nets: Annotated[str, typer.Option(help="Networks for pictures, from 'zoo list'.")] = "lenet5",
    batch: Annotated[int, typer.Option(min=1, help="Examples a step over all devices.")] = 512,
    weak: Annotated[bool, typer.Option("--weak", help="So many on each device instead.")] = False,
    strategies: Annotated[
        str, choice("towers", "mirrored", several=True, help="How devices share each batch.")
    ] = "towers,mirrored",
    batch_norm: Annotated[str, choice("mean", "sync", help="Batch norm over devices.")] = "mean",
    counts: Annotated[str, typer.Option(help="Numbers of devices; all there are by default.")] = "",
    rounds: Annotated[int, typer.Option(min=3, help="Measured steps of each.")] = 20,
    option: NetOptions = None,
    out: Annotated[Path, typer.Option(help="Folder for the CSV.")] = Path("bench"),
    name: Annotated[str, typer.Option(help="Stem of its name.")] = "scaling",
    overwrite: Overwrite = False,
) -> None:
    """Time of a training step by strategy and number of devices.

    The steps are taken in rounds, one of each after the other. Try it without GPUs: --devices cpu:0,cpu:1.
    """
    from zoo.bench.scaling import Sharing, measure
    from zoo.parallel import available_devices
    from zoo.registry import get_net

    refuse_existing("--out", [out / f"{name}.csv"], overwrite)
    there = available_devices()
    kinds = [word.strip() for word in strategies.split(",") if word.strip()]
    sharing = Sharing(kinds, _counts(counts, there), there, batch, weak, batch_norm)
    names = [word.strip() for word in nets.split(",")]
    for net in names:
        if get_net(net).spec.preprocessing is None:
            raise ValueError(f"--nets are networks for pictures; {net} takes other inputs")
    rows = [row for net in names for row in measure(net, sharing, rounds, parse_options(option))]
    write_csv(out / f"{name}.csv", [{**row, **_circumstances(rounds)} for row in rows])
    print_table(
        ["net", "strategy", "devices >", "batch >", "s/step >", "images/s >", "beside one device >"],
        [
            [
                *(row["net"], row["strategy"], str(row["devices"]), str(row["batch"]), f"{row['median_s']:.4f}"),
                f"{row['images_per_s']:,.0f}",
                f"{row['ratio']:.3f} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]",
            ]
            for row in rows
        ],
    )
    typer.echo(str(out / f"{name}.csv"))


def _counts(text: str, there: Sequence[str]) -> list[int]:
    """The numbers of devices to measure on."""
    numbers = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdecimal() for word in numbers):
        raise ValueError(f"--counts are numbers of devices, such as 2,4; got {text!r}")
    wanted = [int(word) for word in numbers] or sorted({2, len(there)} - {1})
    if not wanted or min(wanted) < 1 or max(wanted) > len(there):
        raise ValueError(
            f"there are {len(there)} devices ({', '.join(there)}) and {wanted or 'more than one'} are to be measured; "
            "--devices cpu:0,cpu:1 divides the CPU"
        )
    return wanted


def _circumstances(rounds: int) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    return {
        "rounds": rounds,
        "machine": machine(),
        "versions": f"tensorflow {tf.__version__} keras {keras.__version__}",
        "date": date.today().isoformat(),
        "command": command(),
    }


@app.example(
    "zoo bench densenet --nets 40x12 --batches 16,32 --size 32 --device cpu",
    "zoo bench densenet --peers keras,torchvision --peer-python PYTHON",
)
def densenet(
    nets: Annotated[str, typer.Option(help="Names, or LxK for a DenseNet-BC of depth L and growth K at 32 px.")] = (
        "densenet121"
    ),
    batches: Annotated[str, typer.Option(help="Batch sizes; two give the slope.")] = "8,24",
    memory: Annotated[str, choice(*LEVELS, several=True, help="Memory levels.")] = "store,recompute,minimal",
    precisions: Annotated[str, choice(*PRECISIONS, several=True, help="Of the step.")] = "float32",
    xla: Annotated[str, choice("off", "on", "both", help="Whether XLA compiles the step.")] = "off",
    peers: Annotated[str, choice(*PEERS, several=True, help="Whose networks to measure beside.")] = "none",
    peer_python: Annotated[str, typer.Option(help="Interpreter that has torch, if this one has not.")] = "",
    device: Annotated[str, typer.Option(help="cpu, gpu, gpu:1, or auto: a GPU where there is one.")] = "auto",
    size: Annotated[int, typer.Option(min=32, help="Height and width of the images.")] = 224,
    rounds: Annotated[int, typer.Option(min=1, help="Measured steps of a cell's process.")] = 5,
    passes: Annotated[int, typer.Option(min=1, help="Processes of each cell, in turn, for the ratios' sake.")] = 1,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a cell's start, or a step: it hangs.")] = 1800.0,
    limit_gib: Annotated[float, typer.Option(min=0.001, help="Memory for which the largest batch is given.")] = 8.0,
    find_batch: Annotated[
        bool,
        typer.Option("--find-batch", help="Instead find the largest batch that trains."),
    ] = False,
    margin: Annotated[float, typer.Option(min=0, max=1, help="Within which it is found, as a part of it.")] = 0.02,
    out: Annotated[Path, typer.Option(help="Folder for the CSV and the plots.")] = Path("bench"),
    name: Annotated[str, typer.Option(help="Stem of the files' names.")] = "densenet",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the CSV of a run that was stopped.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Time and memory of training DenseNets by level, batch and type.

    Each cell is measured alone in a fresh process, so that none has to share memory and caches; with --passes each is
    measured so often, forwards and backwards in turn, and the ratios' intervals tell how the machine's speed varied.
    The CSV grows cell by cell; one that runs out of memory, dies or hangs is a row that says so. Memory is compared by
    one measure, which the table and the plots name: what the frameworks' allocators gave out since the warm-up where
    all of them count it, as on a GPU, and the largest resident size of the processes elsewhere.
    """
    outputs = [out / f"{name}{ending}" for ending in (".csv", "_batch.png", "_depth.png")]
    refuse_existing("--out", outputs, overwrite or resume)
    check_numbers({"timeout": timeout, "limit_gib": limit_gib, "margin": margin})
    if resume and (overwrite or not outputs[0].exists()):
        raise ValueError(
            f"--resume goes on with {outputs[0]}: " + ("not with --overwrite" if overwrite else "none is there")
        )
    sizes = _batches(batches)
    grid = Grid(
        nets=_words("--nets", nets, None),
        levels=_words("--memory", memory, LEVELS),
        precisions=_words("--precisions", precisions, PRECISIONS),
        xla={"off": [False], "on": [True], "both": [False, True]}[xla],
        peers=_words("--peers", peers, PEERS),
        base=replace(Cell("zoo", ""), device=_device(device), size=size),
        peer_python=_python_with_torch(peer_python, wanted="torchvision" in peers),
    )
    cells = [replace(cell, batch=batch) for batch in sizes for cell in grid.cells()]
    for line in grid.left_out():
        typer.echo(line, err=True)
    if find_batch:
        if resume:
            raise ValueError("--find-batch starts anew: leave --resume out")
        _find_batches(grid.cells(), margin, timeout, limit_gib, outputs[0])
        return
    table = Table(outputs[0], cells, rounds, limit_gib)
    if resume:
        typer.echo(f"{table.take_up()} of {len(cells)} cells are in {outputs[0]}", err=True)
    _measure(table, passes, timeout)
    rows = table.rows
    _print_densenets(rows)
    from zoo.bench.plots import plot_batches, plot_depths

    done = [row for row in rows if row["outcome"] == "ok"]
    if not done:
        typer.echo(str(outputs[0]))
        raise typer.Exit(FAILED)
    for path in [outputs[0], *filter(None, [plot_batches(done, outputs[1]), plot_depths(done, outputs[2])])]:
        typer.echo(str(path))


def _measure(table: Table, passes: int, timeout: float) -> None:
    """Measures what is missing, cell by cell, and says how far it is."""
    try:
        for turn in range(passes):
            for number in table.missing(turn)[:: -1 if turn % 2 else 1]:
                cell = table.cells[number]
                words = f"{cell.peer} {cell.net} {cell.memory} {cell.precision} batch {cell.batch}"
                typer.echo(f"{number + 1} of {len(table.cells)}: {words}", err=True)
                result = run_cell(cell, table.rounds, timeout)
                table.add(number, result)
                if not result.ok:
                    typer.echo(f"  {result.outcome}: {result.said}", err=True)
    except KeyboardInterrupt:
        typer.echo(f"{len(table.results)} of {len(table.cells)} cells are in {table.path}; --resume goes on", err=True)
        raise


def _find_batches(cells: Sequence[Cell], margin: float, timeout: float, limit_gib: float, path: Path) -> None:
    """Finds the largest batch of each cell; the CSV grows cell by cell."""
    rows = []
    for cell in cells:
        typer.echo(f"{cell.peer} {cell.net} {cell.memory} {cell.precision}", err=True)
        limit = int(limit_gib * 2**30) if cell.device == "cpu" else None

        def run(tried: Cell) -> Result:
            result = run_cell(tried, 1, timeout)
            typer.echo(f"  batch {tried.batch}: {result.outcome} {result.said}".rstrip(), err=True)
            return result

        rows.append(search.search_row(cell, search.find_batch(cell, run, margin, limit), margin, limit))
        write_csv(path, rows)
    print_table(
        ["net", "peer", "level", "precision", "largest batch >", "planned >", "does not train >", "because"],
        [
            [row["net"], row["peer"], row["memory"], row["precision"], f"{row['largest_batch']:,}"]
            + ["" if row[name] is None else f"{row[name]:,}" for name in ("planned_batch", "smallest_failed")]
            + [row["said"]]
            for row in rows
        ],
    )
    typer.echo(str(path))


def _print_densenets(rows: Sequence[dict[str, Any]]) -> None:
    number = lambda value: "" if value is None else f"{value:,.1f}"  # noqa: E731
    measure = rows[0]["measure"]
    columns = ["net", "peer", "level", "precision", "XLA", "batch >", "s/step >", "ratio >"]
    columns += [f"{measure} peak MiB >", f"{measure} MiB/image >", "least >"]
    print_table(
        columns,
        [
            [
                *(row["net"], row["peer"], row["memory"], row["precision"], row["xla"], str(row["batch"])),
                "" if row["median_s"] is None else f"{row['median_s']:.2f}",
                "" if row["ratio"] is None else f"{row['ratio']:.2f}",
                number(row[f"{measure}_peak_mib"]) if row["outcome"] == "ok" else row["outcome"],
                number(row[f"{measure}_slope_mib"]),
                number(row["bound_mib"]),
            ]
            for row in rows
        ],
    )


def _words(option: str, text: str, known: Sequence[str] | None) -> list[str]:
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [word for word in words if known is not None and word not in known]
    if unknown or not words:
        allowed = f"names out of {', '.join(known)}" if known else "at least one value"
        raise ValueError(
            f"{option} takes {allowed}, separated by commas; got {', '.join(map(repr, unknown)) or repr(text)}."
        )
    return words


def _batches(text: str) -> list[int]:
    words = _words("--batches", text, None)
    if not all(word.isdecimal() and int(word) for word in words):
        raise ValueError(f"--batches takes whole numbers from 1, separated by commas; got {text!r}.")
    return sorted({int(word) for word in words})


def _python_with_torch(python: str, wanted: bool) -> str:
    """The interpreter for torchvision's cells; looked at before the first cell is measured."""
    python = python or sys.executable
    if wanted:
        try:
            found = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True, check=False)
            wrong = found.stderr.strip().splitlines()[-1:] if found.returncode else []
        except OSError as error:
            wrong = [str(error)]
        if wrong:
            raise ValueError(
                f"--peers torchvision needs torch, which {python} cannot import ({wrong[0]}). Give "
                "--peer-python an interpreter that can, or leave torchvision out of --peers."
            )
    return python


def _device(wanted: str) -> str:
    """The device to measure on."""
    kind, colon, number = wanted.partition(":")
    if kind not in ("auto", "cpu", "gpu") or (colon and not (kind == "gpu" and number.isdecimal())):
        raise ValueError(f"--device takes auto, cpu, gpu, or a GPU's number such as gpu:1; got {wanted!r}")
    if wanted == "cpu":
        return "cpu"
    there = _gpus()
    if int(number or 0) < there:
        return f"gpu:{int(number or 0)}"
    if kind == "gpu":
        raise ValueError(
            f"--device {wanted}: TensorFlow finds {f'{there} GPUs, from gpu:0 on' if there else 'no GPU'} here; use "
            "--device cpu, or install tensorflow[and-cuda]."
        )
    return "cpu"


def _gpus() -> int:
    """How many GPUs TensorFlow finds; it looks in a process of its own, so that none is held here."""
    look = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False).stdout.split()
    return int(found[-1]) if found and found[-1].isdecimal() else 0
