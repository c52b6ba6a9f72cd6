"""Options as grouped records: a command declares them, a file may give them (``--config``), and they can be printed.

A record is a dataclass whose fields are annotated as Typer wants options. `with_records` gives a command the fields of
the records that it takes as options; `configurable` adds ``--config`` and ``--print-config``. The file is JSON, under
the command's name: its own options, and an object for each record. pydantic checks it; it is imported then only.
"""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from zoo.files import read_json, validated

Command = Callable[..., Any]
Table = Mapping[str, tuple[Any, Any]]  # option -> (annotation, default)

# What is said to a command once, and never kept.
_NEVER = {"config", "print_config", "resume", "accept_changes", "find_lr", "download"}
_FROM_FILE = "zoo.config"  # in the meta of a context: the options that a file changed from their defaults


class Record:
    """Base of a command's records of options: frozen dataclasses."""

    @classmethod
    def table(cls) -> Table:
        """Returns the fields as options."""
        return {one.name: (one.type, one.default) for one in dataclasses.fields(cls)}  # type: ignore[arg-type]


def with_records(command: Command) -> Command:
    """Gives a command's wrapper, for Typer to read, the fields of each record that the command takes."""
    signature = inspect.signature(command)
    kinds = {name: p.annotation for name, p in signature.parameters.items() if _is_record(p.annotation)}

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        made = {name: kind(**{field: arguments.pop(field) for field in kind.table()}) for name, kind in kinds.items()}
        return command(**arguments, **made)

    parameters = []
    for name, parameter in signature.parameters.items():
        table = kinds[name].table() if name in kinds else {name: (parameter.annotation, parameter.default)}
        parameters += [_parameter(option, kind, default) for option, (kind, default) in table.items()]
    return _declare(run, parameters, {name: list(kind.table()) for name, kind in kinds.items()})


def with_options(run: Command, command: Command, group: str, options: Table, replaced: str = "") -> Command:
    """Gives a command's wrapper, for Typer to read, the command's parameters and more options behind them.

    Args:
        run: The wrapper.
        command: The command.
        group: Name of these options in a file; "" for options that no file holds.
        options: Name -> (annotation, default).
        replaced: A parameter of the command that the wrapper makes from the options.
    """
    own = [p for p in inspect.signature(command).parameters.values() if p.name != replaced]
    extra = [_parameter(name, kind, default) for name, (kind, default) in options.items()]
    groups = getattr(command, "option_groups", {})
    return _declare(run, [*own, *extra], {**groups, group: list(options)} if group else groups)


def configurable(
    *, of_run: Callable[[Any], Any] | None = None, unset: Callable[..., Collection[str]] | None = None
) -> Callable[[Command], Command]:
    """Adds ``--config FILE`` and ``--print-config`` to a command that takes its ``context``.

    Args:
        of_run: Turns what a run's own file holds into the file's form; None where it is no such file.
        unset: Says from the context's values which options stay out of what is printed unless they are given.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**arguments: Any) -> Any:
            del arguments["config"]
            if not arguments.pop("print_config"):
                return command(**arguments)
            context = arguments["context"]
            left = unset(**context.params) if unset is not None else ()
            typer.echo(json.dumps(as_config(context, left), indent=2, ensure_ascii=False))
            return None

        def read(context: typer.Context, path: Path | None) -> Path | None:
            if path is not None and not context.resilient_parsing:
                _read(context, path, of_run)
            return path

        table: Table = {
            "config": (
                Annotated[
                    Path | None,
                    typer.Option(
                        metavar="FILE",
                        is_eager=True,
                        callback=read,
                        help="Take options from this JSON file; what is given here wins.",
                    ),
                ],
                None,
            ),
            "print_config": (
                Annotated[bool, typer.Option("--print-config", help="Print the options as such a file and leave.")],
                False,
            ),
        }
        return with_options(run, command, "", table)

    return decorate


def given_options(context: typer.Context) -> set[str]:
    """Returns the parameters that were given on the command line, or by a file other than by default."""
    return _of_sources(context, "COMMANDLINE") | set(context.meta.get(_FROM_FILE, ()))


def set_options(context: typer.Context) -> set[str]:
    """Returns the parameters that were given on the command line or in a file."""
    return _of_sources(context, "COMMANDLINE", "DEFAULT_MAP")


def as_config(context: typer.Context, left_out: Collection[str] = ()) -> dict[str, Any]:
    """Returns the options as ``--config`` reads them; those that are left out are there when they were set."""
    left = _NEVER | (set(left_out) - set_options(context))
    named = [(str(parameter.name), context.params.get(str(parameter.name))) for parameter in context.command.params]
    values = {name: _plain(value) for name, value in named if name not in left and value not in (None, [], ())}
    if "option" in values:
        from zoo.cli._options import parse_options

        values["option"] = parse_options(values["option"])
    groups: dict[str, list[str]] = context.command.callback.option_groups  # type: ignore[union-attr]
    grouped = {name for names in groups.values() for name in names}
    own = {name: value for name, value in values.items() if name not in grouped}
    records = {group: {name: values[name] for name in names if name in values} for group, names in groups.items()}
    return {f"zoo {context.command.name}": own | {group: record for group, record in records.items() if record}}


def _read(context: typer.Context, path: Path, of_run: Callable[[Any], Any] | None) -> None:
    """Makes what a file says the defaults of a command; checked here, so that the file is named."""
    title = f"zoo {context.command.name}"
    values = read_json(path)
    values = values if isinstance(values, dict) else {}
    found = values.get(title) or (of_run(values) if of_run is not None else None)
    if found is None:
        raise ValueError(f"{path} holds no options under {title!r}; {title} --print-config writes a file that does")
    record = validated(_schema(context), found, path).model_dump(mode="json", exclude_unset=True, exclude_none=True)
    flat: dict[str, Any] = {}
    for name, value in record.items():
        flat |= value if name in context.command.callback.option_groups else {name: value}  # type: ignore[union-attr]
    if "option" in flat:
        flat["option"] = [f"{name}={value!r}" for name, value in flat["option"].items()]
    changed = set()
    parameter: Any
    for parameter in context.command.params:
        if (name := str(parameter.name)) in flat:
            try:
                value = parameter.process_value(context, flat[name])
            except Exception as error:
                if not hasattr(error, "message"):
                    raise
                raise ValueError(f"{path}: {name}: {error.message}") from error
            default = parameter.default
            if value != (None if default is None else parameter.process_value(context, default)):
                changed.add(name)
    context.default_map = flat
    context.meta[_FROM_FILE] = changed


def _schema(context: typer.Context) -> Any:
    """The pydantic model of a command's file."""
    import pydantic

    callback: Any = context.command.callback
    kinds = {
        p.name: get_args(p.annotation)[0]
        for p in inspect.signature(callback).parameters.values()
        if get_args(p.annotation)
    }
    kinds = {name: kind for name, kind in kinds.items() if name not in _NEVER} | {"option": dict[str, Any]}
    strict = pydantic.ConfigDict(extra="forbid")

    def model(title: str, fields: Mapping[str, Any]) -> Any:
        return pydantic.create_model(title, __config__=strict, **{name: (kind, None) for name, kind in fields.items()})  # type: ignore[call-overload]

    groups = {
        group: model(group, {name: kinds.pop(name) for name in names if name in kinds})
        for group, names in callback.option_groups.items()
    }
    return model("Options", kinds | groups)


def _of_sources(context: typer.Context, *sources: str) -> set[str]:
    found = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in found.items() if source is not None and source.name in sources}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _declare(run: Any, parameters: list[inspect.Parameter], groups: dict[str, list[str]]) -> Command:
    run.__signature__ = inspect.Signature(
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters], return_annotation=None
    )
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.option_groups = groups
    return cast(Command, run)
