"""NaN that a network hides from its loss is found in the gradient, at once, and named."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from training.small import make_trainer

from zoo.parallel import Towers
from zoo.training import NonFiniteLossError
from zoo.training.optimizers import gradient_sum


@pytest.mark.parametrize(
    "options",
    [{}, {"clip_norm": 1.0}, {"steps_per_call": 4}, {"accumulate": 2}, {"jit_compile": True}, {"towers": 2}],
    ids=str,
)
def test_nan_that_relu_hides_stops_the_run_at_its_step(options, tmp_path):
    layers = keras.layers
    if options.pop("towers", None):
        options["strategy"] = Towers([device.name for device in tf.config.list_logical_devices("CPU")[:2]])
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16, "relu", name="a"), layers.Dense(2)])
    inputs = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    labels = np.arange(64) % 2
    inputs[45, 2] = np.nan  # the third batch's number 13
    data = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(16)
    with pytest.raises(NonFiniteLossError) as caught:
        make_trainer(model, global_batch=None, **options).fit(
            data, steps=300, log_every=50, checkpoint_steps=2, folder=tmp_path, progress="none"
        )
    text = str(caught.value)
    kind = "loss" if options.get("jit_compile") else "gradient"  # XLA's ReLU lets NaN through
    assert text.startswith(f"the {kind} is not finite at step 3 (learning rate 0.1, epoch 1, batch 3)")
    assert "examples 13 of 16 (labels 1; their inputs hold NaN or Inf)" in text
    assert f"last good checkpoint is {tmp_path / 'model.ckpt-2'}" in text


def test_the_sum_of_gradients_is_finite_when_they_are():
    def rows(value):
        return tf.IndexedSlices(tf.constant([[value, 1.0]]), tf.constant([3]), tf.constant([9, 2]))

    assert float(gradient_sum([tf.constant([1.0, 2.0]), rows(3.0), tf.constant(1.0, tf.float64)])) == 8.0
    assert np.isfinite(float(gradient_sum([tf.fill([4], 1e30)])))
    for bad in (np.nan, np.inf, -np.inf):
        assert not np.isfinite(float(gradient_sum([tf.constant([1.0]), rows(bad)])))
