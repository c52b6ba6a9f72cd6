"""Sizes, strides and paddings of sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Pair = int | Sequence[int]
Padding = str | int | Sequence[Any]


def output_size(n: int | None, kernel: int, stride: int = 1, padding: str | int = "SAME", rate: int = 1) -> int | None:
    """Number of positions of a window on n inputs.

    "SAME": ceil(n / stride). A padding of p zeros on each side ("VALID" is p = 0):
    floor((n + 2p - rate * (kernel - 1) - 1) / stride) + 1.

    Args:
      n: inputs along the dimension, or None for an unknown number.
      kernel: size of the window.
      stride: step of the window, default 1.
      padding: "SAME" (default), "VALID", or the number of zeros on each side.
      rate: distance between the window's taps, default 1.

    Returns:
      Outputs along the dimension, None where n is.

    Raises:
      ValueError: a number that is not positive, an unknown padding, or a window larger than the padded input.
    """
    if min(kernel, stride, rate) < 1 or (n is not None and n < 1):
        raise ValueError(f"sizes are positive, got n={n}, kernel={kernel}, stride={stride}, rate={rate}")
    if isinstance(padding, str) and padding.upper() == "SAME":
        return None if n is None else -(-n // stride)
    if isinstance(padding, str) and padding.upper() != "VALID":
        raise ValueError(f'padding is "SAME", "VALID" or a number of zeros, got {padding!r}')
    zeros = 0 if isinstance(padding, str) else padding
    if n is None:
        return None
    span = rate * (kernel - 1) + 1
    if n + 2 * zeros < span:
        raise ValueError(f"a window of {span} does not fit {n} inputs padded by {zeros}: use a larger input or padding")
    return (n + 2 * zeros - span) // stride + 1


def pair(value: Pair, what: str, layer: str, data_format: str | None = None) -> tuple[int, int]:
    """Reads a size for height and width.

    Args:
      value: a positive integer for both, or two of them; with `data_format` also TensorFlow's four.
      what: the argument's name, for the message.
      layer: the layer's name, for the message.
      data_format: "NHWC" (as None in a layer) or "NCHW": the order of four; None takes no four.

    Returns:
      (height, width).

    Raises:
      ValueError: anything else.
    """
    if type(value) is int and value > 0:
        return value, value
    values = np.atleast_1d(np.asarray(value)) if not isinstance(value, str | bytes) else np.empty(0)
    four = ""
    if data_format is not None:
        order, spatial = (
            ("[1, height, width, 1]", slice(1, 3)) if data_format == "NHWC" else ("[1, 1, height, width]", slice(2, 4))
        )
        four = f", or TensorFlow's {order} for {data_format}"
        if values.shape == (4,) and values.dtype.kind in "iu" and values.prod() == values[spatial].prod():
            values = values[spatial]
    elif values.shape == (4,):
        four = f"; the shape of a filter is {what}=[height, width], and num_outputs its last number"
    if values.ndim == 1 and values.size in (1, 2) and values.dtype.kind in "iu" and (values > 0).all():
        return int(values[0]), int(values[-1])
    raise ValueError(f"{layer}: {what} is a positive integer or two of them (height, width){four}, got {value!r}")


def paddings(padding: Padding, layer: str, data_format: str) -> tuple[str, list[int]]:
    """Reads a padding.

    Args:
      padding: "SAME", "VALID", zeros on every side, (height, width) zeros, ((top, bottom), (left, right)), or
        TensorFlow's list of four pairs in the order of `data_format`.
      layer: the layer's name, for the message.
      data_format: "NHWC" or "NCHW".

    Returns:
      The op's padding name and its flat list of explicit paddings (empty unless "EXPLICIT").

    Raises:
      ValueError: anything else.
    """
    if isinstance(padding, str):
        if padding in ("SAME", "VALID"):
            return padding, []
        if padding.upper() in ("SAME", "VALID"):
            return padding.upper(), []
    else:
        zeros = np.asarray(padding)
        spatial = slice(1, 3) if data_format == "NHWC" else slice(2, 4)
        if zeros.shape == (4, 2) and zeros.sum() == zeros[spatial].sum():
            zeros = zeros[spatial]
        if zeros.shape == (2,):
            zeros = np.stack([zeros, zeros], axis=1)
        if zeros.shape in ((), (2, 2)) and zeros.dtype.kind in "iu" and (zeros >= 0).all():
            full = np.zeros((4, 2), int)
            full[spatial] = zeros
            return "EXPLICIT", full.ravel().tolist()
    raise ValueError(
        f'{layer}: padding is "SAME", "VALID", a number of zeros, (height, width) or ((top, bottom), (left, right)), '
        f"got {padding!r}"
    )


def check_window(
    shape: tf.TensorShape, first: int, window: tuple[int, int], padding: str, explicit: list[int], layer: str
) -> None:
    """Refuses a window that is larger than a known input.

    Args:
      shape: the input's shape, rank 4.
      first: index of the height in it.
      window: the window's height and width, dilated.
      padding: "SAME", "VALID" or "EXPLICIT".
      explicit: flat explicit paddings.
      layer: the layer's name, for the message.

    Raises:
      ValueError: the window does not fit.
    """
    if padding == "SAME":
        return
    for axis, size in zip((first, first + 1), window, strict=True):
        known = shape[axis]
        zeros = sum(explicit[2 * axis : 2 * axis + 2])
        if known is not None and known + zeros < size:
            raise ValueError(
                f"{layer}: a window of {window[0]}x{window[1]} does not fit inputs of shape {tuple(shape)} with "
                f'padding {padding}: use larger inputs, a smaller kernel or padding="SAME"'
            )
