"""Scoped layers under TF-Slim's names: functions that make their variables in the scope where they stand."""

from importlib import import_module
from typing import Any

from zoo.layers.batch_norm import batch_norm
from zoo.layers.conv import conv2d, conv2d_transpose, conv_relu, separable_conv2d
from zoo.layers.core import dropout, flatten, fully_connected, one_hot_encoding, repeat, softmax, stack
from zoo.layers.geometry import output_size
from zoo.layers.initializers import (
    constant_initializer,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    ones_initializer,
    random_normal_initializer,
    random_uniform_initializer,
    truncated_normal_initializer,
    variance_scaling_initializer,
    xavier_initializer,
    zeros_initializer,
)
from zoo.layers.norm import group_norm, layer_norm
from zoo.layers.pooling import avg_pool2d, global_avg_pool, max_pool2d

__all__ = [
    "avg_pool2d",
    "batch_norm",
    "constant_initializer",
    "conv2d",
    "conv2d_transpose",
    "conv_relu",
    "dropout",
    "flatten",
    "fully_connected",
    "global_avg_pool",
    "group_norm",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "layer_norm",
    "max_pool2d",
    "one_hot_encoding",
    "ones_initializer",
    "output_size",
    "random_normal_initializer",
    "random_uniform_initializer",
    "repeat",
    "separable_conv2d",
    "softmax",
    "stack",
    "truncated_normal_initializer",
    "variance_scaling_initializer",
    "xavier_initializer",
    "zeros_initializer",
]


def __getattr__(name: str) -> Any:
    """Also gives the recurrent cells, which live in the next room."""
    rnn = import_module("zoo.rnn") if not name.startswith("_") else None
    if rnn is None or name not in getattr(rnn, "__all__", ()):
        raise AttributeError(f"module 'zoo.layers' has no attribute '{name}'; dir(zoo.layers) lists the layers")
    value = getattr(rnn, name)
    globals()[name] = value
    return value
