"""scikit-learn's 1,797 real handwritten digits, brought to the size of LeNet-5.

E. Alpaydin and C. Kaynak, "Optical recognition of handwritten digits", UCI machine learning repository, 1998: the
test part, 8 x 8 pixels of 17 grey levels, written by people who are not in the training part.
"""

import numpy as np
import sklearn.datasets
import tensorflow as tf
from numpy.typing import NDArray

from zoo.data.arrays import Examples, TrainTest

SPLITS = ("random", "writers")


def load(split: str = "random", size: int = 32) -> TrainTest:
    """Loads the digits in one of two fixed splits; nothing is downloaded.

    Args:
        split: "random": a stratified fifth is for testing. "writers": the last fifth is, which other people wrote.
        size: Height and width to bring the 8 x 8 pictures to.

    Returns:
        The split: 1,437 or 1,438 examples to train on, the other 360 or 359 to test on.

    Raises:
        ValueError: Another split, or a size below 8.
    """
    if split not in SPLITS:
        raise ValueError(f"digits: split is one of {', '.join(SPLITS)}; got {split!r}.")
    if size < 8:
        raise ValueError(f"digits: the pictures are 8 x 8, so size is at least 8; got {size}.")
    pixels, labels = sklearn.datasets.load_digits(return_X_y=True)
    images = _enlarge(pixels.reshape(-1, 8, 8, 1).astype("float32") / 16, size)
    labels = labels.astype("int64")
    test = _random_fifth(labels) if split == "random" else np.arange(len(labels)) >= len(labels) * 4 // 5
    return TrainTest(Examples(images[~test], labels[~test]), Examples(images[test], labels[test]))


def _random_fifth(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Marks a fifth of each class, always the same one: NumPy's RandomState never changes its numbers."""
    random = np.random.RandomState(5)
    test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        test[members[: round(len(members) / 5)]] = True
    return test


def _enlarge(images: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    return np.clip(tf.image.resize(images, [size, size], "bicubic").numpy(), 0, 1)
