"""Tables for people and for pipes."""

import os
import sys
from collections.abc import Sequence

import rich.box
import rich.console
import rich.table


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str] | None = None,
    *,
    widths: Sequence[int] = (),
    titles: bool = True,
) -> None:
    """Prints a table: as wide as the terminal, or as wide as it needs where there is none.

    Args:
        columns: Titles; one that ends in ``" >"`` is a column of numbers, set to the right.
        rows: The cells.
        total: A last row, set apart.
        widths: Of the columns, at least, for a table that is printed in parts.
        titles: Whether to print them: not for later parts.
    """
    table = rich.table.Table(
        box=rich.box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=not widths,
        show_header=titles,
        show_footer=total is not None,
    )
    for number, column in enumerate(columns):
        right = column.endswith(" >")
        table.add_column(
            column.removesuffix(" >"),
            justify="right" if right else "left",
            footer=total[number] if total else "",
            overflow="fold",
            no_wrap=right,
            min_width=widths[number] if widths else None,
        )
    for row in rows:
        table.add_row(*row)
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    rich.console.Console(width=wide, highlight=False, markup=False).print(table)
