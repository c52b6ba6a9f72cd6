import numpy as np
import pytest
import tensorflow as tf
from data.pictures import encode, jpeg, kinds, odd_kinds, pixels, png
from PIL import Image

from zoo.data import images
from zoo.data.decode import decode_image

GOOD = {name: data for name, data in kinds().items() if images.GRAPH_READS_WEBP or "webp" not in name}


@pytest.fixture(scope="module")
def graph():
    return tf.function(decode_image, input_signature=[tf.TensorSpec([], tf.string)])


def test_the_graph_gives_the_pixels_that_pillow_gives(graph):
    different = [name for name, data in GOOD.items() if not np.array_equal(graph(data).numpy(), images.decode(data))]
    assert not different


def test_background_and_orientation_can_be_chosen(graph):
    rgba = encode(Image.fromarray(pixels(3, channels=4), "RGBA"))
    options = {"background": (9, 80, 170), "orient": False}
    files = [data for name, data in GOOD.items() if name in ("jpeg orientation 6", "png orientation 8", "webp rgba")]
    for data in (rgba, *files):
        assert np.array_equal(decode_image(data, **options).numpy(), images.decode(data, **options))


@pytest.mark.parametrize("reads", [True, False])
def test_webp_is_left_to_pillow_where_tensorflow_cannot_read_it(monkeypatch, reads):
    monkeypatch.setattr(images, "GRAPH_READS_WEBP", reads)
    data = kinds()["webp lossy"]
    assert images.same_in_graph(data) is reads
    assert (images.sniff(images.graph_bytes(data)) == "WEBP") is reads


def test_cmyk_is_within_a_level(graph):
    data = encode(Image.fromarray(pixels(4, channels=4), "CMYK"), "JPEG", quality=95)
    assert np.abs(graph(data).numpy().astype(int) - images.decode(data)).max() <= 1


def test_files_that_tensorflow_would_get_wrong_are_refused(graph):
    for name in ("transparent gif", "bmp with a palette", "bmp of 1 bit", "bmp of 32 bits", "animated webp"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="PNG"):
            graph(odd_kinds()[name])


def test_what_the_scan_refuses_the_graph_refuses_too(graph):
    for data in (b"", b"text", jpeg()[:-3], jpeg()[:300], png()[:-12], png()[:60], b"\xff\xd8\xff", b"RIFF", b"GIF89a"):
        with pytest.raises(images.ImageError):
            images.decode(data)
        with pytest.raises(tf.errors.InvalidArgumentError):
            graph(data)


def test_it_runs_in_tf_data_with_a_known_rank():
    dataset = tf.data.Dataset.from_tensor_slices([jpeg(1), png(2)]).map(decode_image, 2)
    assert dataset.element_spec.shape.as_list() == [None, None, 3]
    assert [x.shape for x in dataset.as_numpy_iterator()] == [(14, 20, 3)] * 2
