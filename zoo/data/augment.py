"""Random changes to training pictures, as stateless tf functions: the same seed gives the same pixels, anywhere."""

import math
from collections.abc import Sequence

import tensorflow as tf

# Mean and standard deviation of the training pixels, in grey levels: what the DenseNet recipe normalises with.
CIFAR10_MEAN, CIFAR10_STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
CIFAR100_MEAN, CIFAR100_STD = (129.3, 124.1, 112.4), (68.2, 65.4, 70.4)


def normalize(images: tf.Tensor, mean: Sequence[float], std: Sequence[float]) -> tf.Tensor:
    """Subtracts each channel's mean and divides by its deviation.

    Args:
        images: Pixels [..., channels] of any number type, in grey levels.
        mean: One number a channel, in grey levels.
        std: One number a channel, in grey levels, above 0.

    Returns:
        float32 [..., channels].

    Raises:
        ValueError: the numbers of channels differ, or a deviation is not above 0.
    """
    channels = images.shape[-1]
    if not len(mean) == len(std) == channels:
        raise ValueError(f"{channels} channels need as many means and deviations, got {len(mean)} and {len(std)}")
    if min(std) <= 0:
        raise ValueError(f"deviations must be above 0, got {tuple(std)}")
    return (tf.cast(images, tf.float32) - tf.constant(mean, tf.float32)) / tf.constant(std, tf.float32)


def pad_crop_flip(images: tf.Tensor, seed: tf.Tensor, pad: int = 4, *, flip: bool = True) -> tf.Tensor:
    """Pads with zeros, crops each picture at its own random place, mirrors half of them: the "+" in CIFAR-10+.

    Normalise first, so that the padding is of the mean colour.

    Args:
        images: A batch [N, H, W, C] or one picture [H, W, C], of any number type.
        seed: int32 [2], see ``zoo.data.stream.batch_seed``.
        pad: Rows and columns of zeros on each side.
        flip: Mirror left and right with probability 1/2.

    Returns:
        The same shape and type.

    Raises:
        ValueError: another rank, or a negative ``pad``.

    Source: the data augmentation of DenseNet (Huang et al. 2017, section 4.1, after Lin et al. 2013).
    """
    if pad < 0:
        raise ValueError(f"pad counts pixels from 0, got {pad}")
    if images.shape.rank == 3:
        return pad_crop_flip(images[tf.newaxis], seed, pad, flip=flip)[0]
    if images.shape.rank != 4:
        raise ValueError(f"images must be [N, H, W, C] or [H, W, C], got shape {images.shape}")
    padded = tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
    result = crop_flip(padded, seed, tf.unstack(tf.shape(images)[1:3]), flip=flip)
    return tf.ensure_shape(result, images.shape)


def crop_flip(images: tf.Tensor, seed: tf.Tensor, size: Sequence[int | tf.Tensor], *, flip: bool = True) -> tf.Tensor:
    """Crops each picture at its own random place and mirrors half of them.

    Args:
        images: A batch [N, H, W, C] of any number type.
        seed: int32 [2], see ``zoo.data.stream.batch_seed``.
        size: Height and width of the crops.
        flip: Mirror left and right with probability 1/2.

    Returns:
        [N, height, width, C] of the same type.

    Raises:
        ValueError: crops larger than the pictures.
    """
    for side, whole in zip(size, images.shape[1:3], strict=True):
        if isinstance(side, int) and whole is not None and not 0 < side <= whole:
            raise ValueError(f"crops of {tuple(size)} cannot be cut from pictures of {tuple(images.shape[1:3])}")
    (height, width), (count, rows, columns) = size, tf.unstack(tf.shape(images)[:3])
    seeds = tf.random.experimental.stateless_split(seed, 3)
    top = tf.random.stateless_uniform([count, 1], seeds[0], 0, rows - height + 1, tf.int32)
    left = tf.random.stateless_uniform([count, 1], seeds[1], 0, columns - width + 1, tf.int32)
    cut = tf.gather(images, top + tf.range(height), axis=1, batch_dims=1)  # [N, height, W, C]
    result = tf.gather(cut, left + tf.range(width), axis=2, batch_dims=1)  # [N, height, width, C]
    if flip:
        mirror = tf.random.stateless_uniform([count, 1, 1, 1], seeds[2]) < 0.5
        result = tf.where(mirror, tf.reverse(result, [2]), result)
    return tf.ensure_shape(
        result, [images.shape[0], *(s if isinstance(s, int) else None for s in size), images.shape[3]]
    )


def shift_turn_zoom(
    images: tf.Tensor, seed: tf.Tensor, *, shift: float = 0.08, turn: float = 12.0, zoom: float = 0.12
) -> tf.Tensor:
    """Moves, turns and scales each image about its centre by its own random amounts.

    Pixel p of the result is the input at ``R(angle) / scale (p - centre) + centre + offset``, read bilinearly; what
    comes from outside the image is 0.

    Args:
        images: [N, height, width, channels] floats.
        seed: int32 [2]; the same seed gives the same images.
        shift: Largest shift, as a fraction of the height and width.
        turn: Largest turn either way, in degrees.
        zoom: Largest change of scale either way, as a fraction.

    Returns:
        The moved images, of the same shape and type.

    Raises:
        ValueError: A negative amount, or a zoom of 1 or more.
    """
    if shift < 0 or turn < 0 or not 0 <= zoom < 1:
        raise ValueError(f"shift and turn are at least 0 and zoom lies in [0, 1); got {shift}, {turn} and {zoom}.")
    count = tf.shape(images)[0]
    height, width = (tf.cast(side, tf.float32) for side in tf.unstack(tf.shape(images)[1:3]))
    angle, scale, right, down = tf.unstack(tf.random.stateless_uniform([4, count], seed, -1.0, 1.0))
    angle, scale = angle * (turn * math.pi / 180), 1 + scale * zoom
    cos, sin = tf.cos(angle) / scale, tf.sin(angle) / scale
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    offset_x = centre_x - cos * centre_x + sin * centre_y + right * shift * width
    offset_y = centre_y - sin * centre_x - cos * centre_y + down * shift * height
    zeros = tf.zeros([count])
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([cos, -sin, offset_x, sin, cos, offset_y, zeros, zeros], axis=1),
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )
    return tf.ensure_shape(moved, images.shape)
