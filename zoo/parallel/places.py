"""Which devices there are, which were asked for, and where variables live."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

VARIABLE_OPS = ("Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp", "MutableHashTableV2")
Where = str | Sequence[str] | Callable[[Any], Any]


class MissingDeviceError(ValueError):
    """More devices were asked for than there are; the message says how many and which."""


def available_devices() -> list[str]:
    """Returns the devices to compute on: the GPUs, or without any the logical CPUs: ``["GPU:0", "GPU:1"]``."""
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [short_name(device.name) for device in found]


def choose_devices(num_gpus: int | None = None, *, strict: bool = False) -> list[str]:
    """Picks devices by their number.

    Args:
        num_gpus: How many; None for all there are.
        strict: Refuse to run on fewer; else a warning gives both numbers.

    Returns:
        Names such as ``GPU:0``; logical CPUs stand in where there is no GPU at all.

    Raises:
        ValueError: A number below 1.
        MissingDeviceError: Fewer GPUs than asked for, under `strict`.
    """
    there = available_devices()
    if num_gpus is None:
        return there
    if num_gpus < 1:
        raise ValueError(f"num_gpus counts from 1, got {num_gpus}")
    gpus = [name for name in there if name.startswith("GPU")]
    if len(gpus) < num_gpus:
        named = f"{len(gpus)} ({', '.join(gpus)})" if gpus else "none"
        text = f"{num_gpus} GPUs were asked for and there are {len(gpus) if gpus else 0}: found {named}"
        if strict:
            raise MissingDeviceError(f"{text}; ask for fewer, or leave strict out to run on what is there")
        using = there[:num_gpus]
        warnings.warn(f"{text}; running on {len(using)} device(s) instead: {', '.join(using)}", stacklevel=3)
    return there[:num_gpus]


def check_devices(names: Iterable[str]) -> list[str]:
    """Checks names of devices of this machine.

    Args:
        names: As ``GPU:0``, ``cpu:1`` or TensorFlow's full ones; names of other jobs' devices pass.

    Returns:
        The names in short form.

    Raises:
        ValueError: None, one twice, a name that is no device's, or a device that is not there.
    """
    found: list[str] = []
    there = [short_name(device.name) for device in tf.config.list_logical_devices()]
    for name in names:
        spec = _spec(name)
        short = short_name(name)
        if spec.job in (None, "localhost") and short not in there:
            raise MissingDeviceError(f"there is no device {name!r}; there are {', '.join(there)}")
        if short in found:
            raise ValueError(f"each device can have one tower, but {name!r} is named twice")
        found.append(short)
    if not found:
        raise ValueError(f"name at least one device; there are {', '.join(there)}")
    return found


def short_name(name: str) -> str:
    """Returns ``GPU:0`` for ``/job:localhost/replica:0/task:0/device:GPU:0``; devices of other jobs keep theirs."""
    spec = _spec(name)
    if spec.job not in (None, "localhost"):
        return spec.to_string()
    return f"{spec.device_type}:{spec.device_index or 0}"


def _spec(name: str) -> tf.DeviceSpec:
    text = name if name.startswith("/") else f"/device:{name}"
    try:
        spec = tf.DeviceSpec.from_string(text)
    except ValueError:
        spec = None
    if spec is None or (spec.device_type is None and spec.job is None):
        raise ValueError(f"a device is named as GPU:0 or CPU:1, got {name!r}")
    return spec


def variable_device(where: Where, devices: Sequence[str]) -> Callable[[Any], str]:
    """Returns the function that says on which device the next variable goes; `where` as for `Towers`."""
    if callable(where):
        return where
    if isinstance(where, str):
        name = {"cpu": "CPU:0", "first": devices[0]}.get(where.lower(), where)
        _spec(name)
        return lambda _: full_name(name)
    names = list(where)
    if not names:
        raise ValueError("variables need a device: name at least one parameter server")
    turns = itertools.cycle([full_name(name) for name in names])
    return lambda _: next(turns)


def next_device(place: Callable[[Any], str]) -> str:
    """Returns where `place` puts a variable, without an operation that makes one."""
    return place(tf.compat.v1.NodeDef(name="variable", op="VarHandleOp"))


def full_name(name: str) -> str:
    """Returns ``/device:GPU:0`` for ``GPU:0``."""
    return name if name.startswith("/") else f"/device:{name}"


def tower_device(device: str, place: Callable[[Any], str]) -> Callable[[Any], str]:
    """Returns the device function of a tower in a graph: variables where `place` says, all else on `device`."""

    def choose(op: Any) -> str:
        return place(op) if op.type in VARIABLE_OPS else full_name(device)

    return choose


@contextmanager
def variables_on(place: Callable[[Any], str]) -> Iterator[None]:
    """Makes the variables that are created inside, in eager mode, on the devices that `place` says."""

    def creator(make: Callable[..., Any], **options: Any) -> Any:
        with tf.device(next_device(place)):
            return make(**options)

    with tf.variable_creator_scope(creator):
        yield


def raw(variable: Any) -> Any:
    """Returns the tf.Variable inside a Keras variable."""
    return variable.value if hasattr(variable, "path") else variable


def placement(variables: Iterable[Any]) -> str:
    """Words where variables live, one a line: name, shape, device.

    Args:
        variables: TensorFlow or Keras variables; of a mirrored one all copies are named.
    """
    rows = []
    for variable in variables:
        inside = raw(variable)
        copies = getattr(inside, "values", None) or [inside]
        devices = [short_name(copy.device) if copy.device else "(by soft placement)" for copy in copies]
        name = getattr(variable, "path", None) or inside.name.partition(":")[0]
        rows.append((name, " x ".join(map(str, variable.shape)) or "scalar", ", ".join(devices)))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {where}" for name, shape, where in rows)
