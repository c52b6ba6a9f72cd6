"""``zoo report``: where a run's report is, and what it says."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from zoo.cli._app import App
from zoo.cli._train_run import kind_of_run, load_train_facts, refuse_other_runs

app = App()


@app.example(
    "zoo report RUN --open",
)
def report(
    run: Annotated[Path, typer.Argument(help="A folder that 'zoo retrain' or 'zoo train' wrote.")],
    show: Annotated[bool, typer.Option("--open", help="Open the report, or the curves.")] = False,
) -> None:
    """Print a run's figures and the path of its report."""
    from zoo.cli._quiet import import_tensorflow

    import_tensorflow()
    kind = kind_of_run(run)
    if kind == "train":
        path = _report_training(run)
    elif kind == "words":
        path = _report_words(run)
    else:
        refuse_other_runs(run, kind)
        path = _report_retraining(run)
    typer.echo(str(path))
    if show:
        webbrowser.open(path.resolve().as_uri())


def _report_retraining(run: Path) -> Path:
    from zoo.transfer.evaluation import Evaluation
    from zoo.transfer.run import load_facts

    facts = load_facts(run)
    evaluation = Evaluation.from_dict(facts["evaluation"])
    path = run / "report.html"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; run `zoo retrain` with the same --out again, it writes it anew.")
    trunk = facts["facts"]["trunk"]
    typer.echo(f"trunk: {trunk['net']}, {trunk['source']}")
    if evaluation.accuracy is not None:
        typer.echo(f"{facts['facts']['judged']} {evaluation.in_words}")
        typer.echo(f"always saying {evaluation.majority_class!r} would give {evaluation.majority:.1%}")
    return path


def _report_training(run: Path) -> Path:
    from zoo.transfer.evaluation import Evaluation

    facts = load_train_facts(run)
    best = facts.get("best_step")
    chosen = f", the model is that of step {best}, the best in validation" if best is not None else ""
    typer.echo(f"network: {facts['net']}, {facts['steps']} steps on {facts['data']['data']}{chosen}")
    for segment in facts.get("segments", ()):
        changes = f" ({'; '.join(segment['changes'])})" if segment["changes"] else ""
        typer.echo(f"from step {segment['from_step']}: {segment['recipe'] or 'not known'}{changes}")
    if facts["evaluation"] is not None:
        evaluation = Evaluation.from_dict(facts["evaluation"])
        typer.echo(f"{facts['judged']} {evaluation.in_words}")
        typer.echo(f"always saying {evaluation.majority_class!r} would give {evaluation.majority:.1%}")
    return run / "curves.png"


def _report_words(run: Path) -> Path:
    path = run / "perplexity.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: give the command of the run again, it writes it at its end")
    from zoo.files import read_json

    found = read_json(path)
    typer.echo(f"word_lm: {', '.join(f'{part} perplexity {value:.2f}' for part, value in found.items())}")
    return path
