"""The options of ``zoo train`` but those about data, and what it is to do: the `Job`."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from zoo.cli._app import choice
from zoo.cli._options import OPTIMIZERS, PRECISIONS, PROGRESS, SCHEDULES, SUMMARIES
from zoo.cli._records import Record, as_config
from zoo.cli._sharing import Sharing
from zoo.cli._train_data import ON_PICTURES, Data

if TYPE_CHECKING:
    from zoo.registry import Net

_HOW, _RARE, _RUN, _WATCH = "Learning", "Learning, rarely needed", "Run folder", "Watching"


@dataclass(frozen=True, kw_only=True)
class Learning(Record):
    """How the network learns."""

    epochs: Annotated[int, typer.Option(min=1, help="Times to see every image.", rich_help_panel=_HOW)] = 30
    batch: Annotated[int, typer.Option(min=1, help="Images a step.", rich_help_panel=_HOW)] = 32
    optimizer: Annotated[str, choice(*OPTIMIZERS, help="rmsprop is TF-Slim's.", rich_help_panel=_HOW), ON_PICTURES] = (
        "adam"
    )
    learning_rate: Annotated[float, typer.Option(min=0.0, help="First step size.", rich_help_panel=_HOW)] = 2e-3
    schedule: Annotated[
        str,
        choice(
            *SCHEDULES,
            help="How it falls: cosine (to 0), per_epoch or exponential (x 0.94 every 2 epochs, in jumps or smoothly), "
            "polynomial (in a line to 0).",
            rich_help_panel=_HOW,
        ),
        ON_PICTURES,
    ] = "cosine"
    warmup_steps: Annotated[
        int, typer.Option(min=0, help="Steps in which it rises from 0 first.", rich_help_panel=_HOW), ON_PICTURES
    ] = 0
    label_smoothing: Annotated[
        float,
        typer.Option(min=0.0, max=0.99, help="Share given to the other classes.", rich_help_panel=_RARE),
        ON_PICTURES,
    ] = 0.0
    clip_norm: Annotated[
        float | None, typer.Option(help="Largest global norm of the gradient.", rich_help_panel=_RARE), ON_PICTURES
    ] = None
    averages: Annotated[
        float | None,
        typer.Option(help="Decay of moving averages of the weights, as 0.999.", rich_help_panel=_RARE),
        ON_PICTURES,
    ] = None
    train_only: Annotated[
        list[str] | None,
        typer.Option(help="Scope pattern of what to train; repeatable.", rich_help_panel=_RARE),
        ON_PICTURES,
    ] = None
    accumulate: Annotated[
        int,
        typer.Option(min=1, help="Parts to split a batch into, to save memory.", rich_help_panel=_RARE),
        ON_PICTURES,
    ] = 1
    precision: Annotated[str, choice(*PRECISIONS, help="Keras' policy of types.", rich_help_panel=_HOW)] = "float32"
    steps_per_call: Annotated[int, typer.Option(min=1, help="Steps run in one call.", rich_help_panel=_RARE)] = 1
    jit_compile: Annotated[
        bool, typer.Option(help="Compile the step with XLA.", rich_help_panel=_RARE), ON_PICTURES
    ] = False
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same weights.", rich_help_panel=_HOW)] = 0
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Only ops that repeat bit for bit.", rich_help_panel=_RARE)
    ] = False


@dataclass(frozen=True, kw_only=True)
class Run(Record):
    """The run folder."""

    out: Annotated[Path | None, typer.Option(help="Run folder; runs/NET-DATA by default.", rich_help_panel=_RUN)] = None
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume",
            help="Go on with the run in the folder (it does so by itself too); --no-resume refuses one.",
            rich_help_panel=_RUN,
        ),
    ] = None
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on although settings have changed.", rich_help_panel=_RUN)
    ] = False
    checkpoint_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps between checkpoints.", rich_help_panel=_RUN)
    ] = None
    checkpoint_minutes: Annotated[
        float, typer.Option(min=0.0, help="Minutes between checkpoints.", rich_help_panel=_RUN)
    ] = 10.0
    keep: Annotated[int, typer.Option(min=1, help="Newest checkpoints to keep.", rich_help_panel=_RUN)] = 5
    keep_every_hours: Annotated[
        float | None, typer.Option(help="Also keep one every so many hours.", rich_help_panel=_RUN)
    ] = None
    licence: Annotated[
        str, typer.Option(help="Licence of the weights, for their card.", rich_help_panel=_RUN), ON_PICTURES
    ] = "not stated"


@dataclass(frozen=True, kw_only=True)
class Watching(Record):
    """What is looked at and shown meanwhile."""

    validate_every: Annotated[
        int | None,
        typer.Option(min=1, help="Steps between validations; default an epoch.", rich_help_panel=_WATCH),
        ON_PICTURES,
    ] = None
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after so many validations without a better one.", rich_help_panel=_WATCH),
        ON_PICTURES,
    ] = None
    summaries: Annotated[str, choice(*SUMMARIES, help="What to write for TensorBoard.", rich_help_panel=_WATCH)] = (
        "scalars"
    )
    profile: Annotated[
        str | None, typer.Option(help="Steps to trace with TensorFlow's profiler, as 100:110.", rich_help_panel=_WATCH)
    ] = None
    progress: Annotated[
        str, choice(*PROGRESS, help="auto: a bar on a terminal, lines elsewhere.", rich_help_panel=_WATCH)
    ] = "auto"
    find_lr: Annotated[
        bool,
        typer.Option("--find-lr", help="Try learning rates, draw the losses, and leave.", rich_help_panel=_WATCH),
        ON_PICTURES,
    ] = False


# What the recipe of a word model decides where it is not given.
DECIDED = ("epochs", "batch", "learning_rate", "progress")


@dataclass(frozen=True)
class Job:
    """A training: the network with its options, and what the command was told.

    Args:
        given: Options that were given, by the command line or by a file other than by default.
        chosen: Options that were given, by default or not.
    """

    network: "Net"
    options: dict[str, Any]
    data: Data
    learning: Learning
    run: Run
    watching: Watching
    sharing: Sharing
    context: typer.Context = field(repr=False)
    given: frozenset[str] = field(repr=False)
    chosen: frozenset[str] = field(repr=False)

    def __post_init__(self) -> None:
        if self.run.accept_changes and self.run.resume is False:
            raise ValueError("--accept-changes goes on with a run, and --no-resume refuses one: give one of them")
        _edges(self.watching.profile)

    @property
    def folder(self) -> Path:
        """The run folder."""
        net, named = self.network.spec.name, Path(self.data.data).name
        return self.run.out or Path("runs") / (net if self.network.spec.data == "text" else f"{net}-{named}")

    def refused(self) -> list[str]:
        """Returns the options that were given and that a network for such data has no use for."""
        every = [one for record in (Data, Learning, Run, Watching) for one in fields(record)]
        only = {one.name for one in every if ON_PICTURES in get_args(one.type)}
        return [one.name for one in every if one.name in self.given & only and self.network.spec.data != "pictures"]

    def fit_settings(self, unused: Collection[str] = ()) -> dict[str, Any]:
        """Returns what `Trainer.fit` takes besides data and length; unused are options that the data has no use for."""
        run, watching = self.run, self.watching
        return {
            "folder": self.folder,
            "resume": "auto" if run.resume is None else run.resume,
            "accept_changes": run.accept_changes,
            "recipe": recipe(self, unused),
            "command": as_config(self.context, DECIDED if self.network.spec.data == "text" else ()),
            "checkpoint_steps": run.checkpoint_steps,
            "checkpoint_minutes": run.checkpoint_minutes,
            "keep": run.keep,
            "keep_every_hours": run.keep_every_hours,
            "summaries": watching.summaries,
            "profile": _edges(watching.profile),
            "progress": watching.progress,
        }

    def refuse_other_files(self) -> None:
        """Raises FileExistsError for a folder that holds files and no run: nothing of the user's is written over."""
        folder = self.folder
        if not self.sharing.writes or not folder.exists():
            return
        if not folder.is_dir():
            raise FileExistsError(f"--out {folder} is a file. Choose an empty or a new folder.")
        names = {path.name for path in folder.iterdir()}
        tests_of_rates = {"lr_finder.csv", "lr_finder.png"}
        if self.watching.find_lr and (found := sorted(names & tests_of_rates)):
            raise FileExistsError(f"--out {folder} has {found[0]} already. Choose another folder, or move it away.")
        if any(name.startswith("model.ckpt-") for name in names):
            return
        others = names - {".lock", "config.json", "metrics.jsonl", "summaries", *tests_of_rates}
        config = folder / "config.json"
        if config.is_file() and '"net"' not in config.read_text(errors="replace"):
            others.add("config.json")
        if others:
            raise FileExistsError(
                f"--out {folder} holds no run but other files ({', '.join(sorted(others)[:5])}). "
                "Choose an empty or a new folder."
            )


def _edges(profile: str | None) -> tuple[int, int] | None:
    if profile is None:
        return None
    first, colon, last = profile.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal():
        raise ValueError(f"--profile takes FIRST:LAST, such as 100:110; got {profile!r}")
    return int(first), int(last)


# What decides the weights, always in a recipe; other settings are there when they were given.
_ALWAYS = ("data", "validation", "epochs", "batch", "learning_rate", "seed")
_NEVER = {
    *("net", "option", "out", "resume", "accept_changes", "find_lr", "licence", "progress", "download", "data_dir"),
    *("checkpoint_steps", "checkpoint_minutes", "keep", "keep_every_hours", "summaries", "profile"),
    *("config", "print_config"),
    *("devices", "memory_growth", "gpu_memory_limit", "intra_op_threads", "inter_op_threads", "log_device_placement"),
    *("soft_placement", "show_placement", "strict_gpus", "peer_timeout"),
}


def recipe(job: Job, unused: Collection[str] = ()) -> str:
    """Returns the command that trains these weights again; `unused` are options that its data has no use for."""
    context, given = job.context, job.given
    words = ["zoo", "train", context.params["net"]]
    for name in (str(parameter.name) for parameter in context.command.params):
        value = context.params.get(name)
        always = name in _ALWAYS or (name == "split" and context.params["data"] == "digits")
        if name in _NEVER or name in unused or not (name in given or always):
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{name.replace('_', '-')}")
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [flag, str(one)]
    for word in context.params["option"] or ():
        words += ["--option", word]
    return shlex.join(words)
