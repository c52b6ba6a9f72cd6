"""The CIFAR-10 network of TensorFlow's guide: its count from its layers, its names, its normalisation, its data."""

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.data.augment import crop_flip


def test_parameters_follow_from_the_layers():
    layers = {"conv1": (5, 5, 3, 64), "conv2": (5, 5, 64, 64), "local3": (6 * 6 * 64, 384), "local4": (384, 192)}
    layers["softmax_linear"] = (192, 10)
    model = zoo.cifarnet()
    for name, shape in layers.items():
        assert tuple(model.variable(f"{name}/weights").shape) == shape
        assert tuple(model.variable(f"{name}/biases").shape) == shape[-1:]
    total = sum(int(np.prod(shape)) + shape[-1] for shape in layers.values())
    assert model.count_params() == total == 1_068_298
    assert model.variable_names == [f"{name}/{kind}" for name in layers for kind in ("weights", "biases")]


def test_normalisation_is_krizhevskys_in_every_precision():
    net = np.random.default_rng(0).normal(size=(2, 3, 3, 16)) * 30
    expected = np.empty_like(net)
    for i in range(16):
        around = net[..., max(0, i - 4) : i + 5]
        expected[..., i] = net[..., i] / (1 + 0.001 / 9 * (around**2).sum(-1)) ** 0.75
    from zoo.nets.cifarnet import _normalise

    np.testing.assert_allclose(_normalise(tf.constant(net), "n"), expected, rtol=1e-12)
    np.testing.assert_allclose(_normalise(tf.constant(net, tf.float32), "n"), expected, rtol=1e-5)


def test_decay_of_the_two_local_layers_alone():
    model = zoo.cifarnet(seed=1)
    weights = [np.array(model.variable(f"local{i}/weights"), np.float64) for i in (3, 4)]
    assert float(tf.add_n(model.losses)) == pytest.approx(sum(0.004 * (w**2).sum() / 2 for w in weights), rel=1e-5)
    assert zoo.cifarnet(weight_decay=0.0).losses == []


def test_features_and_mistakes():
    assert zoo.cifarnet(num_classes=None)(tf.zeros([2, 24, 24, 3])).shape == (2, 192)
    assert zoo.cifarnet(input_shape=(32, 32, 3)).variable("local3/weights").shape == (4096, 384)
    with pytest.raises(ValueError, match="crop or resize"):
        zoo.cifarnet(input_shape=(24, 24, 1))
    with pytest.raises(ValueError, match="at least 1"):
        zoo.cifarnet(num_classes=0)


def test_random_crops_are_parts_of_the_picture():
    picture = np.arange(32 * 32 * 3, dtype=np.float32).reshape(1, 32, 32, 3).repeat(20, 0)
    crops = crop_flip(tf.constant(picture), tf.constant([1, 2]), (24, 24)).numpy()
    assert crops.shape == (20, 24, 24, 3)
    corners = set()
    for crop in crops:
        upright = crop if crop[0, 1, 0] > crop[0, 0, 0] else crop[:, ::-1]
        top, left = divmod(int(upright[0, 0, 0]) // 3, 32)
        np.testing.assert_array_equal(upright, picture[0, top : top + 24, left : left + 24])
        corners.add((top, left))
    assert len(corners) > 10
    with pytest.raises(ValueError, match="cannot be cut"):
        crop_flip(tf.constant(picture), tf.constant([1, 2]), (40, 24))


@pytest.mark.parametrize("augment", [True, False])
def test_pictures_of_32_are_cut_for_it(tmp_path, augment):
    from zoo.cli._train_data import DataOptions, load

    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    chance = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        rows = chance.integers(0, 256, (20, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(20) % 10
        (folder / name).write_bytes(rows.tobytes())
    options = DataOptions(data="cifar10", batch=8, augment=augment, validation=0.2, data_dir=folder)
    found = load(options, (24, 24, 3), zoo.cifarnet.spec.preprocessing, None)
    for stream in (found.train, found.validation, found.test):
        images, labels = next(iter(stream(0)))
        assert images.shape[1:] == (24, 24, 3)
        assert len(images) == len(labels)
