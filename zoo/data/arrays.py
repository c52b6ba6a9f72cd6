"""Labelled images in memory, checked before anything is trained on them."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


class Examples(NamedTuple):
    """Images float32 [N, height, width, channels] in 0..1 and labels int64 [N]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


class TrainTest(NamedTuple):
    """Examples to train on, and examples to test on that training never sees."""

    train: Examples
    test: Examples


def white(dtype: DTypeLike) -> int:
    """Returns the largest pixel of pictures of an integer type: what they are divided by to lie in 0..1.

    Args:
        dtype: An integer type of numpy's.

    Returns:
        The largest value of int8, uint8 and uint16; 255 for others, which hold bytes: no picture has more than 16 bits.
    """
    return int(np.iinfo(dtype).max) if np.dtype(dtype) in (np.int8, np.uint8, np.uint16) else 255


def check_examples(
    images: ArrayLike, labels: ArrayLike, *, size: tuple[int, int, int], num_classes: int, what: str = "images"
) -> Examples:
    """Returns the examples as float32 and int64, or says what is wrong with them.

    Args:
        images: [N, height, width, channels], or [N, height, width] for one channel. Floats in 0..1; integers are
            divided by ``white`` of their type, with a warning.
        labels: [N] integers in 0..num_classes - 1.
        size: Height, width and channels that the images must have.
        num_classes: Number of classes.
        what: What to call the images in messages.

    Returns:
        The examples.

    Raises:
        ValueError: No images, another rank or size, NaN or infinite pixels, labels that are missing, not whole or out
            of range.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim == 3 and size[2] == 1:
        images = images[..., np.newaxis]
    if images.ndim != 4 or images.shape[1:] != size:
        wanted = " x ".join(map(str, size))
        raise ValueError(f"{what}: takes [N, height, width, channels] of {wanted}; got shape {list(images.shape)}.")
    if not len(images):
        raise ValueError(f"{what}: there are none.")
    return Examples(_check_pixels(images, what), _check_labels(labels, len(images), num_classes, what))


def _check_pixels(images: NDArray, what: str) -> NDArray[np.float32]:
    if np.issubdtype(images.dtype, np.integer):
        largest = white(images.dtype)
        warnings.warn(f"{what}: {images.dtype} pixels are divided by {largest} to lie in 0..1.", stacklevel=3)
        return (images / largest).astype("float32")
    if not np.issubdtype(images.dtype, np.floating):
        raise ValueError(f"{what}: pixels are integers or floats; got {images.dtype}.")
    bad = np.flatnonzero(~np.isfinite(images).all(axis=(1, 2, 3)))
    if len(bad):
        raise ValueError(
            f"{what}: {len(bad)} of {len(images)} have NaN or infinite pixels, the first is number {bad[0]}."
        )
    low, high = images.min(), images.max()
    if low < 0 or high > 1:
        warnings.warn(f"{what}: pixels should lie in 0..1 but go from {low:g} to {high:g}; rescale them.", stacklevel=3)
    return images.astype("float32", copy=False)


def _check_labels(labels: NDArray, count: int, num_classes: int, what: str) -> NDArray[np.int64]:
    if labels.shape != (count,):
        raise ValueError(f"{what}: {count} of them need labels of shape [{count}]; got {list(labels.shape)}.")
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{what}: labels are integers, one class number an image; got {labels.dtype}.")
    bad = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(bad):
        raise ValueError(
            f"{what}: labels lie in 0..{num_classes - 1} for {num_classes} classes; {len(bad)} of {count} do not, "
            f"first number {bad[0]} with {labels[bad[0]]}."
        )
    return labels.astype("int64")
