"""``zoo tfrecord``: packs pictures into TFRecord files, counts records, and finds the first damage."""

from pathlib import Path
from typing import Annotated

import typer

from zoo.cli._print import print_table
from zoo.cli._quiet import import_tensorflow

app = typer.Typer(no_args_is_help=True, help="Pack pictures into TFRecord files; count and verify records.")


@app.command()
def build(
    images: Annotated[Path, typer.Argument(help="A folder with a folder for each class, or a CSV of path,label.")],
    out: Annotated[Path, typer.Argument(help="Folder for the files and manifest.json.")],
    shards: Annotated[int | None, typer.Option(min=1, help="Number of files; one for each 128 MB by default.")] = None,
    layout: Annotated[str, typer.Option(help="Feature keys: slim, or inception (more keys, labels from 1).")] = "slim",
    label_offset: Annotated[int | None, typer.Option(help="Stored label of the first class.")] = None,
    validation: Annotated[float, typer.Option(min=0, max=1, help="Share of a validation set.")] = 0.0,
    test: Annotated[float, typer.Option(min=0, max=1, help="Share of a test set.")] = 0.0,
    max_bad: Annotated[str, typer.Option(help="How many bad files are acceptable: 1%, or a number.")] = "1%",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the order.")] = 0,
    background: Annotated[str, typer.Option(help="What shows through transparent pixels: white, #rrggbb.")] = "white",
    orient: Annotated[bool, typer.Option(help="Turn pictures as their camera noted.")] = True,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; one a CPU by default.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier build.")] = False,
) -> None:
    """Scan the pictures, shuffle them and write them, as they are, to TFRecord files."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    from zoo.cli.scan import parse_colour
    from zoo.data.scan import scan_images

    ground = parse_colour(background)
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("Scanning", total=None)
        scan = scan_images(
            images,
            background=ground,
            orient=orient,
            workers=workers,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        scan.check(max_bad)
        import_tensorflow()
        from zoo.data import tfrecord

        task = bar.add_task("Writing", total=len(scan.pictures))
        manifest = tfrecord.build(
            scan,
            out,
            shards=shards,
            layout=layout,
            label_offset=label_offset,
            validation=validation,
            test=test,
            seed=seed,
            workers=workers,
            overwrite=overwrite,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    for bad in scan.bad:
        typer.echo(f"skipped: {bad.name}: {bad.reason}: {bad.detail}")
    written = sum(shard.bytes for shards in manifest.sets.values() for shard in shards)
    for name, files in manifest.sets.items():
        low, high = manifest.labels[name]
        typer.echo(f"{name}: {manifest.count(name)} pictures in {len(files)} files, labels {low} to {high}")
    size = manifest.input_bytes
    typer.echo(f"{size} bytes of pictures, {written} bytes of records ({written / size:.4f} x) in {out}")
    if manifest.converted:
        typer.echo(f"{manifest.converted} pictures are stored as PNG: TensorFlow cannot decode their bytes exactly")


Source = Annotated[Path, typer.Argument(help="A folder with a manifest, or a record file, pattern or folder.")]


@app.command()
def count(records: Source) -> None:
    """Count records by their headers; nothing is decoded."""
    from zoo.data.tfrecord.framing import count_records, expand

    reports = [count_records(path) for path in expand(records)]
    total = sum(report.records for report in reports)
    print_table(["file", "records >"], [[r.file, str(r.records)] for r in reports], ["all", str(total)])
    _stop_on_damage([str(report.damage) for report in reports if report.damage])


@app.command()
def verify(records: Source) -> None:
    """Check every CRC, and number of records and SHA-256 where there is a manifest; ends with 1 on damage."""
    import_tensorflow()
    from zoo.data.tfrecord.framing import expand, verify_file
    from zoo.data.tfrecord.manifest import NAME, Manifest, listed, verify_shard

    if (records / NAME).is_file():
        manifest = Manifest.load(records)
        reports = [verify_shard(records, shard) for shards in manifest.sets.values() for shard in shards]
    else:
        found = [(path, listed(path)) for path in expand(records)]
        if None in (shard for _, shard in found):
            typer.echo("no manifest here: a file that was cut between two records cannot be noticed")
        reports = [verify_shard(path.parent, shard) if shard else verify_file(path) for path, shard in found]
    for report in reports:
        typer.echo(
            f"{report.file}: {report.records} whole records" + ("" if report.damage is None else ", then damage")
        )
    _stop_on_damage([str(report.damage) for report in reports if report.damage])
    typer.echo(f"{len(reports)} files, {sum(report.records for report in reports)} records, no damage")


def _stop_on_damage(places: list[str]) -> None:
    for place in places:
        typer.echo(place, err=True)
    if places:
        raise typer.Exit(1)
