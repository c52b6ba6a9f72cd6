"""Network options on the command line: ``--option variant=slim``."""

import ast
from collections.abc import Sequence
from typing import Annotated, Any

import typer

NetOptions = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the network; repeatable.")
]


def parse_options(words: Sequence[str] | None) -> dict[str, Any]:
    """Reads ``["variant=slim", "num_classes=5"]`` as ``{"variant": "slim", "num_classes": 5}``.

    Args:
        words: What was given; a value is a Python literal, or else text.

    Returns:
        The options.

    Raises:
        ValueError: A word without ``=``.
    """
    options = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--option takes NAME=VALUE, such as num_classes=5; got {word!r}")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options
