"""Small random shifts, turns and zooms of a batch of images, for training on few examples."""

import math

import tensorflow as tf


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
