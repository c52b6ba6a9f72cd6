"""The memory levels: which gradient a dense block's and a transition's forward pass gets.

All weights go in as tensors, so that their gradients leave through ordinary differentiation: the functions work in a
tape, in ``tf.gradients``, under XLA and in a replica alike. Nothing in here writes to a variable, so computing a part
again changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import tensorflow as tf

from zoo.layers.dense_block_grad import DIFFERENTIABLE, Block, Forward, Layer, Maps
from zoo.layers.dense_pool import Pooled

Gradient = Callable[..., list[tf.Tensor]]


@tf.autograph.experimental.do_not_convert
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
    structure: list[Forward] = []  # of the outputs, filled in by the forward pass

    @tf.custom_gradient
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[list[tf.Tensor], Gradient]:
        layers = [Layer(*weights[i : i + arity]) for i in range(0, len(weights), arity)]
        plain = replace(block, layers=layers)
        forward = plain.forward(x)
        measured = {i: m for i, m in forward.bottleneck_moments.items() if (i, 2) not in block.given}
        outputs = Forward(forward.maps, {}, measured)
        kept = forward if memory == "recompute" else forward._replace(bottlenecks={})
        structure[:] = [outputs]

        def grad(*doutputs: tf.Tensor) -> list[tf.Tensor]:
            dmaps = tf.nest.pack_sequence_as(outputs, doutputs).maps
            dx, dlayers = plain.backward(kept, dmaps.pieces, dmaps.moments)
            return [dx, *_tensors(dlayers)]

        return tf.nest.flatten(outputs), grad

    outputs = run(inputs, *_tensors(block.layers))
    return tf.nest.pack_sequence_as(structure[0], outputs)


@tf.autograph.experimental.do_not_convert
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

    @tf.custom_gradient
    def run(*tensors: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        maps = tf.nest.pack_sequence_as(inputs, tensors[len(weights) :])
        plain = replace(pooled, **dict(zip(("gamma", "beta", "kernel"), tensors[: len(weights)], strict=False)))
        y = plain.forward(maps)

        def grad(dy: tf.Tensor) -> list[tf.Tensor]:
            dpieces, dmoments, dweights = plain.backward(maps, y, dy)
            if pooled.given is not None:  # then the maps' own statistics were not used
                dmoments = tf.nest.map_structure(tf.zeros_like, list(maps.moments))
            return [*dweights, *dpieces, *tf.nest.flatten(dmoments)]

        return y, grad

    return run(*weights, *tf.nest.flatten(inputs))


def _tensors(layers: Sequence[Layer]) -> list[tf.Tensor]:
    return [weight for layer in layers for weight in layer if weight is not None]
