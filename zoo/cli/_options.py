"""Network options on the command line: ``--option variant=slim``."""

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

NetOptions = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the network; repeatable.")
]

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")]

# The library's words, written here too so that help and completion import no TensorFlow; a test compares them.
PRECISIONS = ("float32", "float64", "mixed_bfloat16", "mixed_float16", "bfloat16", "float16")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw", "lion")
SCHEDULES = ("cosine", "constant", "per_epoch", "exponential", "polynomial")
SUMMARIES = ("none", "scalars", "all")
PROGRESS = ("auto", "bar", "lines", "none")
STRATEGIES = ("single", "towers", "mirrored", "multiworker", "ps")
REDUCTIONS = ("auto", "nccl", "hierarchical", "one_device")
BATCH_NORMS = ("mean", "sync", "first")
LAYOUTS = ("auto", "classes", "subsets")
FITS = ("pad", "stretch", "crop")
HEADS = ("softmax", "sgd", "adam")
CONFLICTS = ("drop", "first", "refuse")


def check_numbers(given: Mapping[str, Any]) -> None:
    """Raises ValueError for an option of a command that is NaN or infinite."""
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"--{name.replace('_', '-')} must be a finite number, received {value}")


def flags(names: Iterable[str]) -> str:
    """Words parameters as the options of the command line: ``--data-dir, --batch``."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def parse_options(words: Sequence[str] | None) -> dict[str, Any]:
    """Reads ``["variant=slim", "num_classes=5"]`` as ``{"variant": "slim", "num_classes": 5}``.

    Args:
        words: What was given; a value is a Python literal, or else text.

    Returns:
        The options.

    Raises:
        ValueError: A word without ``=``, or an option that is given twice.
    """
    options: dict[str, Any] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--option takes NAME=VALUE, such as num_classes=5; got {word!r}")
        if name in options:
            raise ValueError(f"--option {name} is given twice, the second time as {value!r}: give it once")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options
