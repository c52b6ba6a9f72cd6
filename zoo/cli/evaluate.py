"""``zoo evaluate``: how good a retrained model is on other pictures."""

import json
from pathlib import Path
from typing import Annotated

import typer

from zoo.cli._app import App

app = App()


@app.example(
    "zoo evaluate RUN OTHER_PICTURES --json",
)
def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder that 'zoo retrain' wrote.")],
    images: Annotated[Path, typer.Argument(help="A folder with a folder for each class, or a CSV of path,label.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
    max_bad: Annotated[str, typer.Option(help="How many bad files are acceptable: 1%, or a number of files.")] = "1%",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a retrained model on other labelled pictures."""
    from zoo.cli._print import print_table
    from zoo.cli._quiet import import_tensorflow

    import_tensorflow()
    from zoo.transfer.judging import judge

    result, known = judge(run, images, batch_size=batch_size, max_bad=max_bad)
    if as_json:
        typer.echo(
            json.dumps(
                {**result.to_dict(), "seen_in_training": known["train"], "seen_in_validation": known["validation"]},
                ensure_ascii=False,
                indent=1,
            )
        )
        return
    share = lambda value: "-" if value is None else f"{value:.1%}"  # noqa: E731
    print_table(
        ["class", "pictures >", "precision >", "recall >", "F1 >"],
        [
            [c.name, str(c.count), share(c.precision), share(c.recall), "-" if c.f1 is None else f"{c.f1:.3f}"]
            for c in result.classes
        ],
    )
    typer.echo(result.in_words)
    for k, value in result.top_k.items():
        typer.echo(f"among the top {k}: {share(value)}")
    typer.echo(f"calibration error {share(result.calibration_error)}")
    typer.echo(f"always saying {result.majority_class!r} would give {share(result.majority)}")
    if any(known.values()):
        typer.echo(
            f"zoo: the run knows some of these pictures: {known['train']} in its training part, {known['validation']} "
            "in its validation part; leave them out to be fair",
            err=True,
        )
