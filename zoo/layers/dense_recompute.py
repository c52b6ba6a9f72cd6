"""The memory levels: which gradient a dense block's and a transition's forward pass gets.

All weights go in as tensors, so that their gradients leave through ordinary differentiation: the functions work in a
tape, in ``tf.gradients``, under XLA and in a replica alike. Nothing in here writes to a variable, so computing a part
again changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

import tensorflow as tf

from zoo.layers.dense_block_grad import COMPOSED, DIFFERENTIABLE, PLAIN, Block, Forward, Layer, Maps, Primitives
from zoo.layers.dense_pool import Pooled
from zoo.layers.gradients import with_gradient

Tensors = Sequence[tf.Tensor]


def run_block(block: Block, inputs: tf.Tensor, memory: str) -> Forward:
    """Computes a block's maps.

    Args:
        block: The block, with plain primitives.
        inputs: [N, H, W, C].
        memory: "store", "recompute" or "minimal".

    Returns:
        The maps and the statistics of the bottlenecks by layer.
    """
    if memory == "store":
        return replace(block, primitives=DIFFERENTIABLE).forward(inputs)
    arity = sum(weight is not None for weight in block.layers[0])

    def of(weights: Tensors, primitives: Primitives = PLAIN) -> Block:
        layers = [Layer(*weights[i : i + arity]) for i in range(0, len(weights), arity)]
        return replace(block, layers=layers, primitives=primitives)

    def without_bottlenecks(found: Forward) -> Forward:
        measured = {i: m for i, m in found.bottleneck_moments.items() if (i, 2) not in block.given}
        return Forward(found.maps, {}, measured)

    structure: list[Forward] = []  # of the outputs, filled in by the forward pass

    def forward(x: tf.Tensor, *weights: tf.Tensor) -> tuple[Forward, Forward]:
        found = of(weights).forward(x)
        structure[:] = [without_bottlenecks(found)]
        return structure[0], found if memory == "recompute" else found._replace(bottlenecks={})

    def backward(tensors: Tensors, kept: Forward, doutputs: Tensors) -> Tensors:
        dmaps = tf.nest.pack_sequence_as(structure[0], doutputs).maps
        dx, dlayers = of(tensors[1:]).backward(kept, dmaps.pieces, dmaps.moments)
        return [dx, *_tensors(dlayers)]

    def plain(x: tf.Tensor, *weights: tf.Tensor) -> Forward:
        return without_bottlenecks(of(weights, COMPOSED).forward(x))

    return with_gradient(forward, backward, plain, inputs, *_tensors(block.layers))


def run_pooled(pooled: Pooled, inputs: Maps, memory: str) -> tf.Tensor:
    """Computes norm, ReLU, convolution and pooling of maps.

    Args:
        pooled: The operation, with plain primitives.
        inputs: The maps and their statistics.
        memory: "store", or one of the levels that compute again.

    Returns:
        [N, H', W', D].
    """
    if memory == "store":
        return replace(pooled, primitives=DIFFERENTIABLE).forward(inputs)
    weights = [w for w in (pooled.gamma, pooled.beta, pooled.kernel) if w is not None]

    def of(tensors: Tensors, primitives: Primitives = PLAIN) -> tuple[Pooled, Maps]:
        given = dict(zip(("gamma", "beta", "kernel"), tensors[: len(weights)], strict=False))  # there may be no kernel
        maps = tf.nest.pack_sequence_as(inputs, tensors[len(weights) :])
        return replace(pooled, primitives=primitives, **given), maps

    def forward(*tensors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        plain_primitives, maps = of(tensors)
        y = plain_primitives.forward(maps)
        return y, y

    def backward(tensors: Tensors, y: tf.Tensor, doutputs: Tensors) -> Tensors:
        plain_primitives, maps = of(tensors)
        dpieces, dmoments, dweights = plain_primitives.backward(maps, y, doutputs[0])
        if pooled.given is not None:  # then the maps' own statistics were not used
            dmoments = tf.nest.map_structure(tf.zeros_like, list(maps.moments))
        return [*dweights, *dpieces, *tf.nest.flatten(dmoments)]

    def plain(*tensors: tf.Tensor) -> tf.Tensor:
        composed, maps = of(tensors, COMPOSED)
        return composed.forward(maps)

    return with_gradient(forward, backward, plain, *weights, *tf.nest.flatten(inputs))


def _tensors(layers: Sequence[Layer]) -> list[tf.Tensor]:
    return [weight for layer in layers for weight in layer if weight is not None]
