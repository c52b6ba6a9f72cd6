"""Multiply-accumulates and sizes by scope, against arithmetic, for zoo's layers and for foreign code."""

import pytest
import tensorflow as tf

import zoo
from zoo import layers
from zoo.scoping.cost import scope_costs


def rows(network, inputs, **options):
    return {row.scope: row for row in scope_costs(network, inputs, **options)}


def test_lenet5_by_hand():
    found = rows(zoo.lenet5.network, (32, 32, 1))
    assert {scope: row.macs for scope, row in found.items() if row.macs} == {
        "LeNet5/conv1": 28 * 28 * 6 * 25,
        "LeNet5/conv2": 10 * 10 * 16 * 150,
        "LeNet5/conv3": 120 * 400,
        "LeNet5/fc4": 84 * 120,
        "LeNet5/logits": 10 * 84,
    }
    assert found["LeNet5/conv2"].params == 2_416
    assert found["LeNet5/conv2"].output == (10, 10, 16)
    assert found["LeNet5/pool2"].output == (5, 5, 16)
    assert list(found)[:3] == ["LeNet5/conv1", "LeNet5/pool1", "LeNet5/conv2"]


def test_every_kind_of_layer():
    def net(x, *, is_training=False):
        with zoo.variable_scope("Net"):
            x = layers.conv2d(x, 8, [3, 3], stride=2, scope="strided")  # 8 x 8
            x = layers.conv2d(x, 8, [3, 3], groups=4, scope="grouped")
            x = layers.separable_conv2d(x, 10, [3, 3], 1, scope="separable")
            x = layers.conv2d_transpose(x, 4, [2, 2], stride=2, scope="up")  # 16 x 16
            x = layers.conv2d(x, 6, [1, 1], normalizer_fn=layers.batch_norm, scope="normed")
            x = layers.global_avg_pool(x)
            return layers.fully_connected(layers.flatten(x), 5, scope="dense"), {}

    macs = {scope.removeprefix("Net/"): row.macs for scope, row in rows(net, (16, 16, 3)).items() if row.macs}
    assert macs == {
        "strided": 8 * 8 * 8 * 27,
        "grouped": 8 * 8 * 8 * 9 * 2,
        "separable": 8 * 8 * (8 * 9 + 8 * 10),
        "up": 8 * 8 * 4 * 10 * 4,
        "normed": 16 * 16 * 6 * 4,
        "dense": 6 * 5,
    }


def test_products_of_activations_and_shared_weights():
    def net(x, *, is_training=False):
        with zoo.variable_scope("shared"):
            weights = zoo.get_variable("weights", [6, 6])
        with tf.name_scope("attention"):
            scores = tf.matmul(x, x, transpose_b=True)  # [1, 4, 4]
        return tf.tensordot(tf.tensordot(x, weights, 1), weights, 1), {"scores": scores}

    found = rows(net, (4, 6))
    assert found["shared"].macs == 2 * 4 * 6 * 6
    assert found["attention"].macs == 4 * 4 * 6


def test_foreign_code_is_counted():
    def net(x, *, is_training=False):
        with tf.compat.v1.variable_scope("old"):
            kernel = tf.compat.v1.get_variable("kernel", [3, 3, 2, 4])
            fixed = tf.compat.v1.get_variable("fixed", [4], trainable=False)
            return tf.nn.conv2d(x, kernel, 1, "VALID") + fixed

    found = rows(net, (5, 5, 2))["old"]
    assert found.macs == 3 * 3 * 4 * 18
    assert [(v.name, v.shape, v.trainable) for v in found.variables] == [
        ("old/kernel", (3, 3, 2, 4), True),
        ("old/fixed", (4,), False),
    ]


def test_unknown_sizes_are_refused():
    with pytest.raises(ValueError, match="give the input's full size"):
        rows(lambda x, is_training: layers.conv2d(x, 2, [3, 3], scope="conv"), (None, None, 3))
