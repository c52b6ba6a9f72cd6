"""How pictures become a network's input: one small value that travels with the weights, the model and its export.

Four conventions are in use for the networks here, and mixing them up costs whole points of accuracy:
slim crops the central .875 of each side and resizes as TF1 did; Keras only resizes; torchvision resizes the shorter
side with antialiasing, crops the centre and normalises with ImageNet's mean and deviation; LeNet pads or crops.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from zoo.inputs import check_range

logger = logging.getLogger(__name__)

Pixels: TypeAlias = np.ndarray | tf.Tensor
METHODS = ("bilinear_tf1", "bilinear", "bilinear_antialias", "crop_or_pad")
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Turns pictures into a network's input: crop, resize, ``(x - mean) / std`` with x in [0, 1].

    Args:
        size: (height, width) of the result, in pixels.
        method: "bilinear_tf1" (TF1's corners), "bilinear" (half-pixel centres), "bilinear_antialias" or "crop_or_pad".
        central_fraction: share of each side that is kept, centred, before the resize; None keeps all.
        shorter_side: the shorter side is resized to this many pixels and the centre cropped to ``size``;
            None stretches the picture to ``size``.
        mean: what is subtracted from each channel, in units of [0, 1].
        std: what each channel is divided by.
        channels: 3 for colour; 1 turns colour pictures into grey ones.

    Raises:
        ValueError: a value is out of its range.
    """

    size: tuple[int, int] = (299, 299)
    method: str = "bilinear"
    central_fraction: float | None = None
    shorter_side: int | None = None
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF
    channels: int = 3

    def __post_init__(self) -> None:
        for field in ("size", "mean", "std"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        if len(self.size) != 2 or min(self.size) < 1:
            raise ValueError(f"size must be (height, width), both at least 1. Received: {self.size}")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}. Received: {self.method!r}")
        if self.central_fraction is not None and not 0 < self.central_fraction <= 1:
            raise ValueError(f"central_fraction must lie in (0, 1] or be None. Received: {self.central_fraction}")
        if self.shorter_side is not None and self.shorter_side < max(self.size):
            raise ValueError(
                f"shorter_side must be at least the larger side of size. Received: {self.shorter_side} for {self.size}"
            )
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3. Received: {self.channels}")
        if len(self.mean) != self.channels or len(self.std) != self.channels or min(self.std) <= 0:
            raise ValueError(
                f"mean and std must have {self.channels} values, std above 0. Received: {self.mean} and {self.std}"
            )

    def __call__(self, images: Pixels) -> tf.Tensor:
        """Prepares one picture or a batch; runs in eager mode, in ``tf.data`` and inside an exported graph.

        Args:
            images: [H, W, C] or [N, H, W, C], C 3 or 1; integers span their type's range (uint8: 0 to 255),
                floats lie in [0, 1] as everywhere in ``tf.image``.

        Returns:
            float32 [height, width, channels], or the same with N in front.

        Raises:
            ValueError: the rank or the number of channels is another.
        """
        unit = self._to_unit(images)
        if self.central_fraction is not None and self.central_fraction < 1:
            unit = tf.image.central_crop(unit, self.central_fraction)
        resize = _resize_shorter if self.shorter_side is not None else _resize
        return self.normalise(resize(unit, self))

    def distort(
        self,
        image: Pixels,
        seed: Pixels | Sequence[int],
        *,
        boxes: Pixels | None = None,
        fast_mode: bool = True,
        min_area: float = 0.05,
    ) -> tf.Tensor:
        """Prepares one training picture as slim's Inception preprocessing does: random box, flip and colour.

        Args:
            image: [H, W, 3], as for a call.
            seed: int32 [2]; the same seed gives the same distortion.
            boxes: [1, B, 4] boxes (y0, x0, y1, x1) in [0, 1], of one of which at least .1 must be seen; None for the
                whole picture.
            fast_mode: bilinear only, brightness and saturation only; otherwise one of four resize methods and one of
                four orders of brightness, saturation, hue and contrast.
            min_area: smallest share of the picture that the box covers.

        Returns:
            float32 [height, width, 3].
        """
        unit = self._to_unit(image)
        if unit.shape.rank != 3:
            raise ValueError(f"distort takes one picture [H, W, 3]; map it over a batch. Received shape {unit.shape}")
        seeds = tf.unstack(tf.random.experimental.stateless_split(tf.convert_to_tensor(seed, tf.int32), 8))
        whole = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.shape(unit),
            tf.cast(whole if boxes is None else boxes, tf.float32),
            seed=seeds[0],
            min_object_covered=0.1,
            aspect_ratio_range=(0.75, 1.33),
            area_range=(min_area, 1.0),
            max_attempts=100,
            use_image_if_no_bounding_boxes=True,
        )
        box = tf.slice(unit, begin, extent)
        unit = _resize_tf1_random(box, self.size, seeds[1], fast_mode)
        unit = tf.image.stateless_random_flip_left_right(unit, seeds[2])
        return self.normalise(_distort_colour(unit, seeds[3:], fast_mode))

    def normalise(self, unit: tf.Tensor) -> tf.Tensor:
        """Returns ``(unit - mean) / std`` in float32; unit: [..., channels] in [0, 1]."""
        alike = len(set(self.mean)) == len(set(self.std)) == 1
        mean, std = (np.array(v[0] if alike else v, np.float32) for v in (self.mean, self.std))  # scalars are faster
        return (tf.cast(unit, tf.float32) - mean) / std

    @property
    def value_range(self) -> tuple[float, float]:
        """Lowest and highest value that a prepared picture can have."""
        low = min(-m / s for m, s in zip(self.mean, self.std, strict=True))
        high = max((1 - m) / s for m, s in zip(self.mean, self.std, strict=True))
        return low, high

    def check_range(self, inputs: Pixels) -> bool:
        """Says whether concrete network inputs lie in the range this preprocessing produces; logs a warning if not.

        Args:
            inputs: [..., channels]; symbolic tensors and tensors without values pass unchecked.

        Returns:
            True when nothing looks wrong.
        """
        return check_range(inputs, *self.value_range)

    def with_size(self, size: tuple[int, int]) -> "Preprocessing":
        """Returns the same for another (height, width); ``shorter_side`` keeps its proportion."""
        shorter = self.shorter_side
        if shorter is not None:
            shorter = max(round(shorter * max(size) / max(self.size)), *size)
        return dataclasses.replace(self, size=(size[0], size[1]), shorter_side=shorter)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON; ``from_dict`` reads them back."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Preprocessing":
        """Reads what ``to_dict`` wrote; ValueError for unknown keys."""
        unknown = set(values) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise ValueError(f"Preprocessing has no field {', '.join(sorted(unknown))}. Received: {dict(values)}")
        return cls(**values)

    def _to_unit(self, images: Pixels) -> tf.Tensor:
        images = tf.convert_to_tensor(images)
        if images.shape.rank not in (None, 3, 4):
            raise ValueError(f"Pictures are [H, W, C] or [N, H, W, C]. Received shape {images.shape}")
        if images.dtype.is_floating and tf.executing_eagerly() and tf.size(images) > 0 and tf.reduce_max(images) > 1.5:
            logger.warning(
                "Float pictures are taken to lie in 0..1, but the largest value is %.3g: pass uint8 or divide by 255.",
                float(tf.reduce_max(images)),
            )
        unit = tf.image.convert_image_dtype(images, tf.float32)
        found = images.shape[-1]
        if found == 3 and self.channels == 1:
            return tf.image.rgb_to_grayscale(unit)
        if found == 1 and self.channels == 3:
            return tf.image.grayscale_to_rgb(unit)
        if found not in (None, self.channels):
            raise ValueError(f"Pictures must have 1 or 3 channels; decode them as RGB. Received shape {images.shape}")
        return unit


# Name -> preprocessing of a family of published weights.
PRESETS: dict[str, Preprocessing] = {
    "inception": Preprocessing(method="bilinear_tf1", central_fraction=0.875),
    "inception_keras": Preprocessing(),
    "inception_torchvision": Preprocessing(
        method="bilinear_antialias", shorter_side=342, mean=IMAGENET_MEAN, std=IMAGENET_STD
    ),
    "imagenet_keras": Preprocessing(size=(224, 224), mean=IMAGENET_MEAN, std=IMAGENET_STD),
    "imagenet_torchvision": Preprocessing(
        size=(224, 224), method="bilinear_antialias", shorter_side=256, mean=IMAGENET_MEAN, std=IMAGENET_STD
    ),
    # slim's VGG preprocessing: (grey level - mean) * 0.017
    "imagenet_slim": Preprocessing(
        size=(224, 224),
        method="bilinear_tf1",
        shorter_side=256,
        mean=(123.68 / 255, 116.78 / 255, 103.94 / 255),
        std=(1 / 0.017 / 255,) * 3,
    ),
    "lenet": Preprocessing(size=(28, 28), method="crop_or_pad", mean=(128 / 255,), std=(128 / 255,), channels=1),
}


def get_preprocessing(source: "str | Mapping[str, Any] | Preprocessing") -> Preprocessing:
    """Returns a preprocessing by its name in ``PRESETS``, from its dictionary, or as it is.

    Raises:
        ValueError: no preset of that name; the message lists them.
    """
    if isinstance(source, Preprocessing):
        return source
    if isinstance(source, Mapping):
        return Preprocessing.from_dict(source)
    if source not in PRESETS:
        raise ValueError(f"No preprocessing is called {source!r}; there are {', '.join(sorted(PRESETS))}.")
    return PRESETS[source]


def _resize(unit: tf.Tensor, spec: Preprocessing) -> tf.Tensor:
    """Brings [..., H, W, C] to the specification's size by its method."""
    if spec.method == "crop_or_pad":
        return tf.image.resize_with_crop_or_pad(unit, *spec.size)
    if spec.method == "bilinear_tf1":
        return _resize_tf1(tf.raw_ops.ResizeBilinear, unit, spec.size)
    return tf.image.resize(unit, spec.size, antialias=spec.method == "bilinear_antialias")


_SEEN = 8  # times its shorter side, more than the centre of a picture has


def _resize_shorter(unit: tf.Tensor, spec: Preprocessing) -> tf.Tensor:
    """Resizes the shorter side and crops the centre: as TF1, or in two passes rounded to grey levels as Pillow does."""
    sides = tf.shape(unit)[-3:-1]
    seen = tf.minimum(sides, tf.reduce_min(sides) * _SEEN)  # nothing beyond is, and it could be gigabytes
    height, width = tf.unstack(seen)
    unit = tf.image.crop_to_bounding_box(unit, *tf.unstack((sides - seen) // 2), height, width)
    scaled = spec.shorter_side * tf.stack([height, width]) // tf.minimum(height, width)
    if spec.method == "bilinear_tf1":
        offset = (scaled - spec.size) // 2
        resized = _resize_tf1(tf.raw_ops.ResizeBilinear, unit, scaled)
        return tf.image.crop_to_bounding_box(resized, offset[0], offset[1], *spec.size)
    for size in ([height, scaled[1]], scaled):
        unit = tf.image.resize(unit, size, antialias=spec.method == "bilinear_antialias")
        unit = tf.round(unit * 255.0) / 255.0
    offset = tf.cast(tf.round(tf.cast(scaled - spec.size, tf.float32) / 2.0), tf.int32)
    return tf.image.crop_to_bounding_box(unit, offset[0], offset[1], *spec.size)


def _resize_tf1(op: Callable[..., tf.Tensor], unit: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Runs one of TF1's resize ops, which take batches only."""
    if unit.shape.rank == 4:
        return op(images=unit, size=size)
    return op(images=unit[tf.newaxis], size=size)[0]


def _resize_tf1_random(box: tf.Tensor, size: tuple[int, int], seed: tf.Tensor, fast_mode: bool) -> tf.Tensor:
    """Resizes one picture with bilinear, or with one of TF1's four methods drawn from the seed."""
    raw = tf.raw_ops
    ops = [raw.ResizeBilinear, raw.ResizeNearestNeighbor, raw.ResizeBicubic, raw.ResizeArea]
    if fast_mode:
        resized = _resize_tf1(ops[0], box, size)
    else:
        choice = tf.random.stateless_uniform([], seed, 0, len(ops), tf.int32)
        resized = tf.switch_case(choice, [lambda op=op: _resize_tf1(op, box, size) for op in ops])
    return tf.ensure_shape(resized, [*size, 3])


# The four orders in which slim applies the colour distortions.
_COLOUR_ORDERS = (
    ("brightness", "saturation", "hue", "contrast"),
    ("saturation", "brightness", "contrast", "hue"),
    ("contrast", "hue", "brightness", "saturation"),
    ("hue", "saturation", "contrast", "brightness"),
)


def _distort_colour(unit: tf.Tensor, seeds: list[tf.Tensor], fast_mode: bool) -> tf.Tensor:
    """Changes brightness and saturation, and hue and contrast unless fast; clips to [0, 1]."""
    image = tf.image
    steps: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
        "brightness": lambda x: image.stateless_random_brightness(x, 32.0 / 255.0, seeds[0]),
        "saturation": lambda x: image.stateless_random_saturation(x, 0.5, 1.5, seeds[1]),
        "hue": lambda x: image.stateless_random_hue(x, 0.2, seeds[2]),
        "contrast": lambda x: image.stateless_random_contrast(x, 0.5, 1.5, seeds[3]),
    }

    def run(order: tuple[str, ...]) -> tf.Tensor:
        result = unit
        for name in order:
            result = steps[name](result)
        return result

    if fast_mode:
        unit = run(_COLOUR_ORDERS[0][:2])
    else:
        choice = tf.random.stateless_uniform([], seeds[4], 0, len(_COLOUR_ORDERS), tf.int32)
        unit = tf.switch_case(choice, [lambda order=order: run(order) for order in _COLOUR_ORDERS])
    return tf.clip_by_value(unit, 0.0, 1.0)
