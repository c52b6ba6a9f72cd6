"""Tiny picture files of every awkward kind, made on the spot."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

RNG = np.random.default_rng(5)
WAVES = np.stack(np.meshgrid(np.arange(20), np.arange(14), indexing="xy"), -1)


def pixels(seed=0, height=14, width=20, channels=3):
    """A smooth coloured pattern, another one for each seed: uint8 [height, width, channels]."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x * rng.uniform(0.1, 0.6) + y * rng.uniform(0.1, 0.6) + rng.uniform(0, 6)) for _ in range(channels)]
    return np.uint8(127.5 + 127 * np.stack(waves, -1))


def encode(image, form="PNG", **options):
    """The bytes of a picture: an array or a Pillow image."""
    stream = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(stream, form, **options)
    return stream.getvalue()


def jpeg(seed=0, **options):
    return encode(pixels(seed), "JPEG", **options)


def png(seed=0, **options):
    return encode(pixels(seed), "PNG", **options)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def raw_png(width, height, depth, colour, rows, before=b"", after=b"", end=True, interlace=0):
    """A PNG written by hand, so that any header can be had."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return b"\x89PNG\r\n\x1a\n" + head + before + data + after + (chunk(b"IEND", b"") if end else b"")


def exif(orientation):
    block = Image.Exif()
    block[0x010F] = "a maker with a long name"
    block[0x0112] = orientation
    return block


def adam7(image):
    """An interlaced PNG of uint8 [H, W, 3]."""
    rows = []
    for x0, y0, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        part = image[y0::dy, x0::dx]
        rows += [row.tobytes() for row in part] if part.size else []
    return raw_png(image.shape[1], image.shape[0], 8, 2, rows, interlace=1)


def kinds():
    """Name -> bytes of good pictures of every kind that zoo reads."""
    image, other = Image.fromarray(pixels(1)), Image.fromarray(pixels(2))
    rgba = Image.fromarray(pixels(3, channels=4), "RGBA")
    palette = image.quantize(16)
    wide = RNG.integers(0, 65536, (5, 7, 4)).astype(">u2")
    keyed = RNG.integers(0, 3, (5, 7, 3)).astype("u1") * 100
    grey16 = RNG.integers(0, 3, (5, 7)).astype(">u2") * 1000
    nibbles = RNG.integers(0, 256, (5, 2)).astype("u1")
    files = {
        "jpeg 4:4:4": encode(image, "JPEG", subsampling=0, quality=95),
        "jpeg 4:2:0": encode(image, "JPEG", subsampling=2, quality=60),
        "jpeg progressive": encode(image, "JPEG", progressive=True),
        "jpeg grey": encode(image.convert("L"), "JPEG"),
        "jpeg with trailing bytes": encode(image, "JPEG") + b"camera notes" * 9,
        "png rgb": encode(image),
        "png rgba": encode(rgba),
        "png grey and alpha": encode(pixels(4, channels=2)),
        "png grey": encode(image.convert("L")),
        "png 1 bit": encode(image.convert("1")),
        "png palette": encode(palette),
        "png palette 2 bits": encode(image.quantize(4), bits=2),
        "png palette, one transparent": encode(palette, transparency=3),
        "png palette, many alphas": encode(palette, transparency=bytes(range(0, 160, 10))),
        "png 4-bit grey": raw_png(4, 5, 4, 0, [row.tobytes() for row in nibbles]),
        "png 16-bit grey": encode(Image.fromarray((np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8))),
        "png 16-bit grey, keyed": raw_png(
            7, 5, 16, 0, [row.tobytes() for row in grey16], chunk(b"tRNS", struct.pack(">H", 1000))
        ),
        "png 16-bit rgb": raw_png(7, 5, 16, 2, [row[:, :3].tobytes() for row in wide]),
        "png 16-bit rgba": raw_png(7, 5, 16, 6, [row.tobytes() for row in wide]),
        "png 16-bit grey and alpha": raw_png(7, 5, 16, 4, [row[:, :2].tobytes() for row in wide]),
        "png rgb, keyed": raw_png(
            7, 5, 8, 2, [row.tobytes() for row in keyed], chunk(b"tRNS", struct.pack(">HHH", 100, 0, 200))
        ),
        "png grey, keyed": raw_png(
            7, 5, 8, 0, [row[:, 0].tobytes() for row in keyed], chunk(b"tRNS", struct.pack(">H", 100))
        ),
        "png interlaced": adam7(pixels(6, 13, 11)),
        "webp lossy": encode(image, "WEBP"),
        "webp lossless": encode(image, "WEBP", lossless=True),
        "webp rgba": encode(rgba, "WEBP"),
        "gif": encode(image.quantize(64), "GIF"),
        "gif of two frames": encode(image.quantize(64), "GIF", save_all=True, append_images=[other.quantize(64)]),
        "bmp": encode(image, "BMP"),
    }
    for value in range(1, 9):
        files[f"jpeg orientation {value}"] = encode(image, "JPEG", exif=exif(value))
        files[f"png orientation {value}"] = encode(image, "PNG", exif=exif(value))
        files[f"webp orientation {value}"] = encode(image, "WEBP", exif=exif(value), lossless=True)
    return files


def odd_kinds():
    """Name -> bytes of good pictures that TensorFlow would decode to other pixels, or not at all."""
    image = Image.fromarray(pixels(1))
    keyed = RNG.integers(0, 65536, (5, 7, 3)).astype(">u2")
    return {
        "transparent gif": encode(image.quantize(16), "GIF", transparency=3),
        "bmp with a palette": encode(image.quantize(16), "BMP"),
        "bmp of 1 bit": encode(image.convert("1"), "BMP"),
        "bmp of 32 bits": encode(Image.fromarray(pixels(3, channels=4), "RGBA"), "BMP"),
        "animated webp": encode(image, "WEBP", save_all=True, append_images=[Image.fromarray(pixels(2))]),
        "16-bit rgb png, keyed": raw_png(
            7, 5, 16, 2, [row.tobytes() for row in keyed], chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3))
        ),
    }
