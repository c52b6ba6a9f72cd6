"""The LSTM on a GPU: one cuDNN call a layer, which XLA cannot compile: its model says ``supports_jit = False``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo._compat import innermost_device
from zoo.rnn.checks import dim


def available(dtype: tf.DType) -> bool:
    """Says whether cuDNN runs a layer here: of float16 or float32, with a GPU, outside an explicit CPU device."""
    if dtype not in (tf.float16, tf.float32) or not tf.config.list_logical_devices("GPU"):
        return False
    graph = tf.compat.v1.get_default_graph()
    device = "" if tf.executing_eagerly() else innermost_device(graph)
    return "CPU" not in device.upper()


def parameters(kernel: tf.Tensor, bias: tf.Tensor, forget_bias: float | tf.Tensor) -> tf.Tensor:
    """Packs the weights of one layer in cuDNN's order: one vector of (width + units + 2) x 4 units values.

    cuDNN wants the gates as i, f, j, o; each of the four input and then the four recurrent matrices transposed; then
    four biases for the input side and four for the recurrent side. The bias goes to the input side whole, with the
    forget bias added, because cuDNN has none.
    """
    units = dim(kernel, 1) // 4
    width = dim(kernel, 0) - units
    i, j, f, o = tf.split(kernel, 4, axis=1)
    b_i, b_j, b_f, b_o = tf.split(bias, 4)
    gates = (i, f, j, o)
    biases = (b_i, b_f + tf.cast(forget_bias, bias.dtype), b_j, b_o)
    matrices = [*(g[:width] for g in gates), *(g[width:] for g in gates)]
    return tf.concat([*(tf.reshape(tf.transpose(m), [-1]) for m in matrices), *biases, tf.zeros_like(bias)], 0)


def lstm(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    c: tf.Tensor,
    h: tf.Tensor,
    forget_bias: float | tf.Tensor,
    mask: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Runs one LSTM layer over a sequence; the same contract as `zoo.rnn.fused.lstm`."""
    frame = scoping.current_frame()
    if frame is not None:
        model: Any = frame.store
        model.supports_jit = False  # read by Keras: jit_compile="auto" then stays off
    steps = tf.shape(inputs)[0]
    if mask is None:
        lengths = tf.fill([tf.shape(inputs)[1]], steps)
    else:
        lengths = tf.reduce_sum(tf.cast(mask[:, :, 0], tf.int32), 0)
    outputs, last_h, last_c, _, _ = tf.raw_ops.CudnnRNNV3(
        input=inputs,
        input_h=h[None],
        input_c=c[None],
        params=parameters(kernel, bias, forget_bias),
        sequence_lengths=tf.maximum(lengths, 1),  # cuDNN refuses empty rows; they are put right below
        rnn_mode="lstm",
        input_mode="linear_input",
        direction="unidirectional",
        dropout=0.0,
        is_training=True,
        time_major=True,
        num_proj=0,
    )
    last_c, last_h = last_c[0], last_h[0]
    if mask is not None:
        empty = tf.equal(lengths, 0)[:, None]
        last_c, last_h = tf.where(empty, c, last_c), tf.where(empty, h, last_h)
        outputs = tf.where(mask, outputs, tf.zeros([], outputs.dtype))
    outputs.set_shape([dim(inputs, 0), dim(inputs, 1), dim(h, 1)])
    return outputs, last_c, last_h
