"""Freezing by scope, before and after `compile`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scoping.places import compiled, data, tiny

import zoo

X, Y = data()


def moved(model, before):
    return {
        n for n, w in zip(model.variable_names, model.get_weights(), strict=True) if not np.array_equal(w, before[n])
    }


def snapshot(model):
    return dict(zip(model.variable_names, model.get_weights(), strict=True))


def fit(model):
    before = snapshot(model)
    model.fit(X, Y, epochs=2, verbose=0)
    return {n.removeprefix("Tiny/") for n in moved(model, before)}


EVERYTHING = {"fc1/weights", "fc1/biases", "norm/mean", "fc2/weights", "fc2/biases"}
FC2 = {"fc2/weights", "fc2/biases"}


@pytest.mark.parametrize("compile_first", [False, True])
def test_freeze_by_glob(compile_first):
    model = zoo.Model(tiny, input_shape=(3,), seed=1)
    if compile_first:
        assert fit(compiled(model)) == EVERYTHING
    assert model.freeze("fc1", "nor*") == ["Tiny/fc1", "Tiny/norm"]
    if not compile_first:
        compiled(model)
    assert fit(model) == FC2
    assert model.unfreeze("fc1") == ["Tiny/fc1"]
    assert fit(model) == FC2 | {"fc1/weights", "fc1/biases"}
    model.unfreeze("*")
    assert fit(model) == EVERYTHING


def test_get_layer_trainable_also_after_compile():
    model = compiled(zoo.Model(tiny, input_shape=(3,), seed=1))
    fit(model)
    model.get_layer("fc1").trainable = False
    assert fit(model) == EVERYTHING - {"fc1/weights", "fc1/biases"}
    model.get_layer("Tiny").trainable = False
    before = snapshot(model)
    model.train_on_batch(X, Y)
    assert moved(model, before) == set()


def test_whole_model():
    model = compiled(zoo.Model(tiny, input_shape=(3,), seed=1))
    model.trainable = False
    before = snapshot(model)
    model(X, training=True)
    assert moved(model, before) == set()
    assert model.trainable_variables == []


def test_unfreezing_keeps_the_optimizers_state():
    model = zoo.Model(tiny, input_shape=(3,), seed=1)
    model.freeze("fc1")
    compiled(model)
    fit(model)
    momentum = {v.path: v.numpy() for v in model.optimizer.variables}
    model.unfreeze("fc1")
    after = {v.path: v.numpy() for v in model.optimizer.variables}
    assert set(momentum) < set(after)
    for path, value in momentum.items():
        np.testing.assert_array_equal(after[path], value)
    assert int(model.optimizer.iterations) == 2


def test_unfreezing_tells_scopes_of_one_name_apart():
    def network(x, *, is_training=False):
        for block in ("a", "b"):
            with zoo.variable_scope(block):
                x = zoo.layers.fully_connected(x, 3, scope="fc")
        return zoo.layers.fully_connected(x, 4, activation_fn=None, scope="out")

    model = compiled(zoo.Model(network, input_shape=(3,), seed=1))
    assert len({w.path for w in model.weights}) == len(model.weights)
    model.freeze("out")
    model.optimizer.build(model.trainable_variables)
    fit(model)
    before = {v.path: v.numpy() for v in model.optimizer.variables}
    model.unfreeze("out")
    after = {v.path: v.numpy() for v in model.optimizer.variables}
    assert len(after) == len(before) + 2
    assert all(np.array_equal(after[path], value) for path, value in before.items())


def test_patterns_must_match():
    model = zoo.Model(tiny, input_shape=(3,))
    with pytest.raises(ValueError, match=r"'fc9' matches none.*fc1"):
        model.freeze("fc1", "fc9")
    assert model.get_layer("fc1").trainable


def test_predictions_see_the_change():
    model = compiled(zoo.Model(tiny, input_shape=(3,), seed=1))
    model.predict(X, verbose=0)
    model.freeze("*")
    model.variable("fc2/biases").assign(np.full(4, 100.0))
    assert model.predict(X, verbose=0).min() > 50


@pytest.mark.parametrize("when", ["before", "after"])
def test_frozen_batch_norm_runs_on_moving_statistics(when):
    def network(x, *, is_training=False):
        with zoo.variable_scope("net"):
            x = zoo.layers.batch_norm(x, is_training=is_training, scale=True, decay=0.5, scope="bn")
            return zoo.layers.fully_connected(x, 4, activation_fn=None, scope="fc")

    x = X * 3 + 5
    model = zoo.Model(network, input_shape=(3,), seed=1)
    if when == "after":
        compiled(model).fit(x, Y, verbose=0)
    model.freeze("bn")
    if when == "before":
        compiled(model)
    before = snapshot(model)
    model.fit(x, Y, epochs=2, verbose=0)
    assert moved(model, before) == {"net/fc/weights", "net/fc/biases"}
    np.testing.assert_allclose(model(x, training=True), model(x, training=False), rtol=1e-6)
    model.unfreeze("bn")
    model.fit(x, Y, verbose=0)
    assert "net/bn/moving_mean" in moved(model, before)
    assert not np.allclose(model(x, training=True), model(x, training=False))


def test_frozen_batch_norm_of_tf_slim():
    import zoo.slim as slim

    def network(x, *, is_training=False):
        x = slim.fully_connected(
            x, 4, normalizer_fn=slim.batch_norm, normalizer_params={"is_training": is_training}, scope="fc"
        )
        return slim.fully_connected(x, 4, activation_fn=None, scope="out")

    model = compiled(zoo.Model(network, input_shape=(3,), seed=1))
    before = snapshot(model)
    model.fit(X, Y, verbose=0)
    assert "fc/BatchNorm/moving_mean" in moved(model, before)
    model.freeze("fc")
    before = snapshot(model)
    model.fit(X, Y, verbose=0)
    assert moved(model, before) == {"out/weights", "out/biases"}


def test_freezing_with_mixed_float16_keeps_the_loss_scale():
    model = zoo.Model(tiny, input_shape=(3,), dtype="mixed_float16", seed=1)
    model.freeze("fc1")
    compiled(model)
    model.fit(X, Y, verbose=0)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    scale = float(model.optimizer.dynamic_scale)
    model.unfreeze("fc1")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert float(model.optimizer.dynamic_scale) == scale
    before = snapshot(model)
    model.fit(X, Y, epochs=3, verbose=0)
    assert "Tiny/fc1/weights" in moved(model, before)
    assert tf.math.is_finite(model.losses[0])
