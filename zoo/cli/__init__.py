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

# Command -> module with its Typer ``app``, in the order of ``zoo --help``.
COMMANDS = {
    "list": "zoo.cli.list",
    "info": "zoo.cli.info",
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
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Imports the command of this name; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command


app = typer.Typer(cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


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
    """Runs ``zoo`` and ends the process: 0 all well, 1 a failure, 2 bad input.

    With ``ZOO_TRACEBACK=1`` in the environment an error shows where it came from.

    Args:
        argv: The words after ``zoo``; those of the process by default.
    """
    warnings.formatwarning = lambda message, *_, **__: f"zoo: {message}\n"
    try:
        app(args=argv, prog_name="zoo")
    except (ValueError, TypeError, FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError) as error:
        _stop(error, 2)
    except KeyboardInterrupt:
        _stop("stopped", 1)
    except Exception as error:
        _stop(error, 1)


def _stop(error: BaseException | str, code: int) -> None:
    if os.environ.get("ZOO_TRACEBACK") and isinstance(error, BaseException):
        raise error
    kind = "" if isinstance(error, str | ValueError) else f"{type(error).__name__}: "
    typer.echo(f"zoo: {kind}{error}", err=True)
    sys.exit(code)
