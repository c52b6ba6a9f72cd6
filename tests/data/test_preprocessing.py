"""Preprocessing equals what the weights were trained with: slim, Keras, torchvision; and it travels as plain values."""

import json
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from zoo.data.preprocessing import IMAGENET_MEAN, IMAGENET_STD, PRESETS, Preprocessing, get_preprocessing


def picture(height=400, width=600, seed=0):
    """A picture with smooth colour and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / 37 + c) + np.cos(y / 23 - c) for c in range(3)]
    noise = rng.normal(0, 10, (height, width, 3))
    return np.clip(128 + 45 * np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


def grey_levels(prepared, mean=0.5, std=0.5):
    """From a network's input back to 0..255."""
    return (np.asarray(prepared) * np.float64(std) + np.float64(mean)) * 255


def tf1_bilinear(image, height, width):
    """TF1's resize, written out: output pixel i reads input position i * in / out, between its two neighbours."""

    def axis(array, size):
        position = np.arange(size) * (array.shape[0] / size)
        low = np.floor(position).astype(int)
        high = np.minimum(low + 1, array.shape[0] - 1)
        part = (position - low).reshape(-1, 1, 1)
        return array[low] * (1 - part) + array[high] * part

    rows = axis(image.astype(np.float64), height)
    return axis(rows.transpose(1, 0, 2), width).transpose(1, 0, 2)


def test_slim_evaluation_crops_875_a_side_and_resizes_as_tf1():
    image = picture()
    cropped = image[25:375, 37:563]  # 350 x 526 of 400 x 600
    expected = tf1_bilinear(cropped, 299, 299)
    assert np.abs(grey_levels(PRESETS["inception"](image)) - expected).max() < 0.01
    other = tf.image.resize(cropped, [299, 299]).numpy()  # half-pixel centres: another picture
    assert np.abs(other - expected).max() > 1


def test_slim_crop_of_299():
    plain = Preprocessing(size=(263, 263), method="bilinear_tf1", central_fraction=0.875)
    image = picture(299, 299)
    np.testing.assert_allclose(grey_levels(plain(image)), image[18:281, 18:281], atol=0.01)


def test_values_of_single_pixels():
    image = np.array([0, 127, 128, 255], np.uint8).reshape(2, 2, 1).repeat(3, -1)
    found = Preprocessing(size=(2, 2))(image).numpy()[..., 0].ravel()
    np.testing.assert_allclose(found, [-1, -0.0039216, 0.0039216, 1], atol=1e-6)


def test_keras_resizes_only():
    image = picture()
    layer = keras.layers.Resizing(299, 299)(image.astype(np.float32))
    expected = keras.applications.inception_v3.preprocess_input(np.array(layer))
    np.testing.assert_allclose(PRESETS["inception_keras"](image), expected, atol=1e-5)
    torch_mode = keras.applications.imagenet_utils.preprocess_input(
        np.array(keras.layers.Resizing(224, 224)(image.astype(np.float32))), mode="torch", data_format="channels_last"
    )
    np.testing.assert_allclose(PRESETS["imagenet_keras"](image), torch_mode, atol=1e-4)


@pytest.mark.parametrize("size", [(400, 600), (501, 333), (900, 700), (200, 150)])
@pytest.mark.parametrize(
    ("name", "shorter", "crop"), [("inception_torchvision", 342, 299), ("imagenet_torchvision", 256, 224)]
)
def test_torchvision_is_within_one_grey_level_of_pillow(size, name, shorter, crop):
    height, width = size
    image = picture(height, width)
    scale = (shorter, int(shorter * width / height)) if height <= width else (int(shorter * height / width), shorter)
    resized = np.asarray(Image.fromarray(image).resize(scale[::-1], Image.Resampling.BILINEAR)).astype(float)
    top, left = (round((side - crop) / 2) for side in scale)
    expected = resized[top : top + crop, left : left + crop]
    found = grey_levels(PRESETS[name](image), IMAGENET_MEAN[::1], IMAGENET_STD)
    assert np.abs(found - expected).max() < 1.01
    assert np.mean(np.abs(found - expected) > 0.01) < 0.02


def test_slims_vgg_way_resizes_as_tf1_and_takes_means_from_grey_levels():
    image = picture()
    expected = (tf1_bilinear(image, 256, 384)[16:240, 80:304] - [123.68, 116.78, 103.94]) * 0.017
    found = PRESETS["imagenet_slim"](image).numpy()
    assert np.abs(found - expected).max() < 1e-4


def test_lenet_crops_or_pads():
    image = np.full((20, 40, 1), 255, np.uint8)
    found = PRESETS["lenet"](image).numpy()
    assert found.shape == (28, 28, 1)
    assert found[0, 0, 0] == -1
    np.testing.assert_allclose(found[14, 14, 0], 127 / 128, rtol=1e-6)


def test_batches_graphs_and_unknown_sizes_give_the_same():
    image = picture(120, 90)
    for name in ("inception", "inception_keras", "inception_torchvision"):
        prepare = PRESETS[name]
        alone = prepare(image).numpy()
        np.testing.assert_allclose(prepare(np.stack([image, image]))[1], alone, atol=1e-6)
        traced = tf.function(prepare, input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)])
        np.testing.assert_allclose(traced(image), alone, atol=2 / 255 / min(prepare.std))
        floats = prepare(image.astype(np.float32) / 255).numpy()
        np.testing.assert_allclose(floats, alone, atol=1e-4)


def test_training_picture_is_slims_sequence():
    """The same box, flip and colours as slim's steps give when they are made one by one from the same seeds."""
    image, prepare = picture(80, 120), Preprocessing(size=(40, 40), method="bilinear_tf1")
    seeds = tf.unstack(tf.random.experimental.stateless_split([3, 4], 8))
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        [80, 120, 3], [[[0.0, 0.0, 1.0, 1.0]]], seeds[0], 0.1, (0.75, 1.33), (0.05, 1.0), 100, True
    )
    (y, x, _), (height, width, _) = begin.numpy(), size.numpy()
    height, width = (height if height > 0 else 80), (width if width > 0 else 120)
    step = tf1_bilinear(image[y : y + height, x : x + width] / 255, 40, 40)
    step = tf.image.stateless_random_flip_left_right(tf.cast(step, tf.float32), seeds[2])
    step = tf.image.stateless_random_brightness(step, 32 / 255, seeds[3])
    step = tf.clip_by_value(tf.image.stateless_random_saturation(step, 0.5, 1.5, seeds[4]), 0, 1)
    found = prepare.distort(image, [3, 4])
    assert np.abs(grey_levels(found) - step.numpy() * 255).max() < 1


def test_training_pictures_vary_with_the_seed_only():
    image, prepare = picture(60, 80), Preprocessing(size=(32, 32))
    for fast in (True, False):
        first = prepare.distort(image, [1, 2], fast_mode=fast).numpy()
        assert first.shape == (32, 32, 3)
        assert first.min() >= -1
        assert first.max() <= 1
        np.testing.assert_array_equal(prepare.distort(image, [1, 2], fast_mode=fast), first)
        others = [prepare.distort(image, [1, i], fast_mode=fast).numpy() for i in range(3, 12)]
        assert all(np.abs(other - first).max() > 0.05 for other in others)
    with pytest.raises(ValueError, match="takes one picture"):
        prepare.distort(image[None], [1, 2])


def test_training_box_covers_the_object():
    image = np.zeros((100, 100, 3), np.uint8)
    image[40:60, 40:60] = 255
    boxes = [[[0.4, 0.4, 0.6, 0.6]]]
    prepare = Preprocessing(size=(32, 32))
    assert all(prepare.distort(image, [5, i], boxes=boxes).numpy().max() > 0 for i in range(20))


def test_it_travels_as_plain_values():
    for prepare in PRESETS.values():
        assert Preprocessing.from_dict(json.loads(json.dumps(prepare.to_dict()))) == prepare
        assert get_preprocessing(prepare.to_dict()) == prepare
    assert get_preprocessing("inception") is PRESETS["inception"]
    small = PRESETS["inception_torchvision"].with_size((128, 128))
    assert (small.size, small.shorter_side) == ((128, 128), 146)
    with pytest.raises(ValueError, match=r"No preprocessing is called 'vgg'; there are .*inception"):
        get_preprocessing("vgg")
    with pytest.raises(ValueError, match="has no field colour"):
        Preprocessing.from_dict({"colour": 1})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": (0, 5)}, "size must be"),
        ({"method": "lanczos"}, r"method must be one of .*Received: 'lanczos'"),
        ({"central_fraction": 1.5}, r"must lie in \(0, 1\]"),
        ({"shorter_side": 100}, "at least the larger side"),
        ({"mean": (0.5,)}, "must have 3 values"),
        ({"channels": 4}, "channels must be 1 or 3"),
    ],
)
def test_values_out_of_range(values, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**values)


def test_channels_are_converted_or_refused():
    assert PRESETS["lenet"](picture(28, 28)).shape == (28, 28, 1)
    assert PRESETS["inception"](picture(28, 28)[..., :1]).shape == (299, 299, 3)
    with pytest.raises(ValueError, match="1 or 3 channels"):
        PRESETS["inception"](np.zeros((28, 28, 4), np.uint8))
    with pytest.raises(ValueError, match="Received shape"):
        PRESETS["inception"](np.zeros((28, 28), np.uint8))


def test_wrong_ranges_are_warned_about(caplog):
    prepare = PRESETS["inception_keras"].with_size((8, 8))
    pixels = picture(8, 8)
    pixels[:2], pixels[-2:] = 0, 255  # black and white, so that the range is the whole one
    good = prepare(pixels)
    assert prepare.value_range == (-1, 1)
    with caplog.at_level(logging.WARNING):
        assert prepare.check_range(good)
        assert not caplog.messages
        assert not prepare.check_range(picture(8, 8).astype(np.float32))
        assert not prepare.check_range((good + 1) / 2)
        assert not prepare.check_range(good * 3)
        prepare(picture(8, 8).astype(np.float32))
    assert [("0..255" in m, "0..1:" in m or "to 0..1" in m) for m in caplog.messages[:2]] == [
        (True, False),
        (False, True),
    ]
    assert "some other way" in caplog.messages[2]
    assert "Float pictures are taken to lie in 0..1" in caplog.messages[3]
