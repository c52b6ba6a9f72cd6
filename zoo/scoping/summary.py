"""A model's summary: its variables by scope, indented as the scopes are nested."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from zoo.scoping.model import Model


def summary_text(model: Model, width: int | None = None) -> str:
    """Returns a table of the model's scopes: variables, parameters (those inside included), output, frozen or not.

    Args:
      model: A built model.
      width: Characters a line; default: the terminal's.
    """
    rows: dict[str, list[str]] = {}
    params: dict[str, int] = {}
    for name, weight in model.book.weights.items():
        scope, _, leaf = name.rpartition("/")
        size = math.prod(weight.shape)
        parts = scope.split("/") if scope else []
        for depth in range(len(parts) + 1):
            above = "/".join(parts[:depth])
            rows.setdefault(above, [])
            params[above] = params.get(above, 0) + size
        rows[scope].append(f"{leaf} {tuple(weight.shape)}")
    total = params.pop("", 0)
    own = rows.pop("", [])
    table = Table(title=f"{model.name}: {total:,} parameters", title_justify="left", title_style="bold")
    for column in ("Scope", "Output", "Variables"):
        table.add_column(column, overflow="fold")
    table.add_column("Parameters", justify="right")
    table.add_column("Trained")
    if own:
        table.add_row("(no scope)", "", ", ".join(own), "", "yes" if model.trainable else "no")
    outputs = _outputs(model)
    for scope, variables in rows.items():
        indent = "  " * scope.count("/")
        trained = "no" if model.is_frozen(scope) else "yes"
        leaf = scope.rpartition("/")[2]
        table.add_row(f"{indent}{leaf}", outputs.get(scope, ""), ", ".join(variables), f"{params[scope]:,}", trained)
    trainable = sum(math.prod(w.shape) for w in model.trainable_weights)
    table.caption = f"Trainable: {trainable:,}. Not trainable: {total - trainable:,}."
    console = Console(width=width or (None if Console().is_terminal else 110))
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def _outputs(model: Model) -> dict[str, str]:
    """End points' shapes by the scope they are named after."""
    shapes = {}
    for name, spec in model.book.end_point_specs.items():
        for scope in model.book.scopes:
            if (scope == name or scope.endswith(f"/{name}")) and hasattr(spec, "shape"):
                shapes[scope] = str(tuple(spec.shape))
    return shapes
