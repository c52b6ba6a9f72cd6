"""Encoded pictures to pixels inside a TensorFlow graph: the same pixels as ``zoo.data.images.decode``.

Pure TensorFlow operations, so it runs in parallel in ``tf.data`` and travels inside a SavedModel.
"""

from collections.abc import Callable

import tensorflow as tf

from zoo.data.images import WHITE

_MAGIC = (b"\x89PNG", b"GIF8", b"BM", b"RIFF")

# Not inlined: a branch that is not taken then costs one node of the executor's time and not hundreds.
_kept_whole = tf.function(experimental_attributes={"_noinline": True})


def decode_image(data: tf.Tensor, *, background: tuple[int, int, int] = WHITE, orient: bool = True) -> tf.Tensor:
    """Decodes one picture; format, orientation, transparency and depth are treated as ``zoo.data.images`` says.

    Files for which ``zoo.data.images.same_in_graph`` is False (a transparent GIF, a BMP with a palette, an animated
    WebP) are refused here, because TensorFlow would give other pixels: ``zoo.data.images.graph_bytes`` converts them.

    Args:
        data: The file's bytes, a string scalar.
        background: RGB in 0..255 that shows through transparent pixels.
        orient: Turn and mirror as the Exif block says.

    Returns:
        uint8 [height, width, 3].

    Raises:
        tf.errors.InvalidArgumentError: when run on bytes that are not such a picture.
    """
    jpeg = tf.strings.substr(data, 0, 3) == b"\xff\xd8\xff"
    image = tf.cond(jpeg, lambda: _jpeg(data, orient), lambda: _other(data, background, orient))
    return tf.ensure_shape(image, [None, None, 3])


@_kept_whole
def _other(data: tf.Tensor, background: tuple[int, int, int], orient: bool) -> tf.Tensor:
    starts = tf.stack([tf.strings.substr(data, 0, len(magic)) == magic for magic in _MAGIC])
    kind = tf.where(tf.reduce_any(starts), tf.argmax(starts, output_type=tf.int32), len(_MAGIC))
    branches: list[Callable[[], tf.Tensor]] = [
        lambda: _png(data, background, orient),
        lambda: _gif(data),
        lambda: _bmp(data),
        lambda: _webp(data, background, orient),
        lambda: _refuse(data),
    ]
    return tf.switch_case(kind, branches)


def _jpeg(data: tf.Tensor, orient: bool) -> tf.Tensor:
    image = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
    return _turned(image, _after(tf.strings.substr(data, 0, 8192), b"Exif\0\0")) if orient else image


def _png(data: tf.Tensor, background: tuple[int, int, int], orient: bool) -> tf.Tensor:
    colour = _byte(data, 25)
    keyed = tf.strings.length(_after(_halves(data, b"IDAT")[0], b"tRNS")) > 0
    transparent = (colour == 4) | (colour == 6) | keyed
    image = tf.cond(
        transparent,
        lambda: composite(tf.io.decode_png(data, channels=4), background),
        lambda: tf.io.decode_png(data, channels=3),
    )
    return _turned(image, _after(data, b"eXIf")) if orient else image


def _gif(data: tf.Tensor) -> tf.Tensor:
    flags = _byte(data, 10)
    table = tf.where(flags >= 128, 3 * tf.bitwise.left_shift(1, flags % 8 + 1), 0)
    # What stands between the colour table and the first frame; its last block, if any, ends with a zero byte.
    parts = _halves(tf.strings.join([b"\0", _slice(data, 13 + table, -1)]), b"\0,")
    control = _after(parts[0], b"!\xf9\x04")
    opaque = (tf.strings.length(control) == 0) | (_byte(control, 0) % 2 == 0)
    full = tf.strings.substr(parts[1], 0, 8) == tf.strings.join([b"\0\0\0\0", _slice(data, 6, 4)])
    check = tf.debugging.Assert(
        opaque & full,
        ["a GIF that is transparent or does not fill its canvas is not decoded in a graph; convert it to PNG"],
    )
    with tf.control_dependencies([check]):
        return tf.image.decode_image(tf.identity(data), channels=3, expand_animations=False)


def _bmp(data: tf.Tensor) -> tf.Tensor:
    bits = _byte(data, 28)
    check = tf.debugging.Assert(
        bits == 24, ["only BMPs of 24 bits are decoded in a graph; convert to PNG. Bits:", bits]
    )
    with tf.control_dependencies([check]):
        return tf.io.decode_bmp(tf.identity(data), channels=3)


def _webp(data: tf.Tensor, background: tuple[int, int, int], orient: bool) -> tf.Tensor:
    flags = tf.where(_slice(data, 12, 4) == b"VP8X", _byte(data, 20), 0)
    # TensorFlow 2.21 writes past its buffer on an animation without transparency: never let it see one.
    check = tf.debugging.Assert(
        (flags // 2) % 2 == 0, ["an animated WebP cannot be decoded in a graph; convert its first frame to PNG"]
    )
    with tf.control_dependencies([check]):
        image = tf.image.decode_image(tf.identity(data), expand_animations=False)
    image = tf.cond(
        tf.shape(image)[-1] == 4,
        lambda: composite(image, background),
        lambda: image,
    )
    if not orient:
        return image
    exif = _slice(_after(data, b"EXIF"), 4, -1)
    bare = tf.where(tf.strings.substr(exif, 0, 6) == b"Exif\0\0", _slice(exif, 6, -1), exif)
    return _turned(image, tf.where((flags // 8) % 2 == 1, bare, b""))


def _refuse(data: tf.Tensor) -> tf.Tensor:
    check = tf.debugging.Assert(
        False, ["not a JPEG, PNG, GIF, BMP or WebP. Bytes:", tf.strings.length(data), tf.strings.substr(data, 0, 8)]
    )
    with tf.control_dependencies([check]):
        return tf.zeros([0, 0, 3], tf.uint8)


def composite(rgba: tf.Tensor, background: tuple[int, int, int]) -> tf.Tensor:
    """Puts uint8 RGBA [..., 4] on a colour; returns uint8 [..., 3]."""
    alpha = tf.cast(rgba[..., 3:], tf.int32)
    mixed = tf.cast(rgba[..., :3], tf.int32) * alpha + tf.constant(background, tf.int32) * (255 - alpha)
    return tf.cast((mixed + 127) // 255, tf.uint8)


def _slice(data: tf.Tensor, at: int | tf.Tensor, length: int) -> tf.Tensor:
    """Returns bytes [at, at + length), or all from ``at`` on for -1; zeros stand in for what is behind the end."""
    enough = tf.concat([[data], tf.fill([tf.maximum(at - tf.strings.length(data), 0)], b"\0")], 0)
    return tf.strings.substr(tf.strings.reduce_join(enough), at, length if length >= 0 else 1 << 30)


def _byte(data: tf.Tensor, at: int) -> tf.Tensor:
    """Returns one byte as int32; 0 behind the end."""
    one = tf.strings.substr(tf.strings.join([_slice(data, at, 1), b"\0"]), 0, 1)
    return tf.cast(tf.io.decode_raw(one, tf.uint8)[0], tf.int32)


def _halves(data: tf.Tensor, marker: bytes) -> tf.Tensor:
    """Splits at the first ``marker``: string [2], the second one empty when there is no marker."""
    parts = tf.raw_ops.StringSplitV2(input=[data], sep=marker, maxsplit=1).values
    return tf.concat([parts, [b"", b""]], 0)[:2]


def _after(data: tf.Tensor, marker: bytes) -> tf.Tensor:
    """Returns what follows the first ``marker``; empty without one."""
    return _halves(data, marker)[1]


def _turned(image: tf.Tensor, exif: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.strings.length(exif) >= 14, lambda: _turn(image, exif), lambda: image)


def _orientation(exif: tf.Tensor) -> tf.Tensor:
    """Reads tag 0x0112 of the first directory of an Exif block: int32 in 1..8, 1 when there is none."""
    tiff = tf.strings.substr(exif, 0, 8192)
    order = tf.strings.substr(tiff, 0, 4)
    little, known = order == b"II*\0", (order == b"II*\0") | (order == b"MM\0*")
    raw = tf.cast(tf.io.decode_raw(tiff, tf.uint8), tf.int32)
    low, high = tf.cond(little, lambda: ([1, 256], [1, 65536]), lambda: ([256, 1], [65536, 1]))
    pair = tf.stack(low)

    def short(at: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(raw[at : at + 2] * pair)

    start = tf.reduce_sum(tf.stack([short(4), short(6)]) * tf.stack(high))
    fits = known & (start >= 8) & (start + 2 <= tf.size(raw))
    start = tf.where(fits, start, 0)
    count = tf.minimum(short(start), (tf.size(raw) - start - 2) // 12)
    entries = tf.reshape(raw[start + 2 : start + 2 + 12 * count], [-1, 12])
    tags = tf.reduce_sum(entries[:, 0:2] * pair, 1)
    forms = tf.reduce_sum(entries[:, 2:4] * pair, 1)
    values = tf.reduce_sum(entries[:, 8:10] * pair, 1)
    chosen = tf.boolean_mask(values, fits & (tags == 0x0112) & (forms == 3))
    value = tf.concat([chosen, [1]], 0)[0]
    return tf.where((value >= 1) & (value <= 8), value, 1)


@_kept_whole
def _turn(image: tf.Tensor, exif: tf.Tensor) -> tf.Tensor:
    value = _orientation(exif)

    def where(values: list[int], change: Callable[[], tf.Tensor], image: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_any(value == values), change, lambda: image)

    result = where([5, 6, 7, 8], lambda: tf.transpose(image, [1, 0, 2]), image)
    flipped = where([3, 4, 7, 8], lambda: tf.reverse(result, [0]), result)
    return where([2, 3, 6, 7], lambda: tf.reverse(flipped, [1]), flipped)
