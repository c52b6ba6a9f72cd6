"""The command that trains the same weights again, for their card."""

import shlex

import typer

# What decides the weights, always in a recipe; other settings are there when they were given.
_ALWAYS = ("data", "epochs", "batch", "learning_rate", "seed")
_NEVER = {
    *("net", "option", "out", "resume", "accept_changes", "find_lr", "licence", "progress", "download", "data_dir"),
    *("devices", "memory_growth", "gpu_memory_limit", "intra_op_threads", "inter_op_threads", "log_device_placement"),
    *("soft_placement", "show_placement", "strict_gpus", "peer_timeout"),
}


def recipe(context: typer.Context) -> str:
    """Returns the command that trains these weights again."""
    words = ["zoo", "train", context.params["net"]]
    for name in (str(parameter.name) for parameter in context.command.params):
        value = context.params.get(name)
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if name in _NEVER or not (given or name in _ALWAYS or (name == "split" and context.params["data"] == "digits")):
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
