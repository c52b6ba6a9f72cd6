"""Batch norm that a run is too short for."""

import keras
import numpy as np
import pytest

import zoo
from zoo.training import Trainer


def _zoo_model(decay):
    def network(inputs, *, is_training=False):
        net = zoo.layers.batch_norm(inputs, decay=decay, is_training=is_training, scope="norm")
        return zoo.layers.fully_connected(net, 3, activation_fn=None, scope="logits"), {}

    return zoo.Model(network, input_shape=(6,))


def _keras_model(decay):
    layers = keras.layers
    return keras.Sequential([keras.Input((6,)), layers.BatchNormalization(momentum=decay), layers.Dense(3)])


def _dense_net(decay):
    return zoo.densenet(block_config=(1,), growth_rate=2, input_shape=(8, 8, 3), num_classes=3, batch_norm_decay=decay)


def _warnings(model, steps, caplog, shape=(6,)):
    caplog.clear()
    data = np.ones([8, *shape], "float32"), np.zeros(8, "int64")
    Trainer(model, global_batch=8).fit(data, steps=steps, progress="none")
    return [record.getMessage() for record in caplog.records if "batch norm keeps" in record.getMessage()]


@pytest.mark.parametrize(("make", "shape"), [(_zoo_model, (6,)), (_keras_model, (6,)), (_dense_net, (8, 8, 3))])
def test_a_run_too_short_for_the_moving_statistics_is_named(make, shape, caplog):
    (said,) = _warnings(make(0.9), 9, caplog, shape)
    assert "keeps 0.9 of its moving statistics" in said
    assert "about 10 steps" in said
    assert "this run has 9" in said


@pytest.mark.parametrize("make", [_zoo_model, _keras_model])
def test_runs_that_are_long_enough_frozen_or_warm_say_nothing(make, caplog):
    assert not _warnings(make(0.9), 10, caplog)
    frozen = make(0.9)
    frozen.layers[0].trainable = False
    assert not _warnings(frozen, 9, caplog)
    warm = make(0.9)
    for variable in warm.non_trainable_variables:
        variable.assign(variable + 1.0)
    assert not _warnings(warm, 9, caplog)
