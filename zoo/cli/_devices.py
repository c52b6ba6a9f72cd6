"""Device options for commands: ``@device_options`` under ``@app.command()`` adds them and makes the settings first."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from zoo.cli._records import with_options
from zoo.devices import DeviceSettings

_PANEL = "Devices"


def _option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL, **more)


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "devices": (
        Annotated[str, _option(help="all, cpu, GPUs such as gpu:0,gpu:1, or logical CPUs cpu:0,cpu:1.")],
        "all",
    ),
    "memory_growth": (Annotated[bool, _option(help="Take GPU memory as needed, not all at the start.")], True),
    "gpu_memory_limit": (
        Annotated[str | None, _option(metavar="MB|SHARE", help="Most memory of each GPU: 4096, 0.5 or 50%.")],
        None,
    ),
    "intra_op_threads": (Annotated[int, _option(min=0, help="Threads within an operation; 0: all.")], 0),
    "inter_op_threads": (Annotated[int, _option(min=0, help="Operations at the same time; 0: all.")], 0),
    "log_device_placement": (
        Annotated[bool, _option("--log-device-placement", help="Print which device runs each operation.")],
        False,
    ),
    "soft_placement": (Annotated[bool, _option(help="Use the CPU where a device lacks an operation.")], True),
}


def device_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the device options to a command and applies them before it runs; TensorFlow is imported then, quietly."""

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        chosen = {name: arguments.pop(name) for name in _OPTIONS}
        settings = DeviceSettings(**chosen)
        from zoo.cli._quiet import import_tensorflow

        import_tensorflow()
        settings.apply()
        return command(**arguments)

    return with_options(run, command, "devices", _OPTIONS)
