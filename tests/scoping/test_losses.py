"""Losses on logits: every network, every loss of Keras, spelled in every way."""

import functools
import inspect
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_contracts import DESCRIPTORS, PRESETS

import zoo
from zoo.training import Trainer

L = keras.losses
# What takes probabilities unless told otherwise, by Keras' own signatures.
CLASSES = {
    name: found
    for name, found in vars(L).items()
    if isinstance(found, type) and "from_logits" in inspect.signature(found).parameters
}
FUNCTIONS = {
    found: name
    for name, found in vars(L).items()
    if inspect.isfunction(found) and "from_logits" in inspect.signature(found).parameters
}
SMALL = {"word_lm": {"vocab_size": 6, "hidden": 4}, "sequence_tagger": {"hidden": 4}}


def networks():
    for d in DESCRIPTORS:
        yield pytest.param(d.build, id=f"{d.net}-{'-'.join(map(str, d.options.values()))}")
    for name, options in SMALL.items():
        yield pytest.param(functools.partial(zoo.create, name, **options), id=name)


def spellings():
    """Keras' losses that take probabilities, with what a message calls them."""
    for name, loss in CLASSES.items():
        yield name, name
        yield name, loss()
    for loss, name in FUNCTIONS.items():
        yield "".join(word.capitalize() for word in name.split("_")), name
        yield "".join(word.capitalize() for word in name.split("_")), loss
        yield "".join(word.capitalize() for word in name.split("_")), functools.partial(loss, axis=-1)
    for loss in ("kld", "kl_divergence", L.kl_divergence, L.KLDivergence()):
        yield "CategoricalCrossentropy", loss


def right():
    """Losses that take logits, and losses of other things."""
    yield from (loss(from_logits=True) for loss in CLASSES.values())
    yield from (functools.partial(loss, from_logits=True) for loss in FUNCTIONS)
    yield from ("mse", L.Huber(), lambda y, z: tf.reduce_mean(z), None)


def test_the_table_is_whole():
    assert set(FUNCTIONS.values()) >= {
        *("sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy"),
        *("binary_focal_crossentropy", "categorical_focal_crossentropy"),
    }
    assert len(CLASSES) == len(FUNCTIONS) >= 5
    assert set(zoo.list_nets()) - PRESETS == {d.net for d in DESCRIPTORS} | set(SMALL)


@pytest.mark.parametrize("build", list(networks()))
def test_every_network_with_every_loss(build):
    model = build()
    for name, loss in spellings():
        with pytest.raises(ValueError, match=rf"takes probabilities.*keras\.losses\.{name}\(from_logits=True\)"):
            model.compile("sgd", loss)
        with pytest.raises(ValueError, match="takes probabilities"):
            Trainer(model, loss=loss)
    assert not model.compiled
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for loss in right():
            model.compile("sgd", loss)
        Trainer(model)


def on_top(last, **kwargs):
    def network(x, is_training=False):
        return last(zoo.layers.fully_connected(x, 3, activation_fn=None))

    return zoo.Model(network, **kwargs)


@pytest.mark.parametrize(
    "last",
    [
        tf.nn.softmax,
        zoo.layers.softmax,
        keras.activations.softmax,
        lambda z: tf.squeeze(tf.reshape(tf.cast(tf.nn.softmax(z), tf.float32), [-1, 1, 3]), 1),
        tf.sigmoid,
        lambda z: {"a": tf.nn.softmax(z), "b": tf.nn.softmax(z)},
    ],
)
def test_networks_that_return_probabilities(last):
    model = on_top(last, input_shape=(4,))
    loss = "sparse_categorical_crossentropy"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.compile("sgd", {"a": loss, "b": loss} if isinstance(model.output_shape, dict) else loss)
    with pytest.warns(UserWarning, match=r"takes logits, and the network returns the probabilities of S"):
        model.compile("sgd", L.SparseCategoricalCrossentropy(from_logits=True))


def test_what_could_be_either_is_a_warning_at_the_users_line():
    def normalised(z):
        return tf.exp(z) / tf.reduce_sum(tf.exp(z), -1, keepdims=True)

    model = on_top(normalised, input_shape=(4,))
    with pytest.warns(UserWarning, match=r"RealDiv.*made in another way, ignore this warning") as caught:
        model.compile("sgd", "categorical_crossentropy")
    assert caught[0].filename == __file__
    model.fit(np.ones([4, 4], "float32"), np.eye(4, 3), verbose=0)


def test_each_output_has_its_own_loss():
    model = on_top(lambda z: {"classes": z, "size": tf.nn.softmax(z)}, input_shape=(4,))
    logits = L.SparseCategoricalCrossentropy(from_logits=True)
    for losses in ({"classes": "sparse_categorical_crossentropy", "size": "mse"}, ["categorical_crossentropy", "mse"]):
        with pytest.raises(ValueError, match="takes probabilities"):
            model.compile("sgd", losses)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.compile("sgd", {"classes": logits, "size": "sparse_categorical_crossentropy"})


def test_a_model_that_is_built_by_fit_is_told_so_there():
    model = on_top(tf.identity)
    model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.warns(UserWarning, match=r"takes probabilities.*from_logits=True"):
        model.fit(np.ones([4, 4], "float32"), np.zeros(4), verbose=0)


@zoo.register_function
def logits_of_an_old_file(x, is_training=False):
    return zoo.layers.fully_connected(x, 3, activation_fn=None)


def test_an_old_file_loads_with_a_warning_and_a_right_one_without(tmp_path):
    model = zoo.Model(logits_of_an_old_file, input_shape=(4,))
    x, y = np.ones([4, 4], "float32"), np.zeros(4)
    keras.Model.compile(model, "sgd", "sparse_categorical_crossentropy")  # as older versions let it be
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "old.keras")
    with pytest.warns(UserWarning, match="takes probabilities"):
        old = zoo.load_model(tmp_path / "old.keras")
    assert old.compiled
    assert old.loss == "sparse_categorical_crossentropy"
    model.compile("adam", L.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "new.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = zoo.load_model(tmp_path / "new.keras")
    assert new.evaluate(x, y, verbose=0) == pytest.approx(model.evaluate(x, y, verbose=0))
    assert int(new.optimizer.iterations) == 1


M = keras.metrics
RANKING = {
    *("Accuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy", "TopKCategoricalAccuracy"),
    *("SparseTopKCategoricalAccuracy", "F1Score", "FBetaScore", "IoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU"),
}
VALUES = {
    *("CategoricalHinge", "Hinge", "SquaredHinge", "ConcordanceCorrelation", "CosineSimilarity", "LogCoshError"),
    *("Mean", "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanMetricWrapper", "MeanSquaredError"),
    *("MeanSquaredLogarithmicError", "PearsonCorrelation", "Poisson", "R2Score", "RootMeanSquaredError", "Sum"),
    "Metric",
}
ARGUMENTS = dict.fromkeys(("PrecisionAtRecall", "RecallAtPrecision", "SensitivityAtSpecificity"), (0.5,))
ARGUMENTS |= {"SpecificityAtSensitivity": (0.5,), "IoU": (2, [1]), "MeanIoU": (2,), "OneHotIoU": (2, [1])}
ARGUMENTS |= {"OneHotMeanIoU": (2,)}
METRICS = {n: c for n, c in vars(M).items() if isinstance(c, type) and issubclass(c, M.Metric)}


@pytest.mark.parametrize("name", sorted(set(METRICS) - {"Metric", "MeanMetricWrapper"}))
def test_every_metric_of_probabilities_is_noticed_on_logits(name):
    metric = METRICS[name](*ARGUMENTS.get(name, ()))
    loss = L.SparseCategoricalCrossentropy(from_logits=True)
    model = on_top(tf.identity, input_shape=(4,))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.compile("sgd", loss, metrics=["accuracy", metric])
    assert bool(said) == (name not in RANKING | VALUES)
    assert all(one.filename == __file__ and f"metric {name} takes" in str(one.message) for one in said)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_top(tf.nn.softmax, input_shape=(4,)).compile("sgd", "sparse_categorical_crossentropy", metrics=[metric])


@pytest.mark.parametrize(
    ("metric", "advice"),
    [
        ("auc", r"write keras.metrics.AUC\(from_logits=True\)"),
        ("binary_accuracy", r"write keras.metrics.BinaryAccuracy\(threshold=0\)"),
        ("sparse_categorical_crossentropy", r"SparseCategoricalCrossentropy\(from_logits=True\)"),
        (M.Precision(thresholds=[0.3, 0.6]), r"Precision\(thresholds=0\)"),
        (M.KLDivergence(), "let the network return tf.nn.softmax"),
    ],
)
def test_what_to_write_for_a_metric_on_logits(metric, advice):
    model = on_top(tf.identity)
    logits = L.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", logits, None, None, [metric])  # weighted_metrics, in Keras' order
    with pytest.warns(UserWarning, match=advice):
        model.build((None, 4))
    with pytest.warns(UserWarning, match=advice):
        Trainer(model, loss=logits, metrics=[metric])


@pytest.mark.parametrize(
    "metric", ["accuracy", "top5", "mse", M.AUC(from_logits=True), M.Precision(top_k=1), M.Recall(thresholds=0)]
)
def test_metrics_that_are_right_for_logits(metric):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trainer(on_top(tf.identity, input_shape=(4,)), metrics=[metric])
