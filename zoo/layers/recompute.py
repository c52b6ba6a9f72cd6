"""What the backward pass computes again, so that training does not keep it, and what holds it back until then.

A convolution's gradient needs its input, and ReLU's its output. Behind a batch norm both follow from what the batch
norm keeps anyway: y = max(0, gamma (x - mean) / sqrt(variance + epsilon) + beta). Nothing here writes to a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_MARK = "_zoo_recompute"
Compute = Callable[[tf.Tensor], tf.Tensor]


def after(token: Sequence[tf.Tensor], *tensors: tf.Tensor) -> list[tf.Tensor]:
    """Returns the tensors, to be used only once those of ``token`` are there.

    A graph has no other reason to wait: what is computed again could start at once, or be merged with the forward pass,
    and all that was dropped would be in memory again. A control dependency costs nothing, but XLA ignores it; so
    vectors also get a zero added that comes from the token. No optimiser can know that it is one, because NaN is not
    equal to itself. Hang what XLA is to wait for on a vector.
    """
    if not token or tf.executing_eagerly():
        return list(tensors)
    # identities, because tf.vectorized_map converts all outputs of what a control dependency comes from
    with tf.control_dependencies([tf.identity(t) for t in token]):
        held = [tf.identity(t) for t in tensors]
    first = tf.stop_gradient(tf.reshape(token[-1], [-1])[0])
    zero = tf.where(tf.equal(first, first), tf.zeros_like(first), first)
    return [t + tf.cast(zero, t.dtype) if t.shape.rank == 1 else t for t in held]


def mark(tensor: tf.Tensor, compute: Compute) -> None:
    """Says how a tensor is computed again: ``compute(gradient)`` gives it after that gradient, derivatives too."""
    setattr(tensor, _MARK, compute)


def how(tensor: tf.Tensor) -> Compute | None:
    """Returns how a tensor is computed again; None for one that is kept."""
    return getattr(tensor, _MARK, None)


def cast(inputs: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The tensor in another type; that of a marked one is marked."""
    outputs, compute = tf.cast(inputs, dtype), how(inputs)
    if compute is not None:
        mark(outputs, lambda gradient: tf.cast(compute(gradient), dtype))
    return outputs


def relu(inputs: tf.Tensor) -> tf.Tensor:
    """ReLU of a marked tensor; its output is marked, and not kept for its gradient."""
    compute_input = how(inputs)
    held: list[tf.Tensor] = []

    def compute(gradient: tf.Tensor) -> tf.Tensor:
        if tf.executing_eagerly():
            return tf.nn.relu(compute_input(gradient))  # type: ignore[misc]
        if not held or held[0].graph is not gradient.graph:  # its users share one
            held[:] = [tf.nn.relu(compute_input(gradient))]  # type: ignore[misc]
        return held[0]

    @tf.custom_gradient
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
        return tf.nn.relu(x), lambda dy: tf.raw_ops.ReluGrad(gradients=dy, features=compute(dy))

    outputs = run(inputs)
    outputs.set_shape(inputs.shape)
    mark(outputs, compute)
    return outputs


def conv2d(inputs: tf.Tensor, weights: tf.Tensor | tf.Variable, **how_to: Any) -> tf.Tensor:
    """A convolution; a marked tensor is computed again for the gradient of the kernel."""
    compute = how(inputs)
    if compute is None:
        return tf.raw_ops.Conv2D(input=inputs, filter=weights, **how_to)

    @tf.custom_gradient
    def run(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
        size = tf.shape(x)

        def grad(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            dx = tf.raw_ops.Conv2DBackpropInput(input_sizes=size, filter=kernel, out_backprop=dy, **how_to)
            dkernel = tf.raw_ops.Conv2DBackpropFilter(
                input=compute(dy),
                filter_sizes=kernel.shape,
                out_backprop=dy,
                **how_to,
            )
            return dx, dkernel

        return tf.raw_ops.Conv2D(input=x, filter=kernel, **how_to), grad

    return run(inputs, tf.convert_to_tensor(weights))
