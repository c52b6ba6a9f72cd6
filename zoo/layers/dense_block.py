"""Scoped layers of a DenseNet: the dense block in linear memory, and norm, ReLU and pooling between the blocks.

G. Huang, Z. Liu, L. van der Maaten and K. Weinberger, "Densely Connected Convolutional Networks", arXiv:1608.06993,
section 3; G. Pleiss et al., "Memory-Efficient Implementation of DenseNets", arXiv:1707.06990, for the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from zoo import scoping
from zoo.layers import context, shared_norm
from zoo.layers import moments as moving
from zoo.layers.dense_passes import Block, Layer, Maps, Pooled, joined, run_block, run_pooled
from zoo.layers.initializers import ones_initializer, variance_scaling_initializer, zeros_initializer
from zoo.layers.shared_norm import Moments

MEMORY_LEVELS = ("store", "recompute", "minimal")
PIECE_CHANNELS = 256  # maps are joined to pieces of about this width: long enough for a matrix product


class Unit(NamedTuple):
    """The variables of a batch norm, [C] each, and of the convolution behind it, if there is one.

    ``training`` says whether the norm takes the batch's statistics.
    """

    gamma: tf.Variable
    beta: tf.Variable
    moving_mean: tf.Variable
    moving_variance: tf.Variable
    kernel: tf.Variable | None
    training: bool

    def given(self) -> Moments | None:
        """The moving statistics if the layer normalises by them, else None."""
        if self.training:
            return None
        return tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance)

    def weights(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Scale, offset and kernel."""
        kernel = None if self.kernel is None else tf.convert_to_tensor(self.kernel)
        return tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta), kernel


@scoping.add_arg_scope
def dense_block(
    inputs: tf.Tensor,
    num_layers: int,
    growth_rate: int,
    *,
    bottleneck: int | None = 4,
    decay: float = 0.99,
    epsilon: float = 1e-5,
    dropout_rate: float = 0.0,
    weights_initializer: context.Initializer = variance_scaling_initializer(),  # noqa: B008 - as every layer here
    weights_regularizer: context.Regularizer = None,
    memory: str = "recompute",
    is_training: bool = True,
    scope: str | None = None,
) -> Maps:
    """A dense block: each layer sees all maps before it and adds ``growth_rate`` of its own (equation 2).

    Layer i is batch norm, ReLU, 1 x 1 convolution to ``bottleneck * growth_rate`` maps in ``conv_block{i}/x1``, then
    batch norm, ReLU and 3 x 3 convolution in ``conv_block{i}/x2``; without a bottleneck only a 3 x 3 one in ``x1``.
    The statistics of a map are measured once for all layers that see it.

    Args:
        inputs: [N, H, W, C].
        num_layers: Layers of the block, at least 1.
        growth_rate: Maps that each layer adds, k.
        bottleneck: Width of the 1 x 1 convolution in units of k; None for no bottleneck.
        decay: Part of the moving statistics that a step keeps.
        epsilon: Added to the variances, at least 1e-5 for a GPU.
        dropout_rate: Part of the values dropped after each convolution in training, 0 to below 1.
        weights_initializer: Of the kernels; He's by default.
        weights_regularizer: Of the kernels.
        memory: What training keeps for the backward pass. "store": all that TensorFlow would. "recompute": each map
            once and the bottlenecks' outputs, and the rest is computed again, which is elementwise work. "minimal":
            each map once. The result is the same.
        is_training: Batch statistics and dropout. A layer in a frozen scope takes its moving statistics even so.
        scope: Variable scope.

    Returns:
        The block's maps, [N, H, W, C + num_layers * growth_rate] in pieces, and their statistics.

    Raises:
        ValueError: An option is out of its range, or the channels are unknown.

    Source: section 3.
    """
    inputs = context.float_tensor(inputs, "dense_block")
    channels = _check(inputs, memory, dropout_rate, is_training)
    num_layers = context.integer(num_layers, "num_layers", "dense_block")
    growth_rate = context.integer(growth_rate, "growth_rate", "dense_block")
    width = context.integer(bottleneck, "bottleneck", "dense_block") * growth_rate if bottleneck else None
    how = weights_initializer, weights_regularizer
    units: dict[tuple[int, int], Unit] = {}  # by layer and convolution (1 or 2) in it
    with scoping.variable_scope(scope, "dense_block", [inputs]):
        for index in range(num_layers):
            with scoping.variable_scope(f"conv_block{index + 1}"):
                seen = channels + index * growth_rate
                shape = [1, 1, seen, width] if width else [3, 3, seen, growth_rate]
                with scoping.variable_scope("x1"):
                    units[index, 1] = _unit(inputs, seen, is_training, shape, *how)
                if width:
                    with scoping.variable_scope("x2"):
                        units[index, 2] = _unit(inputs, width, is_training, [3, 3, width, growth_rate], *how)
    weights = [
        [w for which in (1, 2) if (i, which) in units for w in units[i, which].weights()] for i in range(num_layers)
    ]
    rate = dropout_rate if is_training else 0.0
    block = Block(
        [Layer(*own) for own in weights],
        growth_rate,
        group=max(1, PIECE_CHANNELS // growth_rate),
        epsilon=epsilon,
        dropout_rate=rate,
        seed=scoping.random_seed() if rate else None,
        measured=is_training,
        given={which: given for which, unit in units.items() if (given := unit.given()) is not None},
    )
    forward = run_block(block, inputs, memory)
    if is_training:
        maps_moments = joined(forward.maps.moments)
        for (index, which), unit in units.items():
            if not unit.training:
                continue
            if which == 1:
                _update(unit, [v[: channels + index * growth_rate] for v in maps_moments], inputs, decay)
            else:
                _update(unit, forward.bottleneck_moments[index], inputs, decay)
    return forward.maps


@scoping.add_arg_scope
def norm_pool(
    inputs: tf.Tensor | Maps,
    num_outputs: int | None = None,
    *,
    pool: str = "AVG",
    padding: str | Sequence[Sequence[int]] = "VALID",
    decay: float = 0.99,
    epsilon: float = 1e-5,
    dropout_rate: float = 0.0,
    weights_initializer: context.Initializer = variance_scaling_initializer(),  # noqa: B008
    weights_regularizer: context.Regularizer = None,
    memory: str = "recompute",
    is_training: bool = True,
    scope: str | None = None,
) -> tf.Tensor:
    """Batch norm and ReLU, then if ``num_outputs`` is given a 1 x 1 convolution, then pooling.

    Without dropout the average pooling comes before the convolution, which is the same and cheaper.

    Args:
        inputs: Map [N, H, W, C] or a block's maps.
        num_outputs: Channels of the convolution, in ``Conv``; None for no convolution.
        pool: "AVG" (2 x 2, stride 2) or "MAX" (3 x 3, stride 2; without a convolution only).
        padding: "VALID", "SAME", or pairs for the four axes (with "MAX").
        decay: Part of the moving statistics that a step keeps.
        epsilon: Added to the variances.
        dropout_rate: Part of the values dropped after the convolution in training.
        weights_initializer: Of the kernel; He's by default.
        weights_regularizer: Of the kernel.
        memory: "store" keeps what TensorFlow would; the others keep the inputs and compute the rest again.
        is_training: Batch statistics and dropout.
        scope: Variable scope.

    Returns:
        [N, H', W', num_outputs or C].

    Raises:
        ValueError: An option is out of its range.

    Source: section 3, "Pooling layers".
    """
    if pool not in ("AVG", "MAX") or (pool == "MAX" and num_outputs):
        raise ValueError(f"norm_pool: pool is 'AVG', or 'MAX' without num_outputs; got {pool!r}, {num_outputs}.")
    if isinstance(inputs, tf.Tensor):
        inputs = Maps((inputs,), (shared_norm.differentiable_moments(inputs),) if is_training else ())
    first = inputs.pieces[0]
    _check(first, memory, dropout_rate, is_training)
    channels = sum(int(piece.shape[-1]) for piece in inputs.pieces)
    with scoping.variable_scope(scope, "norm_pool", list(inputs.pieces)):
        shape = [1, 1, channels, num_outputs] if num_outputs else None
        unit = _unit(first, channels, is_training, shape, weights_initializer, weights_regularizer)
    if is_training:
        _update(unit, joined(inputs.moments), first, decay)
    rate = dropout_rate if is_training else 0.0
    pooled = Pooled(
        *unit.weights(),
        pool=pool,
        padding=padding,
        epsilon=epsilon,
        dropout_rate=rate,
        seed=scoping.random_seed() if rate else None,
        given=unit.given(),
    )
    return run_pooled(pooled, inputs, memory)


@scoping.add_arg_scope
def norm_relu(
    maps: Maps, *, decay: float = 0.99, epsilon: float = 1e-5, is_training: bool = True, scope: str | None = None
) -> tf.Tensor:
    """Batch norm and ReLU of a block's maps, as one map.

    Args:
        maps: A block's maps.
        decay: Part of the moving statistics that a step keeps.
        epsilon: Added to the variances.
        is_training: Batch statistics.
        scope: Variable scope.

    Returns:
        [N, H, W, C].
    """
    with scoping.variable_scope(scope, "norm_relu", list(maps.pieces)):
        unit = _unit(maps.pieces[0], sum(int(piece.shape[-1]) for piece in maps.pieces), is_training)
    if is_training:
        _update(unit, joined(maps.moments), maps.pieces[0], decay)
    statistics = unit.given() or joined(maps.moments)
    x, (gamma, beta, _) = tf.concat(maps.pieces, -1), unit.weights()
    return tf.nn.relu(shared_norm.differentiable_normalise(x, gamma, beta, *statistics, epsilon))


def _check(inputs: tf.Tensor, memory: str, dropout_rate: float, is_training: bool | tf.Tensor) -> int:
    if memory not in MEMORY_LEVELS:
        raise ValueError(f"memory is one of {', '.join(MEMORY_LEVELS)}; got {memory!r}.")
    if not 0 <= dropout_rate < 1:
        raise ValueError(f"dropout_rate is at least 0 and below 1; got {dropout_rate}.")
    if context.static_bool(is_training) is None:
        raise ValueError("A dense block needs to know is_training when it is built; got a tensor: build it twice.")
    return context.channels_of(context.image_shape(inputs, "dense_block"), 3, "dense_block")


def _unit(
    inputs: tf.Tensor,
    channels: int,
    is_training: bool,
    kernel_shape: list[int] | None = None,
    initializer: context.Initializer = None,
    regularizer: context.Regularizer = None,
) -> Unit:
    """Gets or makes the variables of ``BatchNorm`` and, given a shape, ``Conv`` in the current scope."""
    dtype = shared_norm.statistics_dtype(inputs)
    no_penalty = scoping.no_regularizer if scoping.get_variable_scope().regularizer is not None else None

    def vector(name: str, initial: context.Initializer, trainable: bool) -> tf.Variable:
        return context.variable(f"BatchNorm/{name}", [channels], inputs, initial, no_penalty, None, trainable, dtype)

    return Unit(
        vector("gamma", ones_initializer(), True),
        vector("beta", zeros_initializer(), True),
        vector("moving_mean", zeros_initializer(), False),
        vector("moving_variance", ones_initializer(), False),
        kernel_shape and context.variable("Conv/weights", kernel_shape, inputs, initializer, regularizer),
        bool(is_training) and not scoping.scope_is_frozen("BatchNorm"),
    )


def _update(unit: Unit, measured: Sequence[tf.Tensor], inputs: tf.Tensor, decay: float) -> None:
    """Moves a norm's moving statistics: at once, or in a TF1 graph through UPDATE_OPS; a frozen norm's stay."""
    moving.remember_decay(unit.moving_mean, decay)
    if not unit.training:
        return
    count = shared_norm.values_measured(inputs)
    mean, variance = (tf.stop_gradient(v) for v in measured)
    variance *= count / tf.maximum(count - 1.0, 1.0)  # unbiased, as TF-Slim and PyTorch keep it
    step = moving.Step(decay, False, None)
    for update in moving.update(unit.moving_mean, unit.moving_variance, mean, variance, step, True):
        if scoping.in_graph():
            scoping.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
