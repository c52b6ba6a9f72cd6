"""One way from a picture file to a trunk's input, for extraction, training, prediction and the exported graph."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.data.decode import decode_image
from zoo.data.images import WHITE, decode
from zoo.data.preprocessing import Pixels, Preprocessing
from zoo.transfer.settings import FITS

# A picture longer than LONG pixels and THIN times its width is shrunk before it is set on a square: one of 1 x 60,000
# pixels would be on a square of 10 GB.
LONG, THIN = 2048, 4


def _is_thin(height: Any, width: Any) -> Any:
    longer, shorter = (tf.maximum, tf.minimum) if tf.is_tensor(height) else (max, min)
    return (longer(height, width) > LONG) & (longer(height, width) > THIN * shorter(height, width))


def _shorten(pixels: Pixels) -> tf.Tensor:
    """Shrinks uint8 [H, W, 3] to LONG pixels on its longer side."""
    sides = tf.shape(pixels)[:2]
    size = tf.maximum(1, sides * LONG // tf.reduce_max(sides))
    return tf.saturate_cast(tf.round(tf.image.resize(pixels, size, antialias=True)), tf.uint8)


@dataclasses.dataclass(frozen=True)
class Reader:
    """How pictures are read: what is under transparent pixels, how they are turned, fitted and scaled.

    Args:
        preprocessing: Size and scale of the trunk's input.
        background: RGB under transparent pixels and beside padded ones.
        orient: Turn as the Exif block says.
        fit: "pad" sets the whole picture on a square, "crop" takes the largest square in its middle, "stretch" lets
            the resize change its proportions.

    Raises:
        ValueError: ``fit`` or the background is another.
    """

    preprocessing: Preprocessing
    background: tuple[int, int, int] = WHITE
    orient: bool = True
    fit: str = "pad"

    def __post_init__(self) -> None:
        object.__setattr__(self, "background", tuple(self.background))
        if self.fit not in FITS:
            raise ValueError(f"fit must be one of {', '.join(FITS)}. Received: {self.fit!r}")
        if len(self.background) != 3 or not all(0 <= level <= 255 for level in self.background):
            raise ValueError(f"background takes three levels in 0..255. Received: {self.background!r}")

    def read(self, data: bytes) -> np.ndarray:
        """Decodes a file's bytes with Pillow and prepares the picture: float32 [height, width, channels]."""
        return self.prepare(decode(data, background=self.background, orient=self.orient)).numpy()

    def read_in_graph(self, data: tf.Tensor) -> tf.Tensor:
        """Does the same to a string scalar with TensorFlow operations."""
        return self.prepare(decode_image(data, background=self.background, orient=self.orient))

    def prepare(self, pixels: Pixels) -> tf.Tensor:
        """Fits and scales uint8 [H, W, 3] -> float32 [height, width, channels]."""
        square = self.to_fit(pixels)
        if isinstance(square, np.ndarray) and square.dtype == np.uint8 and square.shape[2:] == (3,):
            return self._traced(square)
        return self.preprocessing(square)

    @functools.cached_property
    def _traced(self) -> Callable[[np.ndarray], tf.Tensor]:
        """The preprocessing as a graph, which threads run without waiting for one another in Python."""
        return tf.function(self.preprocessing, input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)])

    def to_fit(self, pixels: Pixels) -> Pixels:
        """Pads or crops uint8 [H, W, 3], an array or a tensor, to a square; leaves it with fit="stretch"."""
        if self.fit == "stretch":
            return pixels
        if isinstance(pixels, np.ndarray):  # copying is ten times faster than TensorFlow's padding
            return self._array_to_fit(pixels)
        if self.fit == "pad":
            pixels = tf.cond(_is_thin(*tf.unstack(tf.shape(pixels)[:2])), lambda: _shorten(pixels), lambda: pixels)
        height, width = tf.unstack(tf.shape(pixels)[:2])
        if self.fit == "crop":
            side = tf.minimum(height, width)
            return tf.image.crop_to_bounding_box(pixels, (height - side) // 2, (width - side) // 2, side, side)
        side = tf.maximum(height, width)
        top, left = (side - height) // 2, (side - width) // 2
        ground = tf.constant(self.background, tf.int32)
        edges = [[top, side - height - top], [left, side - width - left], [0, 0]]
        return tf.cast(tf.pad(tf.cast(pixels, tf.int32) - ground, edges) + ground, tf.uint8)

    def _array_to_fit(self, pixels: np.ndarray) -> np.ndarray:
        if self.fit == "pad" and _is_thin(*pixels.shape[:2]):
            pixels = _shorten(pixels).numpy()
        height, width = pixels.shape[:2]
        if self.fit == "crop":
            side = min(height, width)
            top, left = (height - side) // 2, (width - side) // 2
            return pixels[top : top + side, left : left + side]
        side = max(height, width)
        top, left = (side - height) // 2, (side - width) // 2
        square = np.empty((side, side, 3), np.uint8)
        square[top : top + height, left : left + width] = pixels
        for edge in (square[:top], square[top + height :], square[:, :left], square[:, left + width :]):
            edge[:] = self.background
        return square

    def view(self, data: bytes, number: int, key: str) -> np.ndarray:
        """Prepares view ``number`` of a picture: 0 as it is, 1 its mirror image, 2 and more random crops and colours.

        The key, the hash of the content, is the seed of the random ones.
        """
        if number < 2:
            prepared = self.read(data)
            return prepared[:, ::-1] if number else prepared
        pixels = self.to_fit(decode(data, background=self.background, orient=self.orient))
        seed = [int(key[:7], 16), number]
        if self.preprocessing.channels == 3:
            return self.preprocessing.distort(pixels, seed, min_area=0.4).numpy()
        # Colours are distorted, then made grey.
        colour = dataclasses.replace(self.preprocessing, channels=3, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        unit = colour.distort(pixels, seed, min_area=0.4)
        return self.preprocessing.normalise(tf.image.rgb_to_grayscale(unit)).numpy()

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        plain = {"background": list(self.background), "orient": self.orient, "fit": self.fit}
        return {**plain, "preprocessing": self.preprocessing.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Reader":
        """Reads what ``to_dict`` wrote."""
        return cls(**{**values, "preprocessing": Preprocessing.from_dict(values["preprocessing"])})
