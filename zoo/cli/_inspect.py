"""``zoo weights inspect``: what is in a checkpoint or weight file."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer


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
