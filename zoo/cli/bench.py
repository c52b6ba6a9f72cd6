"""``zoo bench``: time and memory of a training step, beside other people's networks."""

import csv
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from zoo.cli._app import App, choice
from zoo.cli._bench_bound import kept_bytes
from zoo.cli._bench_run import (
    Cell,
    Result,
    allocator_settings,
    largest_batch,
    machine,
    measure_of,
    ratio,
    run_cells,
    slope,
)
from zoo.cli._bench_scaling import scaling
from zoo.cli._options import Overwrite
from zoo.cli._print import print_table
from zoo.files import refuse_existing, replacing

app = App()
MIB = 2**20
_CONFIGS = {
    "densenet121": ((6, 12, 24, 16), 32),
    "densenet161": ((6, 12, 36, 24), 48),
    "densenet169": ((6, 12, 32, 32), 32),
    "densenet201": ((6, 12, 48, 32), 32),
    "densenet264": ((6, 12, 64, 48), 32),
}
_KERAS_NETS = ("densenet121", "densenet169", "densenet201")
_PEERS = ("keras", "torchvision", "torchvision_memory_efficient", "none")
_TORCH_NETS = ("densenet121", "densenet161", "densenet169", "densenet201")
COLUMNS = (
    *("net", "depth", "growth_rate", "peer", "memory", "precision", "xla", "device", "batch", "size", "rounds"),
    *("median_s", "ratio", "ratio_low", "ratio_high", "beside"),
    *("allocator_peak_mib", "resident_peak_mib", "allocator_slope_mib", "resident_slope_mib", "bound_mib"),
    *("measure", "batch_in_limit", "limit_gib", "machine", "versions", "allocator", "date", "command"),
)


@app.callback()
def _bench() -> None:
    """Measure time and memory of training steps."""


app.example("zoo bench scaling --nets lenet5 --devices cpu:0,cpu:1")(scaling)


@app.example(
    "zoo bench densenet --nets 40x12 --batches 16,32 --size 32 --device cpu",
    "zoo bench densenet --peers keras,torchvision --peer-python PYTHON",
)
def densenet(
    nets: Annotated[str, typer.Option(help="Names, or LxK for a DenseNet-BC of depth L and growth K at 32 px.")] = (
        "densenet121"
    ),
    batches: Annotated[str, typer.Option(help="Batch sizes; two give the slope.")] = "8,24",
    memory: Annotated[
        str, choice("store", "recompute", "minimal", several=True, help="Memory levels.")
    ] = "store,recompute,minimal",
    precisions: Annotated[str, choice("float32", "bfloat16", several=True, help="Of the step.")] = "float32",
    xla: Annotated[str, choice("off", "on", "both", help="Whether XLA compiles the step.")] = "off",
    peers: Annotated[str, choice(*_PEERS, several=True, help="Whose networks to measure beside.")] = "none",
    peer_python: Annotated[str, typer.Option(help="Interpreter that has torch, if this one has not.")] = "",
    device: Annotated[str, choice("auto", "cpu", "gpu", help="auto: a GPU where there is one.")] = "auto",
    size: Annotated[int, typer.Option(min=32, help="Height and width of the images.")] = 224,
    rounds: Annotated[int, typer.Option(min=1, help="Measured steps of each cell.")] = 5,
    limit_gib: Annotated[float, typer.Option(min=0.001, help="Memory for which the largest batch is given.")] = 8.0,
    out: Annotated[Path, typer.Option(help="Folder for the CSV and the plots.")] = Path("bench"),
    name: Annotated[str, typer.Option(help="Stem of the files' names.")] = "densenet",
    overwrite: Overwrite = False,
) -> None:
    """Time and memory of training DenseNets by level, batch and type.

    The cells of one batch size take their steps in rounds, so that their ratios stand although the machine's speed does
    not. Memory is compared by one measure, which the table and the plots name: what the frameworks' allocators gave out
    since the warm-up where all of them count it, as on a GPU, and the largest resident size of the processes elsewhere.
    """
    outputs = [out / f"{name}{ending}" for ending in (".csv", "_batch.png", "_depth.png")]
    refuse_existing("--out", outputs, overwrite)
    sizes = _batches(batches)
    flags = {"off": [False], "on": [True], "both": [False, True]}
    cells = _cells(
        _words("--nets", nets, None),
        _words("--memory", memory, ("store", "recompute", "minimal")),
        _words("--precisions", precisions, ("float32", "bfloat16")),
        flags[xla],
        _words("--peers", peers, _PEERS),
        replace(Cell("zoo", ""), device=_device(device), size=size),
        _python_with_torch(peer_python, wanted="torchvision" in peers),
    )
    results: list[Result] = []
    for batch in sizes:
        typer.echo(f"batch {batch}: {len(cells)} cells", err=True)
        results += run_cells([replace(cell, batch=batch) for cell in cells], rounds)
    rows = _rows(results, len(cells), limit_gib)
    write_csv(outputs[0], rows)
    measure = rows[0]["measure"]
    print_table(
        [
            "net",
            "peer",
            "level",
            "precision",
            "XLA",
            "batch >",
            "s/step >",
            "ratio >",
            f"{measure} peak MiB >",
            f"{measure} MiB/image >",
            "least >",
        ],
        [
            [
                *(row["net"], row["peer"], row["memory"], row["precision"], row["xla"], str(row["batch"])),
                f"{row['median_s']:.2f}",
                f"{row['ratio']:.2f}",
                _number(row[f"{measure}_peak_mib"]),
                _number(row[f"{measure}_slope_mib"]),
                _number(row["bound_mib"]),
            ]
            for row in rows
        ],
    )
    from zoo.cli._bench_plot import plot_batches, plot_depths

    for path in [outputs[0], *filter(None, [plot_batches(rows, outputs[1]), plot_depths(rows, outputs[2])])]:
        typer.echo(str(path))


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
    """The device to measure on; looks for a GPU in a process of its own, so that none is held here."""
    if wanted == "cpu":
        return "cpu"
    look = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False).stdout.split()
    if found and found[-1] != "0":
        return "gpu"
    if wanted == "gpu":
        raise ValueError(
            "--device gpu: TensorFlow finds no GPU here; use --device cpu, or install tensorflow[and-cuda]."
        )
    return "cpu"


def _cells(
    nets: Sequence[str],
    levels: Sequence[str],
    precisions: Sequence[str],
    xla: Sequence[bool],
    peers: Sequence[str],
    base: Cell,
    peer_python: str,
) -> list[Cell]:
    cells = []
    for net in nets:
        cell = _cell_of(net, base)
        for peer, theirs in (("keras", _KERAS_NETS), ("torchvision", _TORCH_NETS)):
            if net not in theirs and any(name.startswith(peer) for name in peers):
                typer.echo(f"{peer} has no {net}: left out", err=True)
        for precision in precisions:
            for flag in xla:
                cells += [replace(cell, memory=level, precision=precision, xla=flag) for level in levels]
                if "keras" in peers and net in _KERAS_NETS:
                    cells.append(replace(cell, peer="keras", precision=precision, xla=flag))
            for peer in peers:
                if peer.startswith("torchvision") and net in _TORCH_NETS:
                    kept = "store" if peer == "torchvision" else "memory_efficient"
                    cells.append(
                        replace(cell, peer="torchvision", memory=kept, precision=precision, python=peer_python)
                    )
    return cells


def _cell_of(net: str, base: Cell) -> Cell:
    if net in _CONFIGS:
        return replace(base, net=net)
    depth, _, growth = net.partition("x")
    if not (depth.isdigit() and growth.isdigit()):
        raise ValueError(
            f"--nets takes {', '.join(_CONFIGS)}, or a depth and a growth rate such as 100x12; got {net!r}."
        )
    if int(depth) < 10 or int(depth) % 6 != 4 or not int(growth):
        raise ValueError(
            f"The depth of a DenseNet-BC is 6n + 4 (10, 16, ... 40, ... 100), its growth from 1; got {net!r}."
        )
    options = {"depth": int(depth), "growth_rate": int(growth)}
    return replace(base, net="densenet_cifar", size=32, classes=10, options=options)


def _bound(cell: Cell) -> float:
    width = 2 if cell.precision == "bfloat16" else 4
    level = "recompute" if cell.memory == "memory_efficient" else cell.memory
    if cell.net in _CONFIGS:
        blocks, growth = _CONFIGS[cell.net]
        return kept_bytes(blocks, growth, memory=level, size=cell.size, value_bytes=width) / MIB
    depth, growth = cell.options["depth"], cell.options["growth_rate"]
    return (
        kept_bytes([(depth - 4) // 6] * 3, growth, memory=level, size=cell.size, stem="cifar", value_bytes=width) / MIB
    )


def _rows(results: Sequence[Result], cells: int, limit_gib: float) -> list[dict[str, Any]]:
    """The table: one row a cell and batch; times are set beside the first cell of their batch."""
    rows = []
    measure = measure_of([result.allocator_peak for result in results])
    script = Path(sys.argv[0])
    called = ["python", f"{script.parent.name}/{script.name}"] if script.suffix == ".py" else [script.name]
    command = shlex.join([*called, *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])
    for number, result in enumerate(results):
        cell, beside = result.cell, results[number - number % cells]
        alike = results[number % cells :: cells]
        middle, low, high = ratio(result.seconds, beside.seconds)
        slopes = {which: slope(alike, which) for which in ("allocator_peak", "resident_peak")}
        rows.append(
            {
                "net": cell.net,
                "depth": cell.options.get("depth", cell.net.removeprefix("densenet")),
                "growth_rate": cell.options.get("growth_rate", _CONFIGS.get(cell.net, ((), ""))[1]),
                "peer": cell.peer,
                "memory": cell.memory,
                "precision": cell.precision,
                "xla": "on" if cell.xla else "off",
                "device": cell.device,
                "batch": cell.batch,
                "size": cell.size,
                "rounds": len(result.seconds),
                "median_s": round(median(result.seconds), 4),
                "ratio": round(middle, 4),
                "ratio_low": round(low, 4),
                "ratio_high": round(high, 4),
                "beside": f"{beside.cell.peer} {beside.cell.memory} {beside.cell.precision}",
                "allocator_peak_mib": _mib(result.allocator_peak),
                "resident_peak_mib": _mib(result.resident_peak),
                "allocator_slope_mib": _mib(slopes["allocator_peak"]),
                "resident_slope_mib": _mib(slopes["resident_peak"]),
                "bound_mib": round(_bound(cell), 2),
                "measure": measure,
                "batch_in_limit": largest_batch(alike, f"{measure}_peak", limit_gib * 2**30),
                "limit_gib": limit_gib,
                "machine": machine() if cell.device == "cpu" else "GPU",
                "versions": " ".join(f"{key} {value}" for key, value in result.versions.items()),
                "allocator": allocator_settings(),
                "date": date.today().isoformat(),
                "command": command,
            }
        )
    return rows


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the rows under ``COLUMNS``; the file appears whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def _mib(size: float | None) -> float | None:
    return None if size is None else round(size / MIB, 2)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
