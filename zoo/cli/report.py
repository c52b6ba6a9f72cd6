"""``zoo report``: where a run's report is, and what it says."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from zoo.cli._app import App

app = App()


@app.example(
    "zoo report RUN --open",
)
def report(
    run: Annotated[Path, typer.Argument(help="A folder that 'zoo retrain' wrote.")],
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Print a run's figures and the path of its report."""
    from zoo.cli._quiet import import_tensorflow

    import_tensorflow()
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
    typer.echo(str(path))
    if show:
        webbrowser.open(path.resolve().as_uri())
