"""``zoo tfrecord``: packs pictures into TFRecord files, counts records, and finds the first damage."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoo.cli._app import FAILED, RARE, App, choice
from zoo.cli._print import print_table
from zoo.cli._quiet import import_tensorflow
from zoo.data import pluralize

if TYPE_CHECKING:
    from zoo.data.scan import Scan
    from zoo.data.tfrecord.manifest import Manifest, Shard

app = App(no_args_is_help=True, help="Pack pictures into TFRecord files; count and verify records.")


@app.example("zoo tfrecord build PICTURES RECORDS --validation 0.1 --test 0.1")
def build(
    images: Annotated[Path, typer.Argument(help="A folder with a folder for each class, or a CSV of path,label.")],
    out: Annotated[Path, typer.Argument(help="Folder for the files and manifest.json.")],
    shards: Annotated[int | None, typer.Option(min=1, help="Number of files; one for each 128 MB by default.")] = None,
    layout: Annotated[
        str, choice("slim", "inception", help="Feature keys; inception has more, and labels from 1.")
    ] = "slim",
    label_offset: Annotated[
        int | None, typer.Option(help="Stored label of the first class.", rich_help_panel=RARE)
    ] = None,
    validation: Annotated[float, typer.Option(min=0, max=1, help="Share of a validation set.")] = 0.0,
    test: Annotated[float, typer.Option(min=0, max=1, help="Share of a test set.")] = 0.0,
    max_bad: Annotated[str, typer.Option(help="How many bad files are acceptable: 1%, or a number.")] = "1%",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the order.")] = 0,
    background: Annotated[
        str, typer.Option(help="What shows through transparent pixels: white, #rrggbb.", rich_help_panel=RARE)
    ] = "white",
    orient: Annotated[bool, typer.Option(help="Turn pictures as their camera noted.", rich_help_panel=RARE)] = True,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads; one a CPU by default.", rich_help_panel=RARE)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier build.")] = False,
) -> None:
    """Scan pictures, shuffle them and write them to TFRecord files."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    from zoo.cli.scan import parse_colour
    from zoo.data.scan import scan_images

    ground = parse_colour(background)
    import_tensorflow()
    from zoo.data import tfrecord
    from zoo.data.tfrecord.builder import check_folder

    check_folder(out, images, overwrite)
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
    _tell(scan, manifest, out)


def _tell(scan: "Scan", manifest: "Manifest", out: Path) -> None:
    """Says what was skipped and what was written."""
    for bad in scan.bad:
        typer.echo(f"skipped: {bad.name}: {bad.reason}: {bad.detail}")
    for note in scan.notes:
        typer.echo(f"Note: {note}")
    written = sum(shard.bytes for shards in manifest.sets.values() for shard in shards)
    for name, files in manifest.sets.items():
        low, high = manifest.labels[name]
        typer.echo(
            f"{name}: {pluralize(manifest.count(name), 'picture')} in {pluralize(len(files), 'file')}, "
            f"labels {low} to {high}"
        )
    size = manifest.input_bytes
    typer.echo(f"{size} bytes of pictures, {written} bytes of records ({written / size:.4f} x) in {out}")
    if manifest.converted:
        typer.echo(
            f"stored as PNG: {pluralize(manifest.converted, 'picture')}; TensorFlow cannot decode such files exactly"
        )


Source = Annotated[Path, typer.Argument(help="A folder with a manifest, or a record file, pattern or folder.")]


@app.example("zoo tfrecord count RECORDS")
def count(records: Source) -> None:
    """Count records by their headers, against the manifest.

    Nothing is decoded. Ends with 1 when any are missing.
    """
    from zoo.data.tfrecord.framing import count_records, expand
    from zoo.data.tfrecord.manifest import listed, missing

    reports = {path: count_records(path) for path in expand(records)}
    total = sum(report.records for report in reports.values())
    print_table(["file", "records >"], [[r.file, str(r.records)] for r in reports.values()], ["all", str(total)])
    places = [str(report.damage) for report in reports.values() if report.damage]
    for path, report in reports.items():
        shard = listed(path)
        if report.damage is None and shard is not None and shard.count != report.records:
            places.append(f"{path}: {report.records} records; the manifest lists it with {shard.count}")
    places += [str(missing(records, shard)) for shard in _listed_in(records) if not (records / shard.file).is_file()]
    _stop_on_damage(places)


@app.example("zoo tfrecord verify RECORDS")
def verify(records: Source) -> None:
    """Check every CRC, and the manifest's counts and SHA-256.

    Ends with 1 on damage. A record file that the manifest does not list is checked too, and named.
    """
    import_tensorflow()
    from zoo.data.tfrecord.framing import expand, verify_file
    from zoo.data.tfrecord.manifest import NAME, Manifest, listed, verify_shard

    extra = []
    if (records / NAME).is_file():
        shards = [shard for shards in Manifest.load(records).sets.values() for shard in shards]
        reports = [verify_shard(records, shard) for shard in shards]
        if any((records / shard.file).is_file() for shard in shards):
            names = {shard.file for shard in shards}
            extra = [verify_file(path) for path in expand(records) if path.name not in names]
    else:
        found = [(path, listed(path)) for path in expand(records)]
        if None in (shard for _, shard in found):
            typer.echo("no manifest here: a file that was cut between two records cannot be noticed")
        reports = [verify_shard(path.parent, shard) if shard else verify_file(path) for path, shard in found]
    for report in [*reports, *extra]:
        state = "" if report.damage is None else ", then damage" if report.records else ", damage"
        state += ", not listed in the manifest" if report in extra else ""
        typer.echo(f"{report.file}: {pluralize(report.records, 'whole record', 'whole records')}{state}")
    _stop_on_damage([str(report.damage) for report in [*reports, *extra] if report.damage])
    records_read = sum(report.records for report in reports)
    beside = f"; {pluralize(len(extra), 'file')} beside them that the manifest does not list" if extra else ""
    typer.echo(f"{pluralize(len(reports), 'file')}, {pluralize(records_read, 'record')}, no damage{beside}")


def _listed_in(folder: Path) -> "list[Shard]":
    """The files that a folder's manifest lists; none without a manifest of ours."""
    from zoo.data.tfrecord.manifest import Manifest

    try:
        return [shard for shards in Manifest.load(folder).sets.values() for shard in shards]
    except (OSError, ValueError):  # no folder, no manifest in it, or one of another kind
        return []


def _stop_on_damage(places: list[str]) -> None:
    for place in places:
        typer.echo(place, err=True)
    if places:
        raise typer.Exit(FAILED)
