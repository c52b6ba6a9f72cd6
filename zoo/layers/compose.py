"""The same layer several times over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from zoo import scoping


def stack(inputs: tf.Tensor, layer: Callable[..., tf.Tensor], stack_args: Sequence[Any], **kwargs: Any) -> tf.Tensor:
    """Applies a layer once for each entry of a list of arguments.

    `stack(x, fully_connected, [32, 64], scope="fc")` is the layers "fc/fc_1" of 32 units and "fc/fc_2" of 64.

    Args:
      inputs: the first layer's input.
      layer: function (inputs, *args, scope=..., **kwargs) -> outputs.
      stack_args: list or tuple with one entry a layer: an argument, or a list or tuple of arguments.
      **kwargs: passed to every layer; `scope` names the stack (default "Stack", its layers after the function).

    Returns:
      The last layer's output.

    Raises:
      ValueError: stack_args is neither list nor tuple.
    """
    if not isinstance(stack_args, list | tuple):
        raise ValueError(f"stack takes a list or tuple with one entry a layer, got {type(stack_args).__name__}")
    scope = kwargs.pop("scope", None)
    with scoping.variable_scope(scope, "Stack"):
        name = _name_of(scope, layer, "stack")
        for i, entry in enumerate(stack_args, 1):
            args = entry if isinstance(entry, list | tuple) else [entry]
            inputs = layer(inputs, *args, scope=f"{name}_{i}", **kwargs)
        return inputs


def repeat(
    inputs: tf.Tensor, repetitions: int, layer: Callable[..., tf.Tensor], *args: Any, **kwargs: Any
) -> tf.Tensor:
    """Applies a layer several times with the same arguments.

    `repeat(x, 2, conv2d, 64, [3, 3], scope="conv1")` is the layers "conv1/conv1_1" and "conv1/conv1_2".

    Args:
      inputs: the first layer's input.
      repetitions: number of layers, 0 or more.
      layer: function (inputs, *args, scope=..., **kwargs) -> outputs.
      *args: passed to every layer.
      **kwargs: passed to every layer; `scope` names the group (default "Repeat", its layers after the function).

    Returns:
      The last layer's output.

    Raises:
      ValueError: repetitions is not a number of 0 or more.
    """
    if type(repetitions) is not int or repetitions < 0:
        raise ValueError(f"repeat takes a number of repetitions of 0 or more, got {repetitions!r}")
    scope = kwargs.pop("scope", None)
    with scoping.variable_scope(scope, "Repeat"):
        name = _name_of(scope, layer, "repeat")
        for i in range(1, repetitions + 1):
            inputs = layer(inputs, *args, scope=f"{name}_{i}", **kwargs)
        return inputs


def _name_of(scope: Any, layer: Any, default: str) -> str:
    """What the layers are numbered after: the scope's own name, or the function's, also behind functools.partial."""
    if scope is not None:
        return str(getattr(scope, "name", scope)).rpartition("/")[2]
    return str(getattr(layer, "__name__", None) or getattr(getattr(layer, "func", None), "__name__", default))
