"""Sizes, strides and paddings of sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.layers.context import Images

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


class Window(NamedTuple):
    """A sliding window: its sides, steps and rates (height, width), the padding's name and explicit paddings."""

    sides: tuple[int, int]
    strides: tuple[int, int]
    rates: tuple[int, int]
    padding: str
    explicit: list[int]

    @classmethod
    def of(cls, images: Images, sides: Pair, stride: Pair, rate: Pair, padding: Padding, layer: str) -> Window:
        """Reads a convolution's window; refuses a rate with a stride, and one larger than the images."""
        size, strides = pair(sides, "kernel_size", layer), pair(stride, "stride", layer, images.layout)
        rates = pair(rate, "rate", layer, images.layout)
        if rates != (1, 1) and strides != (1, 1):
            raise ValueError(
                f"{layer}: a rate other than 1 needs stride 1, got rate={rates} and stride={strides}: drop one"
            )
        window = cls(size, strides, rates, *paddings(padding, layer, images.layout))
        whole = (rates[0] * (size[0] - 1) + 1, rates[1] * (size[1] - 1) + 1)
        check_window(images.shape, images.first, whole, window.padding, window.explicit, layer)
        return window


def pair(value: Pair, what: str, layer: str, data_format: str | None = None) -> tuple[int, int]:
    """Reads (height, width): one integer for both, two, or with `data_format` TensorFlow's four in that order."""
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
    """Reads a padding: the op's name for it, and its flat list of explicit paddings (empty unless "EXPLICIT").

    It is "SAME", "VALID", zeros on every side, (height, width) zeros, ((top, bottom), (left, right)), or TensorFlow's
    list of four pairs in the order of `data_format`.
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
    """Refuses a dilated window (height, width) larger than an input whose height is axis `first`, where known."""
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
