"""Folded networks give the model's numbers: every registered network, with trained and with extreme statistics."""

import numpy as np
import pytest
import tensorflow as tf
from ways_out import CASES

import zoo

# what breaks a careless folding, beside ordinary values
EXTREME = {"gamma": (0.0, -1.5, 2.0, 0.7), "moving_variance": (1e-8, 4.0, 0.5), "moving_mean": (0.3, -0.2, 0.0)}
EVERY = 8  # so many norms have one extreme variance: 48 in a row overflow float32


def trained(model):
    """Gives the norms of a model statistics as training leaves them, and such as break a careless folding."""
    rng, variances = np.random.default_rng(1), 0
    for name in model.variable_names:
        variable, leaf = model.variable(name), name.rpartition("/")[2]
        if leaf in EXTREME:
            variances += leaf == "moving_variance"
            ordinary = leaf == "moving_variance" and variances % EVERY != 1
            values = (1.0, 4.0, 0.5) if ordinary else EXTREME[leaf]
            variable.assign(np.resize(np.float32(values), variable.shape))
        elif leaf in ("beta", "biases"):
            variable.assign(rng.normal(0, 0.2, variable.shape))
    return model


def close(found, expected, tolerance=1e-5):
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape and np.isfinite(a).all()
        assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-6)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=pytest.mark.slow if c.slow else ()) for c in CASES])
def test_every_network_folds_to_the_same_numbers(case):
    model, inputs = case.build(seed=1), case.inputs()
    if not model.built:
        model(inputs)
    expected = trained(model)(inputs)
    folded = zoo.fold(model)
    close(folded(inputs), expected)
    norms = sum(name.endswith("moving_variance") for name in model.variable_names)
    if "inception" in case.net:
        assert (folded.folded_norms, folded.norms_left) == (norms, 0)


def test_every_registered_network_is_here():
    presets = {f"densenet{depth}" for depth in (121, 161, 169, 201, 264)}
    assert set(zoo.list_nets()) == {case.net for case in CASES} | presets


def test_a_dense_block_folds_the_norms_behind_convolutions_and_sums_of_them():
    options = {"block_config": (3,), "growth_rate": 300, "bottleneck": 1, "stem": "cifar", "stem_channels": 8}
    model = trained(zoo.densenet(seed=1, num_classes=3, input_shape=(8, 8, 3), **options))
    x = np.random.default_rng(0).uniform(-1, 1, [2, 8, 8, 3]).astype(np.float32)
    folded = zoo.fold(model)
    close(folded(x), model(x))
    assert folded.folded_norms == 3  # the second norm of each layer, behind the sum over 1, 2 and 3 pieces
    assert "AddN" in {op.type for op in folded.function.get_concrete_function().graph.get_operations()}


def test_a_folded_network_has_weights_of_its_own_and_end_points():
    model = trained(zoo.lenet5(seed=1, input_shape=(32, 32, 1)))
    x = np.random.default_rng(0).uniform(0, 1, [2, 32, 32, 1])
    name = next(iter(model.end_point_specs))
    close(zoo.fold(model, end_point=name)(x), model.features(x, name))
    folded, before = zoo.fold(model), np.asarray(model(x))
    model.variable(model.variable_names[0]).assign_add(tf.ones_like(model.variable(model.variable_names[0])))
    close(folded(x), before)
    assert folded(x[:0]).shape == (0, *before.shape[1:])


def test_what_cannot_be_folded_is_named():
    with pytest.raises(TypeError, match=r"takes a zoo\.Model, got a str"):
        zoo.fold("lenet5")
    with pytest.raises(ValueError, match="takes a built model"):
        zoo.fold(zoo.Model(zoo.lenet5.network))
    model = zoo.lenet5(input_shape=(32, 32, 1))
    with pytest.raises(ValueError, match="end point"):
        zoo.fold(model, end_point="nowhere")


def test_a_network_in_mixed_precision_folds_in_it():
    options = {"block_config": (2, 2), "growth_rate": 4, "input_shape": (32, 32, 3), "num_classes": 3}
    model = trained(zoo.densenet(seed=1, dtype="mixed_bfloat16", **options))
    x = np.random.default_rng(0).uniform(-1, 1, [2, 32, 32, 3]).astype(np.float32)
    close(zoo.fold(model)(x), model(x), 0.05)
