"""``zoo evaluate``: how good the model of a run is on other pictures."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo.cli._app import App
from zoo.cli._records import given_options
from zoo.cli._train_data import DataOptions, load
from zoo.cli._train_run import judge_stream, kind_of_run, load_train_facts, load_train_predictor, refuse_other_runs
from zoo.cli.predict import load_any_predictor

if TYPE_CHECKING:
    from zoo.transfer.evaluation import Evaluation

app = App()


@app.example(
    "zoo evaluate RUN OTHER_PICTURES --json",
)
def evaluate(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A folder that 'zoo retrain' or 'zoo train' wrote.")],
    data: Annotated[
        str,
        typer.Argument(
            help="A folder with a folder for each class, a CSV of path,label, or a folder of TFRecords; for a run of "
            "'zoo train' also digits, mnist, mnist-sample, cifar10 or cifar100: its test part."
        ),
    ],
    data_dir: Annotated[Path | None, typer.Option(help="Folder with MNIST's or CIFAR's files.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
    max_bad: Annotated[str, typer.Option(help="How many bad files are acceptable: 1%, or a number of files.")] = "1%",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge the model of a run on other labelled pictures."""
    from zoo.cli._quiet import import_tensorflow

    kind = kind_of_run(run)
    refuse_other_runs(run, kind)
    if not kind:
        raise FileNotFoundError(f"{run} holds no finished run; make one with zoo retrain or zoo train")
    about = DataOptions(data=data, batch=batch_size, augment=False, validation=0.0, data_dir=data_dir)
    given = given_options(context)
    if "max_bad" in given and about.kind != "pictures":
        raise ValueError(f"--max-bad is about picture files; {data} ({about.kind}) has none: leave it out")
    about = dataclasses.replace(about, given=frozenset(given & {"data_dir"}))
    about.check()
    import_tensorflow()
    known = {"train": 0, "validation": 0}
    if about.kind == "pictures":
        result, known = _judge_pictures(run, kind, data, batch_size, max_bad)
    else:
        result = _judge_stream(run, kind, about)
    if as_json:
        typer.echo(
            json.dumps(
                {**result.to_dict(), "seen_in_training": known["train"], "seen_in_validation": known["validation"]},
                ensure_ascii=False,
                indent=1,
            )
        )
        return
    _print_result(result)
    if any(known.values()):
        typer.echo(
            f"zoo: the run knows some of these pictures: {known['train']} in its training part, {known['validation']} "
            "in its validation part; leave them out to be fair",
            err=True,
        )


def _print_result(result: "Evaluation") -> None:
    from zoo.cli._print import print_table

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
    typer.echo(result.calibration_in_words)
    typer.echo(f"always saying {result.majority_class!r} would give {share(result.majority)}")


def _judge_pictures(run: Path, kind: str, data: str, batch_size: int, max_bad: str) -> tuple[Any, dict[str, int]]:
    from zoo.transfer.judging import judge, judge_pictures

    if kind == "train":
        return judge_pictures(load_train_predictor(run), data, run, batch_size=batch_size, max_bad=max_bad)
    return judge(run, data, batch_size=batch_size, max_bad=max_bad)


def _judge_stream(run: Path, kind: str, about: DataOptions) -> Any:
    """Judges by TFRecords, or by the test part of a named set."""
    from zoo.transfer.judging import class_numbers

    names: Sequence[str]
    stream: Any
    predictor = load_any_predictor(run, kind)
    ready = predictor.reader.preprocessing
    if about.kind == "records":
        from zoo.data.tfrecord.manifest import Manifest
        from zoo.data.tfrecord.pictures import image_stream

        manifest = Manifest.load(about.data)
        part = next((name for name in ("test", "validation", "train") if name in manifest.labels), "test")
        names = manifest.class_names
        read = predictor.reader.prepare
        stream = image_stream(about.data, batch_size=about.batch, name=part, prepare=read, shuffle=False)
        typer.echo(f"the set {part!r} of {about.data}: {stream.examples:,} pictures", err=True)
    else:
        if kind != "train":
            raise ValueError(
                f"{run} was retrained on picture files: give a folder or a CSV of them, not {about.data!r}"
            )
        trained_on = load_train_facts(run)["data"]
        if trained_on["data"] == about.data and trained_on.get("split"):
            about = dataclasses.replace(about, split=trained_on["split"])
        found = load(about, (*ready.size, ready.channels), ready, None)
        if found.test is None:
            raise ValueError(f"{about.data} has no test part")
        stream, names = found.test, found.class_names
    return judge_stream(predictor.model, stream, predictor.classes, class_numbers(names, predictor.classes))
