"""``zoo scan``: looks at every picture of a folder or CSV, and says what can be trained on and what cannot."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoo.cli._app import App, choice
from zoo.cli._options import LAYOUTS, Overwrite
from zoo.cli._print import print_table
from zoo.files import refuse_existing

if TYPE_CHECKING:
    from zoo.data.scan import Scan

app = App()

COLOURS = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (128, 128, 128), "gray": (128, 128, 128)}


def parse_colour(text: str) -> tuple[int, int, int]:
    """Reads "white", "#ffcc00" or "255,204,0".

    Raises:
        ValueError: it is none of these.
    """
    word = text.strip().lower()
    if word in COLOURS:
        return COLOURS[word]
    try:
        levels = bytes.fromhex(word[1:]) if word.startswith("#") else bytes(int(part) for part in word.split(","))
    except ValueError:
        levels = b""
    if len(levels) != 3:
        raise ValueError(
            f"a colour is a name ({', '.join(COLOURS)}), #rrggbb or red,green,blue in 0..255; got {text!r}"
        )
    return levels[0], levels[1], levels[2]


@app.example(
    "zoo scan PICTURES --bad bad.csv",
)
def scan(
    images: Annotated[Path, typer.Argument(help="A folder with a folder for each class, or a CSV of path,label.")],
    max_bad: Annotated[str, typer.Option(help="How many bad files are acceptable: 1%, or a number of files.")] = "1%",
    background: Annotated[str, typer.Option(help="What shows through transparent pixels: white, #rrggbb.")] = "white",
    orient: Annotated[bool, typer.Option(help="Turn pictures as their camera noted.")] = True,
    layout: Annotated[str, choice(*LAYOUTS, help="subsets: folders called train, val, test.")] = "auto",
    max_pixels: Annotated[int, typer.Option(min=1, help="Larger pictures are bad.")] = 64_000_000,
    out: Annotated[Path | None, typer.Option(help="Write the whole scan to this JSON file.")] = None,
    bad: Annotated[Path | None, typer.Option(help="Write the bad files to this CSV.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Decode every picture once and say what was found.

    Ends with 2 when it cannot be trained on.
    """
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    from zoo.data.scan import scan_images

    refuse_existing("--out and --bad:", [path for path in (out, bad) if path], overwrite)
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("Scanning", total=None)
        result = scan_images(
            images,
            layout=layout,
            background=parse_colour(background),
            orient=orient,
            max_pixels=max_pixels,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if out:
        result.save(out)
    if bad:
        result.write_bad(bad)
    print_scan(result)
    result.check(max_bad)


def print_scan(scan: "Scan") -> None:
    """Prints counts, bad files, duplicates, conflicts, label order and fingerprint.

    Args:
        scan: From ``zoo.data.scan.scan_images``.
    """
    index = {label: str(number) for number, label in enumerate(scan.labels)}
    rows = [
        [index.get(label, "-"), label, *map(str, (count["found"], count["used"], count["skipped"]))]
        for label, count in scan.counts.items()
    ]
    used, skipped = len(scan.pictures), len(scan.bad)
    total = ["", "all", str(used + skipped), str(used), str(skipped)]
    print_table(["index >", "class", "found >", "used >", "skipped >"], rows, total)
    if scan.bad:
        typer.echo(f"\nBad files ({skipped}):")
        print_table(
            ["path", "class", "reason", "detail"], [[b.name, b.label, b.reason, b.detail] for b in scan.bad[:20]]
        )
        if skipped > 20:
            typer.echo(f"and {skipped - 20} more: --bad FILE.csv writes them all")
    if scan.ignored:
        typer.echo("Ignored: " + ", ".join(f"{count} {reason}" for reason, count in scan.ignored.items()))
    for title, groups in (("Duplicates", scan.duplicates), ("Conflicts: one picture in two classes", scan.conflicts)):
        typer.echo(f"{title}: {len(groups) or 'none'}")
        for group in groups[:10]:
            typer.echo("  " + " = ".join(picture.name for picture in group[:5]))
    if any(picture.subset for picture in scan.pictures):
        typer.echo(f"Pictures in two of train, validation and test: {len(scan.leaks) or 'none'}")
    for note in scan.notes:
        typer.echo(f"Note: {note}")
    typer.echo(f"Fingerprint: {scan.fingerprint}")
