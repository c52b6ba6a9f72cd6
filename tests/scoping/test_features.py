"""A model looks at its inputs: their range, their type, their shape; and no pictures give no features."""

import logging

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import weights


@pytest.fixture(scope="module")
def model():
    return zoo.inception_v3(
        num_classes=None, aux_logits=False, depth_multiplier=0.125, min_depth=4, input_shape=(75, 75, 3), seed=1
    )


@pytest.fixture
def pictures():
    return np.random.default_rng(0).uniform(-1, 1, (2, 75, 75, 3)).astype(np.float32)


@pytest.fixture
def loaded(model, tmp_path):
    """The model after `zoo.weights.load` of its own weights, in a file of names alone."""
    weights.save(model, tmp_path / "thin.ckpt")
    weights.load(model, tmp_path / "thin.ckpt")
    return model


def said(caplog):
    """What zoo said; TensorFlow warns of its own in a process with many functions."""
    return [record.getMessage() for record in caplog.records if record.name.split(".")[0] == "zoo"]


def test_the_range_is_checked_after_weights_load(loaded, pictures, caplog):
    assert loaded.card["input_range"] == [-1, 1]
    assert loaded.card["preprocessing"]["size"] == [75, 75]
    with caplog.at_level(logging.WARNING, "zoo"):
        loaded.bottleneck(pictures)
        assert not said(caplog)
        loaded.bottleneck(pictures * 127 + 128)
    assert "0..255" in said(caplog)[0] and "from_dict(model.card" in said(caplog)[0]


def test_features_warn_of_the_first_inputs(loaded, pictures, caplog):
    with caplog.at_level(logging.WARNING, "zoo"):
        loaded.features(pictures * 127 + 128, "Conv2d_1a_3x3")
        loaded.features(pictures * 127 + 128, "Conv2d_1a_3x3")
    assert len(said(caplog)) == 1 and "0..255" in said(caplog)[0]


def test_inputs_that_are_not_finite_are_named(loaded, pictures, caplog):
    pictures[0, 0, 0] = np.nan
    pictures[1, 0, 0, 0] = np.inf
    with caplog.at_level(logging.WARNING, "zoo"):
        loaded.bottleneck(pictures)
    assert f"4 of {pictures.size} input values are not finite (3 NaN, 1 infinite)" in said(caplog)[0]


def test_integer_pictures_are_pointed_to_the_models_own_preprocessing(model):
    pixels = np.zeros((1, 75, 75, 3), np.uint8)
    for run in (model, model.bottleneck):
        with pytest.raises(ValueError, match=r'got uint8.*Preprocessing.from_dict\(model.card\["preprocessing"\]\)'):
            run(pixels)


@pytest.mark.parametrize("shape", [(75, 75, 3), (2, 75, 75, 1)])
def test_a_wrong_shape_is_said_in_the_networks_own_words(model, shape):
    with pytest.raises(ValueError, match=r"^images must be \[N, H, W, 3\]"):
        model.bottleneck(np.zeros(shape, np.float32))


def test_no_pictures_give_no_features(model, pictures):
    width = model.bottleneck(pictures).shape[1]
    assert model.bottleneck(pictures[:0]).shape == (0, width)
    assert model(pictures[:0]).shape == (0, 1, 1, width)
    assert model.features(pictures[:0], "Conv2d_1a_3x3").shape == (0, 37, 37, 4)
    assert model.predict(pictures[:0], verbose=0).shape == (0, 1, 1, width)


@pytest.mark.parametrize(
    "name", ["inception_v3", "densenet_cifar", "lenet5", "cifarnet", "row_classifier", "sequence_tagger"]
)
def test_a_negative_number_of_classes_is_named(name):
    with pytest.raises(ValueError, match=r"num_classes (is|must be) .*-1"):
        zoo.create(name, num_classes=-1)


GOOD = {"what": "digits", "brightness": [0, 1], "contrast": [0.1, 0.5], "detail": [0, 2.0]}


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ({"input_range": [-1, "1"]}, "input_range is the least and the most of two numbers"),
        ({"input_range": [1, -1]}, "input_range is the least"),
        ({"input_range": [0, float("nan")]}, "input_range is the least"),
        ({"input_range": 3}, "input_range is the least"),
        ({"pictures": GOOD | {"contrast": None}}, "pictures: contrast is the least"),
        ({"pictures": {"brightness": [0, 1]}}, "pictures: contrast is the least"),
        ([1], "a mapping"),
    ],
)
def test_a_card_of_other_types_is_refused_when_it_is_given(card, message):
    model = zoo.Model(lambda x, *, is_training: x, input_shape=(4, 4, 1), name="same")
    with pytest.raises(ValueError, match=message):
        model.card = card
    assert model.card == {}
    for fine in ({"pictures": "photographs"}, {"pictures": GOOD, "input_range": [-1.0, 1]}, {}):
        model.card = fine
        model(np.zeros([1, 4, 4, 1], np.float32))


def test_a_card_does_not_stop_a_function_that_is_given_a_constant():
    model = zoo.Model(lambda x, *, is_training: x, input_shape=(4, 4, 1), name="same")
    model.card = {"pictures": GOOD, "input_range": [-1.0, 1]}
    images = tf.ones([2, 4, 4, 1])
    assert tf.function(lambda: model(images))().shape == (2, 4, 4, 1)
