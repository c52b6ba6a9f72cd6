"""Gradients written by hand that stay exact when they are differentiated again.

A hand-written gradient runs kernels and keeps values that TensorFlow cannot differentiate, or not rightly. So it has a
gradient of its own: that of the first derivative of the same function in plain operations. A training step never
runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from zoo._compat import could_possibly_record, in_forward_mode, stop_recording

Tensors = Sequence[tf.Tensor]
Forward = Callable[..., tuple[Any, Any]]
Backward = Callable[[Tensors, Any, Tensors], Tensors]


@tf.autograph.experimental.do_not_convert
def with_gradient(forward: Forward, backward: Backward, plain: Callable[..., Any], *tensors: tf.Tensor) -> Any:
    """Runs a function by a hand-written first derivative; all others, forward mode too, are those of ``plain``.

    Args:
        forward: ``forward(*tensors)`` gives the outputs and what is kept for ``backward``, two structures of tensors.
        backward: ``backward(tensors, kept, doutputs)`` gives the gradients of the tensors, one each, from those of the
            outputs in a flat list.
        plain: ``plain(*tensors)`` gives the outputs in operations that TensorFlow differentiates to any order.
        tensors: Floating-point tensors. What the functions use besides them gets no gradient.

    Returns:
        The outputs.
    """
    if _unrecorded():
        return forward(*tensors)[0]
    if in_forward_mode(tensors):  # an accumulator takes no gradient of a gradient
        return plain(*tensors)

    @tf.custom_gradient
    def run(*given: tf.Tensor) -> tuple[Any, Callable[..., Tensors]]:
        with stop_recording():  # what runs inside is nobody's business, and would be kept for it
            outputs, kept = forward(*given)
        return outputs, lambda *doutputs: _first_derivative(backward, plain, given, kept, doutputs)

    return run(*tensors)


def _unrecorded() -> bool:
    """Whether nobody can ask for the gradient of what is computed now; in a graph anybody may, later."""
    return tf.executing_eagerly() and not could_possibly_record()


def _first_derivative(
    backward: Backward, plain: Callable[..., Any], tensors: Tensors, kept: Any, doutputs: Tensors
) -> Tensors:
    if _unrecorded():
        return backward(tensors, kept, doutputs)
    if in_forward_mode([*tensors, *doutputs]):
        return _plain_derivative(plain, tensors, doutputs)
    held = tf.nest.flatten(kept)
    count = len(tensors)

    @tf.custom_gradient
    def run(*given: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor | None]]]:
        inputs, upstream = given[:count], given[count + len(held) :]
        with stop_recording():
            found = backward(inputs, tf.nest.pack_sequence_as(kept, given[count : count + len(held)]), upstream)

        def second_derivative(*towards: tf.Tensor) -> list[tf.Tensor | None]:
            both = _gradients(
                lambda *sources: _plain_derivative(plain, sources[:count], sources[count:]),
                [*inputs, *upstream],
                towards,
            )
            return [*both[:count], *[None] * len(held), *both[count:]]

        return list(found), second_derivative

    given = [*tensors, *held, *doutputs]
    # identities, so that the second derivative takes them from this graph if the forward pass was another's
    return run(*(given if tf.executing_eagerly() else map(tf.identity, given)))


def _plain_derivative(plain: Callable[..., Any], tensors: Tensors, doutputs: Tensors) -> list[tf.Tensor]:
    return _gradients(lambda *given: tf.nest.flatten(plain(*given)), tensors, doutputs)


def _gradients(function: Callable[..., list[tf.Tensor]], tensors: Tensors, doutputs: Tensors) -> list[tf.Tensor]:
    """Returns the gradients of a function's outputs for its tensors, zeros where nothing connects them."""
    if tf.executing_eagerly():
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = function(*tensors)
        return tape.gradient(outputs, list(tensors), list(doutputs), unconnected_gradients="zero")
    # not a tape, which records nothing while a function is transposed for forward mode
    outputs = function(*tensors)
    return tf.gradients(outputs, list(tensors), list(doutputs), unconnected_gradients="zero")
