"""Every network in the graph of a program that starts with `tf.compat.v1.disable_v2_behavior()`."""

import pytest
import tensorflow as tf

import zoo

PICTURES = [
    *((zoo.lenet5, (32, 32, 1), {"variant": variant}) for variant in ("dense", "original")),
    *((zoo.densenet_cifar, (16, 16, 3), {"depth": 10, "growth_rate": 4, "memory": m}) for m in ("store", "minimal")),
    (zoo.densenet, (32, 32, 3), {"block_config": (2, 2), "growth_rate": 4, "dropout_rate": 0.1}),
    (zoo.inception_v3, (107, 107, 3), {"depth_multiplier": 0.1, "num_classes": 5, "aux_logits": True}),
    (zoo.cifarnet, (24, 24, 3), {}),
    (zoo.sequence_tagger, (7, 8), {}),
    (zoo.row_classifier, (28, 28, 1), {}),
]


@pytest.mark.parametrize(("net", "shape", "options"), PICTURES, ids=lambda value: getattr(value, "__name__", None))
def test_shapes_that_hold_dimensions(net, shape, options):
    tf.compat.v1.disable_v2_tensorshape()
    try:
        with tf.Graph().as_default():
            images = tf.compat.v1.placeholder(tf.float32, [None, *shape])
            assert not isinstance(images.shape[1], int)
            logits, _ = net(images, is_training=True, **options)
            tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(logits))
            assert len(tf.compat.v1.trainable_variables()) > 3
    finally:
        tf.compat.v1.enable_v2_tensorshape()
