import io
import struct
import sys
import warnings
import zlib

import numpy as np
import pytest
from data import pictures
from data.pictures import chunk, encode, exif, jpeg, kinds, odd_kinds, pixels, png, raw_png
from PIL import Image, ImageOps, features

from zoo.data import images
from zoo.data.decode import decode_image
from zoo.data.images import ImageError, decode

GOOD, ODD = kinds(), odd_kinds()


def reason(data, **options):
    with pytest.raises(ImageError) as error:
        decode(data, **options)
    return error.value.reason


@pytest.mark.parametrize("name", GOOD)
def test_every_kind_gives_rgb_bytes_with_the_orientation_applied(name):
    data = GOOD[name]
    result = decode(data)
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert result.dtype == np.uint8 and result.shape == (image.height, image.width, 3)
    if not any(word in name for word in ("alpha", "transparent", "rgba", "16-bit", "keyed")):
        assert np.array_equal(result, np.asarray(image.convert("RGB")))


def test_row_9_cmyk_jpegs_come_out_red():
    data = encode(Image.fromarray(np.tile(np.uint8([0, 255, 255, 0]), (8, 8, 1)), "CMYK"), "JPEG", quality=95)
    assert np.abs(decode(data).astype(int) - [255, 0, 0]).max() <= 3


def test_row_11_transparent_pixels_show_the_background_and_not_what_hides_below():
    data = encode(np.tile(np.uint8([10, 200, 30, 0]), (2, 2, 1)))
    assert (decode(data) == 255).all()
    assert (decode(data, background=(1, 2, 3)) == [1, 2, 3]).all()
    half = decode(encode(np.tile(np.uint8([100, 0, 200, 128]), (2, 2, 1))))
    assert half[0, 0].tolist() == [(c * 128 + 255 * 127 + 127) // 255 for c in (100, 0, 200)]


def test_row_13_orientation_is_applied_unless_told_otherwise():
    data = encode(
        np.zeros((8, 4, 3), np.uint8) + np.arange(8, dtype=np.uint8)[:, None, None] * 30, "JPEG", exif=exif(6)
    )
    assert decode(data).shape == (4, 8, 3)
    assert decode(data, orient=False).shape == (8, 4, 3)
    assert decode(data)[0, 0, 0] > decode(data)[0, -1, 0]  # the top row of the file is the right column


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_orientations_that_make_no_sense_are_ignored(value):
    assert images.orientation(jpeg(exif=exif(value))) == 1


@pytest.mark.parametrize(
    "block", [b"", b"II*\0", b"II*\0\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff", b"XX*\0\x08\0\0\0\1\0" + b"\0" * 12]
)
def test_broken_exif_blocks_do_no_harm(block):
    segment = b"Exif\0\0" + block
    data = jpeg()
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[2:]
    assert images.orientation(data) == 1 and np.array_equal(decode(data), decode(jpeg()))


def segment(marker, body):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
TIFF = exif(6).tobytes().removeprefix(b"Exif\0\0")
LATE = jpeg()[:2] + segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(9000)) + segment(0xE1, b"Exif\0\0" + TIFF) + jpeg()[2:]
LOOKS_SO = png()[:33] + chunk(b"tEXt", b"note\0eXIf" + TIFF) + png()[33:]
BEHIND = png()[:-12] + chunk(b"eXIf", TIFF) + png()[-12:]


@pytest.mark.parametrize(
    ("data", "value", "same"),
    [
        pytest.param(LATE, 6, False, id="a JPEG's block behind 9 KB of colour profile"),
        pytest.param(LOOKS_SO, 1, False, id="a PNG's text that reads like a block"),
        pytest.param(BEHIND, 6, True, id="a PNG's block behind its pixels"),
        pytest.param(jpeg(xmp=XMP), 1, True, id="XMP"),
        pytest.param(jpeg(exif=exif(6), xmp=XMP), 6, True, id="Exif and XMP"),
    ],
)
def test_the_orientation_is_what_pillow_finds_and_the_graph_gets_what_it_reads_alike(data, value, same):
    assert images.orientation(data) == value and images.same_in_graph(data) is same
    stored = decode(data, orient=False)
    assert np.array_equal(decode(data), images.turn(stored, value))
    assert np.array_equal(decode(images.graph_bytes(data)), decode(data))
    assert np.array_equal(decode_image(images.graph_bytes(data)), decode(data))


def test_row_15_grey_jpegs_get_three_equal_channels():
    result = decode(encode(pixels()[..., 0], "JPEG"))
    assert np.array_equal(result[..., 0], result[..., 1]) and np.array_equal(result[..., 0], result[..., 2])


def test_sixteen_bits_are_scaled_and_not_clipped():
    levels = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)
    assert np.array_equal(decode(encode(Image.fromarray(levels)))[..., 0], np.arange(256).reshape(16, 16))


@pytest.mark.parametrize(("form", "name"), [("BMP", "x.jpg"), ("WEBP", "x.jpeg"), ("GIF", "x.png"), ("PNG", "x.JPG")])
def test_rows_5_and_6_the_format_is_told_by_the_bytes(form, name):
    assert decode(encode(pixels(), form)).shape == (14, 20, 3)
    assert images.sniff(encode(pixels(), form)[:32]) == form


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "empty"),
        (b"hello world, this is text", "not an image"),
        (bytes.fromhex("00051607") + b"\0" * 60, "unsupported"),
        (b"\0" * 4096, "not an image"),
        (encode(pixels(), "TIFF")[:-40], "cut"),
        (encode(pixels(), "TIFF", compression="tiff_lzw")[:100], "damaged"),
        (encode(pixels(), "JPEG2000")[:-40], "damaged"),
        (encode(Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF"), "unsupported"),
        (encode(Image.fromarray(np.zeros((4, 4), np.int32)), "TIFF"), "unsupported"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "unsupported"),
        (b"\xef\xbb\xbf\n <?xml version='1.0'?><svg/>", "unsupported"),
        (b"\0\0\0\x18ftypmp42" + b"\0" * 40, "not an image"),
        (b"BM and then some text, not a bitmap at all", "not an image"),
        (jpeg()[: len(jpeg()) // 2], "cut"),
        (jpeg()[:-3], "cut"),
        (jpeg(progressive=True)[: jpeg(progressive=True).rindex(b"\xff\xda")], "cut"),
        (b"\xff\xd8\xff\xe0", "damaged"),
        (png()[: len(png()) // 2], "cut"),
        (png()[:-12], "cut"),
        (png()[:20], "damaged"),
        (encode(pixels(), "GIF")[:-40], "cut"),
        (encode(pixels(), "BMP")[:-400], "cut"),
        (encode(pixels(), "WEBP")[:-30], "damaged"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "damaged"),
    ],
)
def test_rows_1_2_14_bad_files_are_refused_with_a_reason(data, expected):
    assert reason(data) in ({expected, "cut"} if expected == "damaged" else {expected})


@pytest.mark.parametrize("form", ["TIFF", "JPEG2000", "AVIF", "HEIF"])
def test_formats_that_a_graph_cannot_read_are_read_and_converted(form):
    if form == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    if form == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    even = np.full((64, 48, 3), (200, 30, 90), np.uint8)
    data = encode(even, form)
    assert images.FORMATS[images.sniff(data[:32])] == form
    assert decode(data).shape == even.shape and np.abs(decode(data).astype(int) - even).max() <= 4
    assert not images.same_in_graph(data) and images.sniff(images.graph_bytes(data)) == "PNG"
    assert reason(data, max_pixels=100) == "too large"


def test_a_format_whose_reader_is_missing_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr(features, "check", lambda name: False)
    images._cannot_read.cache_clear()
    heif = r"scoped-zoo\[heif\]"
    for brand, words in ((b"heic", heif), (b"mif1", heif), (b"avif", r"pillow>=11.3")):
        with pytest.raises(ImageError, match=words):
            decode(b"\0\0\0\x18ftyp" + brand + b"\0" * 40)
    images._cannot_read.cache_clear()


@pytest.mark.parametrize("value", range(1, 9))
def test_a_tiff_is_turned_once_and_can_be_left_as_stored(value):
    data = encode(pixels(), "TIFF", exif=exif(value))
    assert np.array_equal(decode(data, orient=False), pixels())
    assert np.array_equal(decode(data), images.turn(pixels(), value))


def test_the_first_page_of_a_tiff_is_read_and_this_is_said():
    pages = [Image.fromarray(pixels(number)) for number in range(3)]
    data = encode(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert np.array_equal(decode(data), pixels(0)) and "first" in images.remark(data)
    assert not images.remark(encode(pages[0], "TIFF"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not images.remark(b"II*\0" + bytes([8, 0, 0, 0, 9, 0]))  # Pillow warns of such a directory


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_rows": 1}, {"exif": exif(6)}]
)
def test_a_jpeg_without_its_end_marker_is_whole_and_any_other_cut_is_not(options):
    noise = np.random.default_rng(0).integers(0, 255, (40, 56, 3), np.uint8)
    data = encode(noise, "JPEG", **options)
    bare = data[:-2]
    assert np.array_equal(decode(bare), decode(data))
    assert "end marker" in images.remark(bare) and not images.remark(data) and not images.remark(data + bytes(500))
    assert not images.same_in_graph(bare) and np.array_equal(decode(images.graph_bytes(bare)), decode(data))
    restarts = [at for at in range(600, len(bare)) if bare[at] == 0xFF]  # a cut here is the hardest to see
    for end in {*range(100, len(bare), 97), *restarts[::5], len(bare) - 1}:
        assert reason(data[:end]) in ("cut", "damaged"), end


def test_a_flipped_byte_inside_a_png_is_noticed():
    data = bytearray(png())
    data[len(data) // 2] ^= 1
    assert reason(bytes(data)) == "damaged"


def test_bombs_are_refused_before_they_are_decoded():
    bomb = raw_png(60000, 60000, 8, 2, [b""])
    assert reason(bomb) == "too large"
    assert reason(png(), max_pixels=100) == "too large"
    text = raw_png(4, 4, 8, 2, [b"\0" * 12] * 4, chunk(b"zTXt", b"k\0\0" + zlib.compress(b"\0" * 80_000_000)))
    assert reason(text) == "damaged"


@pytest.mark.parametrize("name", [name for name in GOOD if images.GRAPH_READS_WEBP or "webp" not in name])
def test_ordinary_files_go_to_the_graph_as_they_are(name):
    data = GOOD[name]
    assert images.same_in_graph(data) and images.graph_bytes(data) is data


@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_told_apart_and_become_pngs_of_the_same_pixels(name):
    data = ODD[name]
    assert not images.same_in_graph(data)
    assert np.array_equal(decode(images.graph_bytes(data)), decode(data))


def test_a_gif_whose_first_frame_is_smaller_than_the_canvas_is_odd():
    data = bytearray(encode(Image.fromarray(pixels()).quantize(8), "GIF"))
    data[6] += 4
    assert not images.same_in_graph(bytes(data))


def test_an_arithmetic_coded_jpeg_is_odd():
    data = bytearray(jpeg())
    at = data.index(b"\xff\xc0")
    data[at + 1] = 0xC9
    assert not images.same_in_graph(bytes(data))


def test_decoding_leaves_pillows_settings_alone():
    before = Image.MAX_IMAGE_PIXELS
    decode(pictures.png())
    assert before == Image.MAX_IMAGE_PIXELS
