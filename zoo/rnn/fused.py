"""The fast path of an LSTM over a sequence: one product for all inputs, one for all weight gradients.

Forward: ``Z_x = X W_x + b`` for every step at once; only ``h W_h`` is left for the loop. Backward: the loop carries
``dc`` and ``dh`` back and leaves ``dZ``; then ``dK = [X, H]^T dZ``, ``db = sum dZ`` and ``dX = dZ W_x^T`` are one
product each. Six widths a step are kept (four gates, c, output): memory is linear in the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import tensorflow as tf

from zoo.rnn.checks import dim

UNROLL_LIMIT: Final = 64  # longer (or unknown) sequences run in a while loop

Columns: TypeAlias = Any  # one value a step: a list of tensors when unrolled, else a TensorArray (or [time, ...])
Step: TypeAlias = Callable[..., tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]]


def lstm(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    c: tf.Tensor,
    h: tf.Tensor,
    forget_bias: float | tf.Tensor,
    mask: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Runs one LSTM layer over a sequence.

    Args:
      inputs: [time, batch, width], finite also past the sequences' ends.
      kernel: [width + units, 4 units], columns i, j, f, o.
      bias: [4 units].
      c: [batch, units], the initial cell.
      h: [batch, units], the initial output.
      forget_bias: added to the forget gate.
      mask: bool [time, batch, 1], True inside the sequences; None when every step counts.

    Returns:
      Outputs [time, batch, units] (zero past the ends), and `c` and `h` at the ends. All in the inputs' dtype; with
      half precision the products are in half and the gates and `c` in float32.
    """

    @tf.custom_gradient
    def run(
        inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, c: tf.Tensor, h: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], Callable[..., tuple[tf.Tensor, ...]]]:
        return _run(inputs, kernel, bias + _shift(bias, forget_bias), c, h, mask)

    outputs, c, h = run(inputs, kernel, bias, c, h)
    outputs.set_shape([dim(inputs, 0), dim(inputs, 1), dim(kernel, 1) // 4])
    return outputs, c, h


def _run(
    inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, c: tf.Tensor, h: tf.Tensor, mask: tf.Tensor | None
) -> tuple[tuple[tf.Tensor, ...], Callable[..., tuple[tf.Tensor, ...]]]:
    """The layer with its whole bias: outputs and last state, and the function of their gradients."""
    width, units = int(dim(inputs, -1)), int(dim(kernel, 1)) // 4
    steps = dim(inputs, 0)
    unroll = steps is not None and (steps <= UNROLL_LIMIT or tf.executing_eagerly())
    low = inputs.dtype
    high = tf.float32 if low.size < 4 else low
    marks = [] if mask is None else [mask]
    flat, w_x, w_h = tf.reshape(inputs, [-1, width]), kernel[:width], kernel[width:]
    z_x = tf.reshape(tf.matmul(flat, w_x) + bias, tf.concat([tf.shape(inputs)[:2], [4 * units]], 0))
    z_x.set_shape([steps, dim(inputs, 1), 4 * units])
    specs = [(low, units), *[(high, units)] * 5]
    (last_c, last_h), kept = scan(_forward(w_h, high), (tf.cast(c, high), h), [z_x, *marks], specs, unroll)
    outputs, gates = stacked(kept[0]), kept[1:]
    # A SavedModel keeps the gradient as a function of its own, which can take tensors but no TensorArrays; where
    # nobody asks for them, as in training, TensorFlow drops these copies.
    graph = tf.compat.v1.get_default_graph()
    as_tensors = gates if unroll else [stacked(column) for column in gates]

    def gradient(d_outputs: tf.Tensor, d_c: tf.Tensor, d_h: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # Turned once, because a product with few rows is slower on a transposed matrix; without ensure_shape
        # TensorFlow's optimizer puts the transpose back into the products.
        turned = tf.ensure_shape(tf.transpose(w_h), [4 * units, units])
        same_graph = tf.compat.v1.get_default_graph() is graph
        columns = [d_outputs, *(gates if same_graph else as_tensors), *marks]
        carry = (tf.cast(d_c, high), d_h)
        (d_c, d_h), (d_z,) = scan(_backward(turned, high), carry, columns, [(low, 4 * units)], unroll, reverse=True)
        d_z = tf.reshape(joined(d_z), [-1, 4 * units])
        # past the end d_z is 0, so that the outputs, which are 0 there, serve for h
        h_before = tf.reshape(tf.concat([h[None], outputs[:-1]], 0), [-1, units])
        d_kernel = tf.matmul(tf.concat([flat, h_before], axis=1), d_z, transpose_a=True)
        d_inputs = tf.reshape(tf.matmul(d_z, w_x, transpose_b=True), tf.shape(inputs))
        return d_inputs, d_kernel, tf.reduce_sum(d_z, 0), tf.cast(d_c, low), d_h

    return (outputs, tf.cast(last_c, low), last_h), gradient


def _shift(bias: tf.Tensor, forget_bias: float | tf.Tensor) -> tf.Tensor:
    """The forget bias at its place in [4 units]."""
    units, dtype = int(dim(bias, 0)) // 4, bias.dtype
    forget = tf.fill([units], tf.cast(forget_bias, dtype))
    return tf.concat([tf.zeros([2 * units], dtype), forget, tf.zeros([units], dtype)], 0)


def _forward(w_h: tf.Tensor, high: tf.DType) -> Step:
    """One step: from (c, h) and the inputs' share of the gates to (c', h'), the output and what the gradient needs."""

    def step(carry: tuple[tf.Tensor, ...], z: tf.Tensor, *inside: tf.Tensor) -> Any:
        c, h = carry
        low = z.dtype
        z = tf.cast(z + tf.matmul(h, w_h), high)
        i, j, f, o = tf.split(z, 4, axis=1)
        i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f), tf.sigmoid(o)
        new_c = c * f + i * j
        new_h = output = tf.cast(o * tf.tanh(new_c), low)
        if inside:
            new_c, new_h = tf.where(inside[0], new_c, c), tf.where(inside[0], output, h)
            output = tf.where(inside[0], output, tf.zeros([], low))
        return (new_c, new_h), (output, i, j, f, o, c)

    return step


def _backward(turned: tf.Tensor, high: tf.DType) -> Step:
    """One step back: from the gradients of (c', h') and of the output to those of (c, h), and of the gates' sums."""

    def step(carry: tuple[tf.Tensor, ...], d_out: tf.Tensor, *rest: tf.Tensor) -> Any:
        d_c, d_h = carry
        i, j, f, o, c, *inside = rest
        tanh_c = tf.tanh(c * f + i * j)
        d_new_h = tf.cast(d_h + d_out, high)
        d_new_c = d_c
        if inside:
            d_new_h = tf.where(inside[0], d_new_h, tf.zeros([], high))
            d_new_c = tf.where(inside[0], d_c, tf.zeros([], high))
        d_new_c += tf.raw_ops.TanhGrad(y=tanh_c, dy=d_new_h * o)
        gates = [
            tf.raw_ops.SigmoidGrad(y=i, dy=d_new_c * j),
            tf.raw_ops.TanhGrad(y=j, dy=d_new_c * i),
            tf.raw_ops.SigmoidGrad(y=f, dy=d_new_c * c),
            tf.raw_ops.SigmoidGrad(y=o, dy=d_new_h * tanh_c),
        ]
        d_z = tf.cast(tf.concat(gates, axis=1), turned.dtype)
        before_c, before_h = d_new_c * f, tf.matmul(d_z, turned)
        if inside:  # past the end the state was copied, and so is its gradient
            before_c, before_h = tf.where(inside[0], before_c, d_c), tf.where(inside[0], before_h, d_h)
        return (before_c, before_h), (d_z,)

    return step


def stacked(columns: Columns) -> tf.Tensor:
    """Returns the steps as one tensor [time, ...]."""
    return tf.stack(columns) if isinstance(columns, list) else columns.stack()


def joined(columns: Columns) -> tf.Tensor:
    """Returns the steps one below the other: [time x batch, ...], or [time, batch, ...] from a loop."""
    return tf.concat(columns, 0) if isinstance(columns, list) else columns.stack()


def scan(
    step: Step,
    carry: tuple[tf.Tensor, ...],
    columns: list[Columns],
    specs: list[tuple[tf.DType, int]],
    unroll: bool,
    reverse: bool = False,
) -> tuple[Any, list[Columns]]:
    """Runs ``carry, values = step(carry, *column values of that step)`` over all steps, or back over them.

    `specs` are dtype and width of each value; `unroll` writes the steps out in the graph, else a while loop runs them.
    Returns the last carry, and the values as columns in the order of time.
    """
    if unroll:
        return _unrolled(step, carry, columns, reverse)
    total = tf.shape(columns[0])[0]  # the first is a tensor
    rows = dim(carry[0], 0)
    arrays = [
        tf.TensorArray(x.dtype, total, element_shape=x.shape[1:]).unstack(x) if tf.is_tensor(x) else x for x in columns
    ]
    made = [tf.TensorArray(dtype, total, element_shape=[rows, width]) for dtype, width in specs]

    def body(n: tf.Tensor, carry: Any, made: list[Columns]) -> tuple[tf.Tensor, Any, list[Columns]]:
        t = total - 1 - n if reverse else n
        carry, values = step(carry, *(a.read(t) for a in arrays))
        return n + 1, carry, [a.write(t, v) for a, v in zip(made, values, strict=True)]

    limit = dim(columns[0], 0)
    _, carry, made = tf.while_loop(lambda n, *_: n < total, body, (0, carry, made), maximum_iterations=limit)
    return carry, made


def _unrolled(
    step: Step, carry: tuple[tf.Tensor, ...], columns: list[Columns], reverse: bool
) -> tuple[Any, list[Columns]]:
    lists = [x if isinstance(x, list) else tf.unstack(x) for x in columns]
    order = range(len(lists[0]))
    made = []
    for t in reversed(order) if reverse else order:
        carry, values = step(carry, *(x[t] for x in lists))
        made.append(values)
    if reverse:
        made.reverse()
    return carry, [list(column) for column in zip(*made, strict=True)]
