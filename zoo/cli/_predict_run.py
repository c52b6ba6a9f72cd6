"""``zoo predict RUN``: what a retrained model sees in pictures."""

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

NONE = "none of these"


def is_run(path: str | Path) -> bool:
    """Says whether a path is a folder that ``zoo retrain`` wrote."""
    return (Path(path) / "run.json").is_file()


def find_pictures(paths: Iterable[Path]) -> tuple[list[Path], dict[str, str]]:
    """Returns files as given and the pictures in folders, and what is wrong with paths that are neither."""
    from zoo.data.images import SUFFIXES

    files: list[Path] = []
    bad: dict[str, str] = {}
    for path in paths:
        if path.is_dir():
            found = [p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")]
            files += sorted(p for p in found if p.is_file())
        elif path.is_file():
            files.append(path)
        else:
            bad[str(path)] = "no such file or folder"
    return files, bad


def predict_run(
    run: Path,
    images: Sequence[Path],
    *,
    top: int,
    reject_below: float,
    as_json: bool,
    as_csv: bool,
    batch_size: int = 16,
) -> None:
    """Predicts pictures with a finished run and prints them.

    Args:
        run: The run folder.
        images: Files and folders.
        top: How many classes to name.
        reject_below: With a smaller probability the answer is "none of these".
        as_json: Print JSON.
        as_csv: Print CSV.
        batch_size: Pictures at a time.

    Raises:
        ValueError: There is no picture, or both formats were asked for.
        typer.Exit: With 1 when some pictures could not be read, with 2 when none could.
    """
    if as_json and as_csv:
        raise ValueError("--json and --csv exclude each other.")
    from zoo.cli._quiet import import_tensorflow

    import_tensorflow()
    from zoo.data.images import ImageError
    from zoo.transfer.run import load_predictor

    files, bad = find_pictures(images)
    if not files and not bad:
        raise ValueError(f"No pictures in {', '.join(map(str, images))}.")
    predictor = load_predictor(run)
    rows: list[dict[str, Any]] = []
    for start in range(0, len(files), batch_size):
        read = []
        for file in files[start : start + batch_size]:
            try:
                read.append((file, predictor.reader.read(file.read_bytes())))
            except (ImageError, OSError) as error:
                bad[str(file)] = str(error)
        table = predictor.classify([picture for _, picture in read])
        for (file, _), row in zip(read, table, strict=True):
            best = [(predictor.classes[i], float(row[i])) for i in row.argsort()[::-1][:top]]
            label = best[0][0] if best[0][1] >= reject_below else None
            rows.append({"file": str(file), "label": label, "best": best})
    _print(rows, bad, as_json, as_csv)
    for name, reason in bad.items():
        typer.echo(f"zoo: skipped {name}: {reason}", err=True)
    if bad:
        raise typer.Exit(1 if rows else 2)


def _print(rows: Sequence[dict[str, Any]], bad: dict[str, str], as_json: bool, as_csv: bool) -> None:
    if as_json:
        found = [
            {
                "file": row["file"],
                "label": row["label"],
                "predictions": [{"class": name, "probability": round(p, 6)} for name, p in row["best"]],
            }
            for row in rows
        ]
        errors = [{"file": name, "error": reason} for name, reason in bad.items()]
        typer.echo(json.dumps(found + errors, indent=2, ensure_ascii=False))
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(["file", "label", "class", "probability"])
        for row in rows:
            writer.writerows([row["file"], row["label"] or NONE, name, f"{p:.6f}"] for name, p in row["best"])
    elif rows:
        from zoo.cli._print import print_table

        cells = []
        for row in rows:
            first = row["file"] if row["label"] is not None else f"{row['file']} ({NONE})"
            for name, p in row["best"]:
                cells.append([first, name, f"{p:.1%}"])
                first = ""
        print_table(["picture", "class", "probability >"], cells)
