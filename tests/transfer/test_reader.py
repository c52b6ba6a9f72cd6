"""Pictures much longer than wide: read in bounded memory, alike by Pillow and inside a graph."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.data.images import encode_png
from zoo.data.preprocessing import PRESETS
from zoo.transfer.reader import LONG, THIN, Reader


def picture(height, width):
    ramp = np.linspace(0, 255, height * width).reshape(height, width, 1)
    return np.repeat(ramp, 3, -1).astype(np.uint8)


def reader(fit="pad"):
    return Reader(PRESETS["inception"].with_size((75, 75)), fit=fit)


@pytest.mark.parametrize("shape", [(1, 60_000), (20_000, 1), (3, 2049), (40, 30), (2000, 500)])
def test_a_picture_is_prepared_alike_in_a_graph(shape):
    data = encode_png(picture(*shape))
    in_graph = tf.function(reader().read_in_graph)(tf.constant(data))
    np.testing.assert_allclose(reader().read(data), in_graph, atol=1e-5)


def test_the_square_of_a_thin_picture_is_small():
    assert reader().to_fit(picture(1, 60_000)).shape == (LONG, LONG, 3)
    line = reader().to_fit(picture(1, 60_000))[LONG // 2 - 1]
    assert line.std() > 50 and (np.diff(line[:, 0].astype(int)) >= 0).all()  # the ramp is still there
    for shape in ((LONG, 1), (LONG * 2, LONG * 2 // THIN)):  # others stay as they are
        pixels = picture(*shape)
        side, left = shape[0], (shape[0] - shape[1]) // 2
        square = reader().to_fit(pixels)
        assert square.shape == (side, side, 3)
        np.testing.assert_array_equal(square[:, left : left + shape[1]], pixels)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_preprocessing_makes_a_thin_picture_large(name, monkeypatch):
    made = []
    for module, function in ((tf.image, "resize"), (tf.raw_ops, "ResizeBilinear")):
        original = getattr(module, function)
        note = lambda *args, original=original, **how: (made.append(out := original(*args, **how)), out)[1]  # noqa: E731
        monkeypatch.setattr(module, function, note)
    prepare = PRESETS[name]
    ready = prepare(picture(1, 30_000))
    assert ready.shape[:2] == prepare.size
    assert all(tf.size(one) < 10_000_000 for one in made)
