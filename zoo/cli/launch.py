"""``zoo launch``: the tasks of a cluster as processes of this machine."""

from pathlib import Path
from typing import Annotated

import typer

from zoo.cli._app import App

app = App()


@app.example(
    "zoo launch --workers 2 -- zoo train lenet5 --strategy multiworker",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def launch(
    command: Annotated[list[str], typer.Argument(help="What every task runs, after --: zoo train lenet5 ...")],
    workers: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 2,
    ps: Annotated[int, typer.Option(min=0, help="Parameter servers, for --strategy ps; a chief comes with them.")] = 0,
    logs: Annotated[Path, typer.Option(help="Folder for one log a task, which is added to.")] = Path("launch-logs"),
    restarts: Annotated[
        int, typer.Option(min=0, help="With parameter servers: how often a worker that died is started again.")
    ] = 3,
) -> None:
    """Start a command once for each task of a cluster.

    Each gets its TF_CONFIG, with free ports of this machine. When a task fails the others are stopped within ten
    seconds, and its exit status is that of the launch; the same command given again goes on from the newest checkpoint.
    """
    from zoo.parallel.launch import Launch

    raise typer.Exit(Launch(command, workers, ps, logs=logs, restarts=restarts).run())
