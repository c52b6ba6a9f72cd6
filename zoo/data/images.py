"""Encoded pictures to pixels with Pillow: the one meaning that a picture file has in zoo.

``decode`` is the reference: bytes in, uint8 RGB [H, W, 3] out. ``zoo.data.decode`` gives the same pixels inside a
TensorFlow graph for the files that ``same_in_graph`` names, which are all the usual ones.

- The format is told by the first bytes, never by the name: JPEG, PNG, GIF (first frame), BMP, WebP (first frame), TIFF
  (first page), JPEG 2000, AVIF where Pillow has it (from 11.3 on), and HEIC with ``pip install scoped-zoo[heif]``.
- The orientation in the Exif block is applied (``orient=False`` leaves it).
- Transparent pixels are composited on ``background``, white unless told: (c * a + b * (255 - a) + 127) // 255.
- 16-bit channels are scaled to 8 bits by their high byte. Grey pictures get three equal channels, CMYK becomes RGB.
- Nothing is ever repaired in place or half read: a file that is cut or damaged is an ``ImageError``. A JPEG that lacks
  nothing but its end marker is whole; ``remark`` says so.
"""

import contextlib
import functools
import io
import re
import struct
import warnings
from importlib import metadata
from typing import Any

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError, features

# What zoo calls a format -> what Pillow calls it. A graph reads the first five.
FORMATS = {
    **{name: name for name in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF")},
    "JPEG 2000": "JPEG2000",
    "HEIC": "HEIF",
}
IN_GRAPH = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".webp", ".tif", ".tiff", ".heic", ".heif"),
    *(".avif", ".jp2", ".j2k", ".j2c", ".jpx"),
)
SUFFIXES_UNSUPPORTED = (".jxl", ".psd", ".svg", ".ico")
MAX_PIXELS = 64_000_000  # below Pillow's own warning; a hostile file of a few bytes can ask for any size
WHITE = (255, 255, 255)
_MIXED = 1 << 20  # pixels that are composited at a time
GRAPH_READS_WEBP = tuple(int(part) for part in metadata.version("tensorflow").split(".")[:2]) >= (2, 20)

_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
_KNOWN = (
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"8BPS", "PSD"),
    (b"\0\0\1\0", "ICO"),
    (b"<svg", "SVG"),
    (b"<?xml", "XML or SVG"),
    (b"\0\5\x16\7", "AppleDouble"),
)
_AVIF = {b"avif", b"avis"}
_HEIC = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
_JPEG_END = b"\xff\xd9"
_JPEG_MARKER = re.compile(rb"\xff+[\x01-\xcf\xd8-\xfe]")  # neither a stuffed byte nor a restart


class ImageError(ValueError):
    """A picture that cannot be used.

    Args:
        reason: One of "empty", "not an image", "unsupported", "cut", "damaged", "too large".
        detail: What was found, and what to do.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def sniff(head: bytes) -> str | None:
    """Tells a picture's format from its first 32 bytes.

    Args:
        head: The start of the file.

    Returns:
        One of ``FORMATS``; another known format's name, which zoo does not read ("PSD", "SVG", ...); or None.
    """
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "GIF"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[:2] == b"BM" and len(head) >= 18 and struct.unpack_from("<I", head, 14)[0] in _BMP_HEADERS:
        return "BMP"
    if head[4:8] == b"ftyp":  # a box of brands: the chief one, a version, and those it is compatible with
        brands = {head[at : at + 4] for at in (8, 16, 20, 24, 28)}
        return "AVIF" if brands & _AVIF else "HEIC" if brands & _HEIC else None
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()  # markup may begin with a mark and white space
    start = text if text[:1] == b"<" else head
    return next((name for magic, name in _KNOWN if start.startswith(magic)), None)


@functools.cache
def _cannot_read(kind: str) -> str:
    """Says what is missing to read a known format; nothing when it can be read."""
    if kind not in FORMATS:
        return f"{kind} is not read; convert it to JPEG, PNG or WebP"
    if kind == "HEIC":
        try:
            import pillow_heif
        except ImportError:
            return f"{kind} is read with pillow-heif: pip install 'scoped-zoo[heif]', or convert it to JPEG"
        pillow_heif.register_heif_opener()
    feature = {"AVIF": "avif", "JPEG 2000": "jpg_2000"}.get(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an older Pillow does not know the word
        if feature and not features.check(feature):
            return f"{kind} is not read by this Pillow; pip install 'pillow>=11.3', or convert it to JPEG"
    return ""


def decode(
    data: bytes,
    *,
    background: tuple[int, int, int] = WHITE,
    orient: bool = True,
    max_pixels: int = MAX_PIXELS,
) -> np.ndarray:
    """Decodes a picture.

    Args:
        data: The file's bytes.
        background: RGB in 0..255 that shows through transparent pixels.
        orient: Turn and mirror as the Exif block says.
        max_pixels: A larger picture is refused before any of it is decoded.

    Returns:
        uint8 [H, W, 3], RGB.

    Raises:
        ImageError: the bytes are not a whole picture of a known format, or it is too large.
    """
    kind = sniff(data[:32])
    if not data:
        raise ImageError("empty", "the file has 0 bytes")
    if not kind:
        raise ImageError("not an image", f"starts with {data[:8].hex(' ')}, which no known format does")
    if missing := _cannot_read(kind):
        raise ImageError("unsupported", missing)
    if kind == "JPEG" and not _jpeg_ended(data):
        return _decode_endless(data, background=background, orient=orient, max_pixels=max_pixels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data), formats=[FORMATS[kind]]) as image:
                width, height = image.size
                if width * height > max_pixels:
                    raise ImageError("too large", f"{width} x {height} pixels, the limit is {max_pixels}")
                stored = _refuse_deep_tiff(image) if kind == "TIFF" else 1
                image.load()
                pixels, value = _to_rgb(image, data, background), _orientation(image)
        except Image.DecompressionBombError as error:
            raise ImageError("too large", f"{error}, the limit is {max_pixels}") from None
        except ImageError:
            raise
        except Exception as error:  # Pillow's plugins raise almost anything on hostile bytes
            cut = "truncated" in str(error).lower() or isinstance(error, EOFError)
            # Pillow names the object that it was given, and an EOFError may say nothing.
            words = "its head is damaged" if isinstance(error, UnidentifiedImageError) else str(error)
            why = words or type(error).__name__
            raise ImageError("cut" if cut else "damaged", f"{kind} of {len(data)} bytes: {why}") from None
    if kind == "PNG" and b"IEND" not in data[-4096:] and b"IEND" not in data:
        raise ImageError("cut", f"PNG of {len(data)} bytes ends before its IEND chunk")
    if kind == "TIFF":  # Pillow has turned it already
        return pixels if orient else turn(pixels, {6: 8, 8: 6}.get(stored, stored))
    return turn(pixels, value) if orient else pixels


def _refuse_deep_tiff(image: Image.Image) -> int:
    """Refuses samples that have no one meaning as 8 bits; returns the orientation that Pillow will apply."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    if image.mode in ("F", "I") or (image.mode.startswith("I;16") and tags.get(262) == 0):
        raise ImageError("unsupported", f"TIFF of mode {image.mode} is not read; convert it to 8 bits a channel")
    value = tags.get(ExifTags.Base.Orientation, 1)
    return value if value in range(1, 9) else 1


def remark(data: bytes) -> str:
    """Says what a person should know about how a picture is read: that it has more pages, or no end marker.

    Args:
        data: The bytes of a picture that ``decode`` accepts.

    Returns:
        Words that follow the file's name and a colon; empty for ordinary files.
    """
    kind = sniff(data[:32])
    if kind == "JPEG" and not _jpeg_ended(data):
        return "has no end marker, but all of its pixels"
    if kind == "TIFF":
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=["TIFF"]) as image:
                image.seek(1)
                return "has several pages; the first is read"
    return ""


def _jpeg_ended(data: bytes) -> bool:
    return _JPEG_END in data[-64:] or _jpeg_scans(data)[0]


def _jpeg_scans(data: bytes) -> tuple[bool, bool]:
    """Walks a JPEG's markers: whether its end marker is there, and whether scans of all its coefficients have begun."""
    at, left = 2, set[tuple[int, int]]()
    while found := _JPEG_MARKER.search(data, at):
        marker, at = data[found.end() - 1], found.end()
        if marker == 0xD9:
            return True, not left
        body = data[at + 2 : at + struct.unpack_from(">H", data.ljust(at + 2, b"\0"), at)[0]]
        at += 2 + len(body)
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            left = {(component, number) for component in body[6::3] for number in range(64)}
        elif marker == 0xDA and len(body) >= 6 and not body[-1] & 15:  # of the last bits
            left -= {(part, number) for part in body[1:-3:2] for number in range(body[-3], body[-2] + 1)}
    return False, not left


def _decode_endless(data: bytes, **options: Any) -> np.ndarray:
    """Decodes a JPEG without its end marker if nothing else is missing: then what comes after it changes no pixel."""
    whole = _jpeg_scans(data)[1]
    noise = (b"\x5a\xa5\x3c\xc3" * 16, b"\x93\x6c\x01\xfe" * 16)
    restarts = b"".join(bytes([0xFF, 0xD0 + number % 8]) + noise[0] for number in range(16))
    try:
        read = decode(data + _JPEG_END, **options)
    except ImageError as error:
        was, padded = (f"of {length} bytes" for length in (len(data), len(data) + len(_JPEG_END)))
        raise ImageError(error.reason, error.detail.replace(padded, was)) from None
    if not whole or any(
        not np.array_equal(read, decode(data + tail + _JPEG_END, **options)) for tail in (*noise, restarts)
    ):
        raise ImageError("cut", f"JPEG of {len(data)} bytes: its last pixels are missing")
    return read


def _to_rgb(image: Image.Image, data: bytes, background: tuple[int, int, int]) -> np.ndarray:
    key = image.info.get("transparency")
    if image.mode.startswith("I"):  # 16 bits of grey
        wide = np.asarray(image)
        grey = (wide >> 8).astype(np.uint8)
        rgba = np.stack([grey] * 3 + [np.where(wide == key, 0, 255).astype(np.uint8)], -1)
        return composite(rgba, background)
    if image.mode == "RGB" and key is not None and data[24] == 16:  # a colour key of 16 bits: Pillow keeps 8 of them
        key = None
    if key is not None or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        return composite(np.asarray(image.convert("RGBA")), background)
    return np.array(image.convert("RGB"))


def composite(rgba: np.ndarray, background: tuple[int, int, int]) -> np.ndarray:
    """Puts uint8 RGBA [H, W, 4] on a colour; returns uint8 [H, W, 3]."""
    result = np.empty((*rgba.shape[:2], 3), np.uint8)
    rows = max(1, _MIXED // max(1, rgba.shape[1]))
    for start in range(0, len(rgba), rows):  # of the largest picture allowed, the sums alone would take 0.8 GB
        part = rgba[start : start + rows].astype(np.int32)
        alpha = part[..., 3:]
        mixed = part[..., :3] * alpha + np.asarray(background, np.int32) * (255 - alpha)
        result[start : start + rows] = (mixed + 127) // 255
    return result


def turn(pixels: np.ndarray, value: int) -> np.ndarray:
    """Turns and mirrors [H, W, C] as the Exif orientation ``value`` (1 to 8) says."""
    if value in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if value in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if value in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def orientation(data: bytes) -> int:
    """Reads the Exif orientation of a JPEG, PNG or WebP, as Pillow finds it.

    Args:
        data: The bytes of a picture that ``decode`` accepts.

    Returns:
        1 to 8; 1, as stored, when there is none or it makes no sense.
    """
    if not any(marker in data for marker in (b"Exif\0\0", b"eXIf", b"EXIF")):
        return 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(Exception), Image.open(io.BytesIO(data), formats=IN_GRAPH) as image:
            if image.format == "PNG":
                image.load()  # the block may stand behind the pixels
            return _orientation(image)
    return 1


def _orientation(image: Image.Image) -> int:
    """Returns what a loaded picture's Exif block says; XMP, which Pillow's ``getexif`` would ask too, is not read."""
    exif = Image.Exif()
    with contextlib.suppress(Exception):  # a broken block does no harm
        exif.load(image.info.get("exif", b""))
        value = exif.get(ExifTags.Base.Orientation)
        return value if isinstance(value, int) and 1 <= value <= 8 else 1
    return 1


def _orientation_in_graph(data: bytes) -> int:
    """Returns what ``zoo.data.decode`` reads, which looks for the block by its marker alone."""
    kind = sniff(data[:32])
    if kind == "JPEG":
        tiff = data[:8192].partition(b"Exif\0\0")[2]
    elif kind == "PNG":
        tiff = data.partition(b"eXIf")[2]
    elif kind == "WEBP" and data[12:16] == b"VP8X" and data[20] & 8:
        tiff = data.partition(b"EXIF")[2][4:].removeprefix(b"Exif\0\0")
    else:
        return 1
    tiff = tiff[:8192]
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None or len(tiff) < 8:
        return 1
    start = struct.unpack_from(order + "I", tiff, 4)[0]
    if start + 2 > len(tiff):
        return 1
    for at in range(start + 2, start + 2 + 12 * struct.unpack_from(order + "H", tiff, start)[0], 12):
        if at + 12 > len(tiff):
            return 1
        tag, form = struct.unpack_from(order + "HH", tiff, at)
        if (tag, form) == (0x0112, 3):
            value = struct.unpack_from(order + "H", tiff, at + 8)[0]
            return value if 1 <= value <= 8 else 1
    return 1


def same_in_graph(data: bytes) -> bool:
    """Says whether ``zoo.data.decode.decode_image`` gives the pixels that ``decode`` gives.

    True for all but: TIFF, JPEG 2000, AVIF and HEIC; JPEGs with arithmetic coding, 12 bits or no end marker, 16-bit
    RGB PNGs with a colour key, GIFs that are transparent or whose first frame does not fill the canvas, BMPs of other
    than 24 bits, animated WebPs and, with TensorFlow before 2.20, all WebPs; and pictures whose Exif block a graph
    misses, as one behind the first 8 KiB.
    A CMYK JPEG counts as the same: a level may differ by 1.

    Args:
        data: The bytes of a picture that ``decode`` accepts.

    Returns:
        True when the graph's decoder can be used.
    """
    kind = sniff(data[:32])
    if kind not in IN_GRAPH or _orientation_in_graph(data) != orientation(data):
        return False
    if kind == "JPEG":
        return _jpeg_frame(data) in (0xC0, 0xC1, 0xC2) and _jpeg_ended(data)
    if kind == "PNG":
        return not (data[24] == 16 and data[25] == 2 and b"tRNS" in data.partition(b"IDAT")[0])
    if kind == "GIF":
        return _plain_gif(data)
    if kind == "BMP":
        return data[14] >= 40 and data[28] == 24
    return kind == "WEBP" and GRAPH_READS_WEBP and not (data[12:16] == b"VP8X" and data[20] & 2)


def _jpeg_frame(data: bytes) -> int:
    """Returns the marker of the first frame header (SOFn), 0 when there is none."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return marker if data[at + 4] == 8 else 0
        at += 1 if marker == 0xFF else 2 + struct.unpack_from(">H", data, at + 2)[0]
    return 0


def _plain_gif(data: bytes) -> bool:
    """True when the first frame is opaque and fills the canvas."""
    at = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)
    while at + 10 <= len(data) and data[at] == 0x21:  # extensions before the first frame
        if data[at + 1] == 0xF9 and data[at + 3] & 1:
            return False
        at += 2
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    return at + 10 <= len(data) and data[at] == 0x2C and data[at + 1 : at + 9] == b"\0\0\0\0" + data[6:10]


def graph_bytes(data: bytes, *, background: tuple[int, int, int] = WHITE, orient: bool = True) -> bytes:
    """Returns bytes that decode to the same pixels in a graph: ``data`` itself, or the picture as a PNG.

    Args:
        data: The bytes of a picture.
        background: As for ``decode``.
        orient: As for ``decode``.

    Returns:
        ``data`` when ``same_in_graph(data)``, else a PNG of its pixels.

    Raises:
        ImageError: the picture cannot be decoded.
    """
    if same_in_graph(data):
        return data
    return encode_png(decode(data, background=background, orient=orient))


def encode_png(pixels: np.ndarray) -> bytes:
    """Encodes uint8 [H, W, 3] as a PNG."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()
