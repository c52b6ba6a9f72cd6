"""The blocks of the Inception networks: tables of parallel branches, and the function that runs them under scopes."""

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from zoo import layers
from zoo.layers.recompute import after, mark
from zoo.scoping import add_arg_scope, arg_scope, variable_scope


class Conv(NamedTuple):
    """A convolution of a table; the kernel is what the name ends in (``..._1x7``) unless it is given."""

    scope: str
    depth: int
    kernel: tuple[int, int] | None = None
    stride: int = 1
    padding: str = "SAME"


class Pool(NamedTuple):
    """A 3 x 3 pooling of a table: "avg" keeps the size, "max" halves it."""

    kind: str
    scope: str


class Fork(NamedTuple):
    """Convolutions of one input side by side, concatenated."""

    convs: tuple[Conv, ...]


class Mixed(NamedTuple):
    """A block: branches of one input side by side, concatenated; branch i lives in the scope ``Branch_i``."""

    scope: str
    branches: tuple[tuple[Conv | Pool | Fork, ...], ...]


def block_35(scope: str, pool_depth: int, one: str = "Conv2d_0a_1x1", five: str = "Conv2d_0b_5x5") -> Mixed:
    """The block on the 35 x 35 grid (figure 5); ``one`` and ``five`` name the second branch's convolutions."""
    branches = (
        (Conv("Conv2d_0a_1x1", 64),),
        (Conv(one, 48), Conv(five, 64)),
        (Conv("Conv2d_0a_1x1", 64), Conv("Conv2d_0b_3x3", 96), Conv("Conv2d_0c_3x3", 96)),
        (Pool("avg", "AvgPool_0a_3x3"), Conv("Conv2d_0b_1x1", pool_depth)),
    )
    return Mixed(scope, branches)


def block_17(scope: str, depth: int) -> Mixed:
    """The block on the 17 x 17 grid: 7 x 7 kernels as 1 x 7 and 7 x 1 (figure 6)."""
    branches = (
        (Conv("Conv2d_0a_1x1", 192),),
        (Conv("Conv2d_0a_1x1", depth), Conv("Conv2d_0b_1x7", depth), Conv("Conv2d_0c_7x1", 192)),
        (
            Conv("Conv2d_0a_1x1", depth),
            Conv("Conv2d_0b_7x1", depth),
            Conv("Conv2d_0c_1x7", depth),
            Conv("Conv2d_0d_7x1", depth),
            Conv("Conv2d_0e_1x7", 192),
        ),
        (Pool("avg", "AvgPool_0a_3x3"), Conv("Conv2d_0b_1x1", 192)),
    )
    return Mixed(scope, branches)


def block_8(scope: str, fork: str) -> Mixed:
    """The block on the 8 x 8 grid, whose branches fork (figure 7); ``fork`` names the second 3 x 1 convolution."""
    branches = (
        (Conv("Conv2d_0a_1x1", 320),),
        (Conv("Conv2d_0a_1x1", 384), Fork((Conv("Conv2d_0b_1x3", 384), Conv(fork, 384)))),
        (
            Conv("Conv2d_0a_1x1", 448),
            Conv("Conv2d_0b_3x3", 384),
            Fork((Conv("Conv2d_0c_1x3", 384), Conv("Conv2d_0d_3x1", 384))),
        ),
        (Pool("avg", "AvgPool_0a_3x3"), Conv("Conv2d_0b_1x1", 192)),
    )
    return Mixed(scope, branches)


@add_arg_scope
def average_3x3(
    net: tf.Tensor, *, count_include_pad: bool = False, recompute: bool = False, scope: str | None = None
) -> tf.Tensor:
    """Averages 3 x 3 neighbours at stride 1, keeping the size.

    Args:
        net: [N, H, W, C].
        count_include_pad: False divides by the pixels inside the image (TensorFlow); True by 9 (torchvision).
        recompute: A convolution behind it averages again for its gradient and does not keep the averages.
        scope: Name of the ops.

    Returns:
        [N, H, W, C].
    """

    def average(x: tf.Tensor) -> tf.Tensor:
        if not count_include_pad:
            return layers.avg_pool2d(x, [3, 3], stride=1, padding="SAME", scope=scope)
        padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return layers.avg_pool2d(padded, [3, 3], stride=1, padding="VALID", scope=scope)

    outputs = average(net)
    if recompute:
        mark(outputs, lambda gradient: average(*after([gradient], net)))
    return outputs


def apply_stage(
    net: tf.Tensor, stage: Conv | Pool | Fork | Mixed, widen: Callable[[int], int] = int, relu_last: bool = False
) -> tf.Tensor:
    """Applies one entry of a table under its variable scope.

    Args:
        net: [N, H, W, C].
        stage: A convolution, a pooling, a fork, or a block (``Mixed``) of parallel branches.
        widen: From a table's depth to the depth that is used.
        relu_last: Makes a block's last ReLUs one, behind the concatenation: the same numbers, and in training each
            branch's output need not be kept beside the concatenation of all.

    Returns:
        [N, H', W', C']; a fork or block concatenates its outputs along the channels.
    """
    match stage:
        case Conv(scope, depth, kernel, stride, padding):
            size = kernel or [int(n) for n in re.findall(r"\d+", scope.rpartition("_")[2])]
            return layers.conv2d(net, widen(depth), size, stride=stride, padding=padding, scope=scope)
        case Pool("max", scope):
            return layers.max_pool2d(net, [3, 3], stride=2, padding="VALID", scope=scope)
        case Pool(_, scope):
            return average_3x3(net, scope=scope)
        case Fork(convs):
            return tf.concat([apply_stage(net, conv, widen) for conv in convs], 3)
    last = {"activation_fn": None} if relu_last else {}
    with variable_scope(stage.scope):
        outputs = []
        for i, branch in enumerate(stage.branches):
            with variable_scope(f"Branch_{i}"):
                inside = functools.reduce(lambda x, step: apply_stage(x, step, widen), branch[:-1], net)
                with arg_scope([layers.conv2d], **last):
                    outputs.append(apply_stage(inside, branch[-1], widen))
        joined = tf.concat(outputs, 3)
        return tf.nn.relu(joined) if relu_last else joined
