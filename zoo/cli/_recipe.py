"""The command that trains the same weights again, for their card."""

import shlex
from collections.abc import Collection

import typer

from zoo.cli._options import given_options

# What decides the weights, always in a recipe; other settings are there when they were given.
_ALWAYS = ("data", "validation", "epochs", "batch", "learning_rate", "seed")
_NEVER = {
    *("net", "option", "out", "resume", "accept_changes", "find_lr", "licence", "progress", "download", "data_dir"),
    *("checkpoint_steps", "checkpoint_minutes", "keep", "keep_every_hours", "summaries", "profile"),
    *("devices", "memory_growth", "gpu_memory_limit", "intra_op_threads", "inter_op_threads", "log_device_placement"),
    *("soft_placement", "show_placement", "strict_gpus", "peer_timeout"),
}


def recipe(context: typer.Context, unused: Collection[str] = ()) -> str:
    """Returns the command that trains these weights again; `unused` are options that its data has no use for."""
    words = ["zoo", "train", context.params["net"]]
    given = given_options(context)
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
