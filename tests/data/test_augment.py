import numpy as np
import pytest
import tensorflow as tf

from zoo.data.augment import CIFAR10_MEAN, CIFAR10_STD, normalize, pad_crop_flip, shift_turn_zoom

IMAGES = np.random.default_rng(0).integers(1, 255, (200, 8, 6, 3)).astype(np.float32)


def places(image, pad):
    """Every picture that padding, cropping and mirroring can give."""
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)))
    crops = [padded[y : y + 8, x : x + 6] for y in range(2 * pad + 1) for x in range(2 * pad + 1)]
    return [*crops, *(crop[:, ::-1] for crop in crops)]


def test_every_result_is_one_of_the_shifted_and_mirrored_pictures_and_all_kinds_come():
    result = pad_crop_flip(tf.constant(IMAGES), tf.constant([1, 2]), pad=2).numpy()
    chosen = []
    for image, changed in zip(IMAGES, result, strict=True):
        fits = [index for index, place in enumerate(places(image, 2)) if np.array_equal(place, changed)]
        assert len(fits) == 1
        chosen += fits
    mirrored = sum(index >= 25 for index in chosen)
    assert len({index % 25 for index in chosen}) == 25 and 70 < mirrored < 130


def test_the_seed_decides():
    first, again, other = (pad_crop_flip(tf.constant(IMAGES), tf.constant([1, s])).numpy() for s in (2, 2, 3))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert np.array_equal(pad_crop_flip(tf.constant(IMAGES[:9]), [4, 4], pad=0, flip=False).numpy(), IMAGES[:9])


def test_one_picture_and_any_type():
    image = tf.constant(IMAGES[0].astype(np.uint8))
    result = pad_crop_flip(image, [5, 6])
    assert result.dtype == tf.uint8 and result.shape == (8, 6, 3)
    traced = tf.function(pad_crop_flip, input_signature=[tf.TensorSpec([None, 8, 6, 3]), tf.TensorSpec([2], tf.int32)])
    assert np.array_equal(traced(IMAGES, [1, 2]).numpy(), pad_crop_flip(tf.constant(IMAGES), [1, 2]).numpy())


def test_normalize():
    pixel = np.array([[125.3, 186.0, 47.2]], np.float32)
    np.testing.assert_allclose(
        normalize(tf.constant(pixel), CIFAR10_MEAN, CIFAR10_STD), [[0.0, 63 / 62.1, -1.0]], atol=1e-6
    )
    assert normalize(tf.zeros([2, 3], tf.uint8), CIFAR10_MEAN, CIFAR10_STD).dtype == tf.float32


def test_bad_input():
    with pytest.raises(ValueError, match="3 channels need"):
        normalize(tf.zeros([2, 3]), [1.0], [1.0])
    with pytest.raises(ValueError, match="above 0"):
        normalize(tf.zeros([2, 1]), [1.0], [0.0])
    with pytest.raises(ValueError, match="got -1"):
        pad_crop_flip(tf.zeros([1, 2, 2, 3]), [0, 0], pad=-1)
    with pytest.raises(ValueError, match=r"got shape \(2, 2\)"):
        pad_crop_flip(tf.zeros([2, 2]), [0, 0])


# Shifts, turns and zooms: exact where they can be, small, and the same for the same seed.
SEED = tf.constant([1, 2])


def blob(count=64, size=33):
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    picture = np.exp(-((x - 6) ** 2 + y**2) / 8) + np.exp(-(x**2 + y**2) / 8)
    return np.repeat(picture[np.newaxis, :, :, np.newaxis], count, 0).astype("float32")


def centres(images):
    """Centre of mass of each image, (x, y) from the middle."""
    images = np.asarray(images)[..., 0]
    y, x = np.mgrid[: images.shape[1], : images.shape[2]] - (images.shape[1] - 1) / 2
    mass = images.sum((1, 2))
    return np.stack([(images * x).sum((1, 2)) / mass, (images * y).sum((1, 2)) / mass], -1)


def test_nothing_moves_by_zero():
    assert np.allclose(shift_turn_zoom(blob(), SEED, shift=0, turn=0, zoom=0), blob(), atol=1e-6)


def test_the_seed_decides_what_moves():
    first, again = shift_turn_zoom(blob(), SEED), shift_turn_zoom(blob(), SEED)
    assert np.array_equal(first, again)
    assert not np.allclose(first, shift_turn_zoom(blob(), SEED + 1))
    assert not np.allclose(first[0], first[1])


def test_shifts_reach_their_limit_and_no_further():
    moved = centres(shift_turn_zoom(blob(400), SEED, shift=0.1, turn=0, zoom=0)) - centres(blob(1))
    assert np.abs(moved).max() <= 3.3 + 0.01
    assert np.abs(moved).max(axis=0).min() > 3.0
    assert np.abs(moved.mean(axis=0)).max() < 0.3


def test_turns_are_about_the_centre():
    turned = centres(shift_turn_zoom(blob(400), SEED, shift=0, turn=20, zoom=0))
    angles = np.degrees(np.arctan2(turned[:, 1], turned[:, 0]))
    assert 19 < np.abs(angles).max() < 20.5
    assert np.allclose(np.hypot(*turned.T), np.hypot(*centres(blob(1))[0]), atol=0.05)


def test_zooms_scale_about_the_centre():
    zoomed = centres(shift_turn_zoom(blob(400), SEED, shift=0, turn=0, zoom=0.2))
    ratios = zoomed[:, 0] / centres(blob(1))[0, 0]
    assert 0.79 < ratios.min() < 0.82
    assert 1.18 < ratios.max() < 1.21
    assert np.abs(zoomed[:, 1]).max() < 0.01


def test_static_shape_is_kept_in_a_dataset():
    dataset = tf.data.Dataset.from_tensor_slices(blob(8)).batch(4, drop_remainder=True)
    assert dataset.map(lambda x: shift_turn_zoom(x, SEED)).element_spec.shape == (4, 33, 33, 1)


def test_bad_amounts():
    with pytest.raises(ValueError, match="shift and turn are at least 0"):
        shift_turn_zoom(blob(), SEED, shift=-1)
    with pytest.raises(ValueError, match=r"zoom lies in \[0, 1\)"):
        shift_turn_zoom(blob(), SEED, zoom=1)
