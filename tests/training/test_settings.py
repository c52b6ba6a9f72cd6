"""Settings that make no sense are refused before anything is written; parts of a batch are never empty."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from training.small import make_data, make_trainer, weights

from zoo.training import ConfigChangedError, make_schedule


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": np.nan}, "learning_rate must be a finite number, received nan"),
        ({"learning_rate": np.float32(np.inf)}, "learning_rate must be a finite number, received inf"),
        ({"clip_norm": np.nan}, "clip_norm must be a finite number"),
        ({"averages": np.nan}, "averages must be a finite number"),
        ({"class_weights": {0: 1.0, 1: np.nan, 2: 1.0}}, r"class_weights\[1\] must be a finite number"),
        ({"multipliers": {"logits": np.inf}}, r"multipliers\['logits'\] must be a finite number"),
        ({"accumulate": 9}, "accumulate=9 splits a batch into more parts than it has examples: the batch is 8"),
    ],
)
def test_settings_of_the_trainer(options, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(**options)


@pytest.mark.parametrize("name", ["min_delta", "checkpoint_minutes", "keep_every_hours"])
def test_options_of_a_run(name, tmp_path):
    with pytest.raises(ValueError, match=f"{name} must be a finite number, received nan"):
        make_trainer().fit(make_data(), epochs=1, folder=tmp_path / "run", **{name: np.nan})
    assert not (tmp_path / "run").exists()


def test_a_schedule_is_finite():
    with pytest.raises(ValueError, match="learning_rate must be a finite number"):
        make_schedule("cosine", learning_rate=np.inf, decay_steps=10)


def test_a_warm_up_and_a_profile_beyond_the_run_are_said(caplog):
    rate = make_schedule("constant", learning_rate=0.1, warmup_steps=2)
    make_trainer(learning_rate=rate).fit(make_data(), steps=2, profile=(5, 9), progress="none")
    assert "the warm-up takes 2 steps, but the run has 2" in caplog.text
    assert "the profile is of steps 5 to 9, but the run has 2: nothing is traced" in caplog.text
    caplog.clear()
    make_trainer(learning_rate=rate).fit(make_data(), steps=3, progress="none")
    assert not [record for record in caplog.records if record.name == "zoo"]


def test_a_batch_larger_than_the_data_is_said(caplog):
    make_trainer(global_batch=48).fit(make_data(), steps=1, progress="none")
    assert "a batch is to have 48 examples, but the data has 40" in caplog.text
    caplog.clear()
    make_trainer(global_batch=40).fit(make_data(), steps=1, progress="none")
    assert not [record for record in caplog.records if record.name == "zoo"]


def test_class_weights_are_checked_before_the_folder(tmp_path):
    with pytest.raises(ValueError, match=r"must name all classes 0 to 2; missing \[1, 2\]"):
        make_trainer(class_weights={0: 1.0}).fit(make_data(), epochs=1, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_length_of_a_schedule_says_what_to_do(tmp_path):
    def train(epochs, **options):
        rate = make_schedule("cosine", learning_rate=0.1, decay_steps=5 * epochs)
        trainer = make_trainer(learning_rate=rate, **options)
        return trainer.fit(make_data(), epochs=epochs, folder=tmp_path, progress="none")

    train(1)
    with pytest.raises(ConfigChangedError, match=r"decay_steps: 5 -> 10\n.*--accept-changes.*--schedule constant"):
        train(2)
    make_trainer(learning_rate=0.1).fit(make_data(), epochs=1, folder=tmp_path / "a", progress="none")
    with pytest.raises(ConfigChangedError) as caught:
        make_trainer(learning_rate=0.2).fit(make_data(), epochs=1, folder=tmp_path / "a", progress="none")
    assert "spans the run" not in str(caught.value)


def test_accumulate_is_compared_with_the_batch_of_the_data(tmp_path):
    data = tf.data.Dataset.from_tensor_slices(make_data()).batch(4, drop_remainder=True)
    with pytest.raises(ValueError, match=r"accumulate=5 .* the batch is 4; lower accumulate to at most 4"):
        make_trainer(global_batch=None, accumulate=5).fit(data, epochs=1, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("accumulate", "count"), [(7, 10), (5, 8), (6, 4)])
def test_parts_that_would_be_empty_are_left_out(accumulate, count):
    """10 examples in 7 parts are 5 of 2; regularization counts once all the same."""
    found = []
    for parts in (1, accumulate):
        keras.utils.set_random_seed(1)
        layers = keras.layers
        hidden = layers.Dense(4, "tanh", kernel_regularizer=keras.regularizers.L2(0.1))
        model = keras.Sequential([keras.Input((6,)), hidden, layers.Dense(3)])
        trainer = make_trainer(model, global_batch=None, accumulate=parts)
        data = tf.data.Dataset.from_tensor_slices(make_data(count)).batch(count)
        line = trainer.fit(data, steps=1, progress="none").lines[-1]
        found.append((line["loss"], line["regularization_loss"], weights(model)))
    assert found[1][:2] == pytest.approx(found[0][:2], rel=1e-5)
    for one, other in zip(found[0][2], found[1][2], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_batch_norm_sees_no_empty_part():
    layers = keras.layers
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(3)])
    data = tf.data.Dataset.from_tensor_slices(make_data(10)).batch(10)
    make_trainer(model, global_batch=None, accumulate=7).fit(data, steps=2, progress="none")
    assert all(np.isfinite(values).all() for values in weights(model))
