"""The command ``zoo``: one file a command, imported when it is asked for.

To add a command, write ``zoo/cli/NAME.py`` with a Typer ``app`` and add its line to ``COMMANDS``. TensorFlow is
imported inside the command's function only, so that ``zoo --help`` stays quick.
"""

import os
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import zoo
from zoo.cli._app import FAILED, explain

# Command -> module with its Typer ``app``, in the order of ``zoo --help``.
COMMANDS = {
    "list": "zoo.cli.list",
    "info": "zoo.cli.info",
    "plan": "zoo.cli.plan",
    "train": "zoo.cli.train",
    "launch": "zoo.cli.launch",
    "generate": "zoo.cli.generate",
    "predict": "zoo.cli.predict",
    "retrain": "zoo.cli.retrain",
    "evaluate": "zoo.cli.evaluate",
    "report": "zoo.cli.report",
    "scan": "zoo.cli.scan",
    "tfrecord": "zoo.cli.tfrecord",
    "weights": "zoo.cli.weights",
    "bench": "zoo.cli.bench",
}


class _Commands(typer.core.TyperGroup):
    """A group that imports a command's file when the command is named."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names in the order of the table."""
        return [*COMMANDS]  # here `list` becomes the module zoo.cli.list once that is imported

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Imports the command of this name; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"zoo {zoo.__version__}")
        raise typer.Exit


@app.callback()
def _zoo(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Networks as scoped functions for TensorFlow 2 and Keras 3: list them, look at them, train them."""


def main(argv: list[str] | None = None) -> None:
    """Runs ``zoo`` and ends the process by the rule of `zoo.cli._app`.

    With ``ZOO_TRACEBACK=1`` in the environment an error shows where it came from.

    Args:
        argv: The words after ``zoo``; those of the process by default.
    """
    warnings.formatwarning = lambda message, *_, **__: f"zoo: {message}\n"
    try:
        code = app(args=argv, prog_name="zoo", standalone_mode=False)
    except typer.Abort:
        typer.echo("zoo: stopped", err=True)
        code = FAILED
    except (Exception, SystemExit) as error:
        if os.environ.get("ZOO_TRACEBACK"):
            raise
        said, code = explain(error)
        typer.echo(said, err=True)
    sys.exit(code or 0)
