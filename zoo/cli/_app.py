"""What all commands share: how they are declared, how their help looks, what a choice is, how an error ends them."""

import difflib
import errno
from collections.abc import Callable
from typing import Any

import typer
import typer.core

# How commands end, everywhere: 0 all well; 2 bad input, found before any work and by no retry mended; 1 a failure, or
# something in what was looked at is wrong (a damaged file, a picture of several); 128 + n after signal n. `zoo launch`
# ends as its tasks did.
FAILED, BAD = 1, 2
BAD_INPUT = (
    *(ValueError, TypeError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError),
    PermissionError,
)
RARE = "Rarely needed"  # a panel that comes last
_FOREIGN = ("tensorflow", "keras", "torch", "google", "h5py", "jaxlib")


class _Command(typer.core.TyperCommand):
    """A command whose help has a section for each panel, in which no name is ever cut."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and options, each panel under its title."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = getattr(parameter, "rich_help_panel", None) or usual
                panels.setdefault(title, []).append(record)
        for title, records in sorted(panels.items(), key=lambda panel: panel[0] == RARE):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class App(typer.Typer):
    """A Typer app of zoo: no completion of its own (the root command has it), and examples with every command."""

    def __init__(self, **more: Any) -> None:
        super().__init__(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **more)

    def example(self, *examples: str, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        """Declares a command.

        Args:
            *examples: What to type, one line each; a test parses them.
            name: Of the command; the function's by default.
            **more: See `typer.Typer.command`.
        """
        lines = "\n".join(f"  {line}" for line in examples)
        title = "Example:" if len(examples) == 1 else "Examples:"
        return self.command(name, cls=_Command, epilog=f"\b\n{title}\n{lines}", **more)


def networks(incomplete: str) -> list[str]:
    """Completes the name of a network from the index, without TensorFlow: the ``autocompletion`` of an argument."""
    from zoo.registry import list_nets

    return [name for name in list_nets() if name.startswith(incomplete)]


def choice(*words: str, several: bool = False, **more: Any) -> Any:
    """Returns an option that takes one of some words (or several, joined by commas): completed, and checked at once.

    Args:
        *words: What there is.
        several: Whether more than one may be given.
        **more: See `typer.Option`.
    """

    def parse(text: str) -> str:
        for word in text.split(",") if several else [text]:
            if word.strip() not in words:
                near = difflib.get_close_matches(word.strip(), words, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise typer.BadParameter(f"{word!r} is none of {', '.join(words)}{hint}")
        return text

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        return [f"{before}{comma}{word}" for word in words if word.startswith(last)]

    given = {"metavar": f"[{'|'.join(words)}]{',...' if several else ''}", **more}
    return typer.Option(parser=parse, autocompletion=complete, **given)


def explain(error: BaseException) -> tuple[str, int]:
    """Returns what to say about an error that ends a command, and the exit code.

    Args:
        error: Any error; of other libraries' long messages only the first line is said.
    """
    said, code = str(error), BAD if isinstance(error, BAD_INPUT) else FAILED
    if isinstance(error, SystemExit):  # a run that a signal interrupted, and that says what was saved
        return f"zoo: {said}", int(error.code or 0)
    if hasattr(error, "format_message"):  # about the words on the command line
        said, code = error.format_message(), BAD
        if type(error).__name__ == "NoArgsIsHelpError":
            return said, code
        context = getattr(error, "ctx", None)
        if context is not None:
            said = f"{said.rstrip('.')} ('{context.command_path} --help' tells more)"
    elif isinstance(error, UnicodeDecodeError):
        said = f"no UTF-8 text: {said}"
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        said = f"the disk is full: {said}; free some space and give the same command again"
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        said = f"{error.filename}: {error.strerror}"
    elif type(error).__module__.partition(".")[0] in _FOREIGN:
        first = next((line.strip() for line in said.splitlines() if line.strip()), "no message")
        said = f"{type(error).__name__}: {first[:300]} (ZOO_TRACEBACK=1 shows where)"
    elif code == FAILED or not said:
        said = f"{type(error).__name__}: {said}"
    return f"zoo: {said}", code
