"""The table of a benchmark: rows of results, in a CSV that grows with each cell and from which a benchmark goes on."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from zoo.bench.cells import Cell, Result
from zoo.bench.densenet import CONFIGS, bound_mib
from zoo.bench.measures import (
    MIB,
    allocator_settings,
    command,
    largest_batch,
    machine,
    measure_of,
    ratio,
    slope,
    write_csv,
)  # fmt: skip
from zoo.files import reading

_SIZES = ("allocator_peak", "resident_peak", "start_peak", "in_use", "reserved", "driver")


class Table:
    """The results so far, in the order of the cells; the CSV is written again, whole, after each.

    Args:
        path: Of the CSV.
        cells: All that are to be measured.
        rounds: Steps of each process.
        limit_gib: Memory for which the largest batch is given.
    """

    def __init__(self, path: Path, cells: Sequence[Cell], rounds: int, limit_gib: float) -> None:
        self.path, self.cells, self.rounds, self.limit_gib = path, list(cells), rounds, limit_gib
        self.results: dict[int, Result] = {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows so far."""
        return rows_of([self.results[number] for number in sorted(self.results)], self.rounds, self.limit_gib)

    def missing(self, turn: int) -> list[int]:
        """Returns which cells have not been measured in the turn of that number; a cell that failed is done."""
        return [
            number
            for number in range(len(self.cells))
            if number not in self.results
            or (self.results[number].ok and len(self.results[number].seconds) <= turn * self.rounds)
        ]

    def add(self, number: int, result: Result) -> None:
        """Joins a result to what the cell's earlier processes gave, and writes the CSV."""
        before = self.results.get(number)
        if before is not None and result.ok:
            sizes: dict[str, Any] = {size: _most(getattr(before, size), getattr(result, size)) for size in _SIZES}
            result = replace(result, seconds=before.seconds + result.seconds, **sizes)
        self.results[number] = result
        write_csv(self.path, self.rows)

    def take_up(self) -> int:
        """Reads the CSV of a benchmark that was interrupted.

        Returns:
            How many of its cells are there.

        Raises:
            ValueError: It is damaged, or has cells or settings that are not this benchmark's.
        """
        with reading(self.path, "the table of a benchmark"), self.path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        known = {_key(described(cell)): number for number, cell in enumerate(self.cells)}
        here = machine() if self.cells[0].device == "cpu" else None
        for row in rows:
            number = known.get(_key(row))
            if number is None:
                what = " ".join(str(row.get(name, "?")) for name in ("peer", "net", "memory", "precision", "batch"))
                raise ValueError(f"{self.path} has a cell of another benchmark ({what}); give its words, or --name")
            for name, now in (("rounds_each", str(self.rounds)), ("machine", here)):
                if now is not None and row.get(name) != now:
                    raise ValueError(
                        f"{self.path} was measured with {name} {row.get(name)}, and now it is {now}; rows of the two "
                        "cannot be compared: give another --name"
                    )
            with reading(self.path, "the table of a benchmark"):
                self.results[number] = _result_of(row, self.cells[number])
        return len(self.results)


def rows_of(results: Sequence[Result], rounds: int, limit_gib: float) -> list[dict[str, Any]]:
    """The table: one row a cell and batch; times are set beside the first cell of their batch."""
    rows = []
    measure = measure_of([result.allocator_peak for result in results if result.ok])
    for result in results:
        cell = result.cell
        beside = next(other for other in results if other.cell.batch == cell.batch)
        alike = [other for other in results if other.ok and replace(other.cell, batch=cell.batch) == cell]
        slopes = {which: slope(alike, which) for which in ("allocator_peak", "resident_peak")}
        rows.append(
            described(cell)
            | {"outcome": result.outcome, "said": result.said, "rounds_each": rounds, "rounds": len(result.seconds)}
            | {"median_s": round(median(result.seconds), 4) if result.seconds else None, **_ratios(result, beside)}
            | {f"{which}_mib": _mib(getattr(result, which)) for which in _SIZES}
            | {f"{which.partition('_')[0]}_slope_mib": _mib(value) for which, value in slopes.items()}
            | {
                "bound_mib": round(bound_mib(cell), 2),
                "measure": measure,
                "batch_in_limit": largest_batch(alike, f"{measure}_peak", limit_gib * 2**30),
                "limit_gib": limit_gib,
                "machine": machine() if cell.device == "cpu" else result.device or "GPU",
                "versions": " ".join(f"{key} {value}" for key, value in result.versions.items()),
                "allocator": allocator_settings(),
                "date": date.today().isoformat(),
                "command": command(),
                "steps_s": " ".join(f"{seconds:.6g}" for seconds in result.seconds),
            }
        )
    return rows


def described(cell: Cell) -> dict[str, Any]:
    """The columns that say which cell it is."""
    return {
        "net": cell.net,
        "depth": cell.options.get("depth", cell.net.removeprefix("densenet")),
        "growth_rate": cell.options.get("growth_rate", CONFIGS.get(cell.net, ((), ""))[1]),
        "peer": cell.peer,
        "memory": cell.memory,
        "precision": cell.precision,
        "xla": "on" if cell.xla else "off",
        "device": cell.device,
        "batch": cell.batch,
        "size": cell.size,
    }


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(name, "")) for name in described(Cell("", "")))


def _result_of(row: dict[str, str], cell: Cell) -> Result:
    """The result that a row tells of."""
    words = row["versions"].split()
    sizes = {size: round(float(row[f"{size}_mib"]) * MIB) if row[f"{size}_mib"] else None for size in _SIZES}
    return Result(
        cell,
        tuple(float(word) for word in row["steps_s"].split()),
        versions=dict(zip(words[::2], words[1::2], strict=True)),
        device="" if cell.device == "cpu" or row["machine"] == "GPU" else row["machine"],
        outcome=row["outcome"],
        said=row["said"],
        **sizes,
    )


def _ratios(result: Result, beside: Result) -> dict[str, Any]:
    """The columns that set a result's steps beside another's, as far as both have gone."""
    count = min(len(result.seconds), len(beside.seconds))
    columns: dict[str, Any] = dict.fromkeys(("ratio", "ratio_low", "ratio_high"))
    if count and result.ok and beside.ok:
        values = ratio(result.seconds[:count], beside.seconds[:count])
        columns = {name: round(value, 4) for name, value in zip(columns, values, strict=True)}
    return {**columns, "beside": f"{beside.cell.peer} {beside.cell.memory} {beside.cell.precision}"}


def _most(one: int | None, other: int | None) -> int | None:
    return max(one, other) if one is not None and other is not None else other


def _mib(size: float | None) -> float | None:
    return None if size is None else round(size / MIB, 2)
