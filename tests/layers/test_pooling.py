"""Pooling against the plain ops; sizes, defaults, errors."""

import numpy as np
import pytest
import tensorflow as tf

from zoo import layers


def images(*shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({"kernel_size": 2}, (2, 2, "VALID")),
        ({"kernel_size": [3, 2], "stride": [1, 2], "padding": "SAME"}, ([3, 2], [1, 2], "SAME")),
        ({"kernel_size": 3, "stride": 1, "padding": "valid"}, (3, 1, "VALID")),
    ],
)
def test_pools_are_the_plain_ops_outside_any_scope(options, plain):
    x = images(2, 7, 6, 3)
    np.testing.assert_array_equal(layers.max_pool2d(x, **options), tf.nn.max_pool2d(x, *plain))
    np.testing.assert_array_equal(layers.avg_pool2d(x, **options), tf.nn.avg_pool2d(x, *plain))


def test_slims_defaults_are_stride_2_and_valid():
    assert layers.max_pool2d(images(1, 7, 7, 2), 3).shape == (1, 3, 3, 2)
    assert layers.avg_pool2d(images(1, 7, 7, 2), [3, 3]).shape == (1, 3, 3, 2)


def test_global_average():
    x = images(2, 5, 4, 3)
    np.testing.assert_allclose(layers.global_avg_pool(x), x.mean((1, 2)), rtol=1e-5, atol=1e-6)
    assert layers.global_avg_pool(x, keep_dims=True).shape == (2, 1, 1, 3)
    assert layers.global_avg_pool(x, True, "NCHW").shape == (2, 5, 1, 1)


def test_global_average_of_half_precision_does_not_overflow():
    x = tf.fill([1, 64, 64, 1], tf.constant(100.0, tf.float16))
    assert layers.global_avg_pool(x).numpy().item() == 100.0


def test_names_in_a_graph():
    with tf.Graph().as_default():
        x = tf.zeros([1, 4, 4, 1])
        assert layers.max_pool2d(x, 2).op.name == "MaxPool2D/MaxPool"
        assert layers.max_pool2d(x, 2).op.name == "MaxPool2D_1/MaxPool"
        assert layers.avg_pool2d(x, 2, scope="pool1").op.name == "pool1/AvgPool"


@pytest.mark.parametrize(
    ("layer", "options", "message"),
    [
        (layers.max_pool2d, {"padding": 1}, "tf.pad first"),
        (layers.max_pool2d, {"padding": "FULL"}, "FULL"),
        (layers.avg_pool2d, {"data_format": "NHW"}, "NCHW or NHWC"),
        (layers.avg_pool2d, {"kernel_size": 9}, "avg_pool2d: a window of 9x9 does not fit"),
        (layers.avg_pool2d, {"kernel_size": "3"}, "kernel_size is a positive integer"),
    ],
)
def test_bad_arguments(layer, options, message):
    with pytest.raises(ValueError, match=message):
        layer(tf.zeros([2, 6, 6, 3]), **{"kernel_size": 2, **options})


def test_wrong_rank_and_type():
    with pytest.raises(ValueError, match="max_pool2d expects input with rank 4, got 3"):
        layers.max_pool2d(tf.zeros([6, 6, 3]), 2)
    with pytest.raises(ValueError, match="floating-point inputs, got int32"):
        layers.avg_pool2d(tf.zeros([1, 6, 6, 3], tf.int32), 2)
    with pytest.raises(ValueError, match="global_avg_pool expects input with rank 4, got 2"):
        layers.global_avg_pool(tf.zeros([6, 6]))
