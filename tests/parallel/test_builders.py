"""`zoo.multi_gpu`: the same model on several devices, for plain calls, Keras' fit, the trainer, and files."""

import warnings
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from parallel.nets import CASES, CPUS, IDS, NORM, train

import zoo
from zoo.parallel import MissingDeviceError, choose_devices
from zoo.training import Trainer


def placed(case, strategy="towers", dtype="float64", count=2, **options):
    def make(net, **kwargs):
        return zoo.multi_gpu(net, devices=CPUS[:count], strategy=strategy, **options, **kwargs)

    return case.build(dtype, make)


def batch_of(case, count=5):
    inputs, labels = next(iter(case.data().unbatch().batch(count)))
    return inputs, labels


@pytest.mark.parametrize("strategy", ["towers", "mirrored"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_same_model(case, strategy):
    one, many = case.build(), placed(case, strategy)
    assert isinstance(many, zoo.Model)
    assert many.variable_names == one.variable_names
    assert many.count_params() == one.count_params()
    inputs, _ = batch_of(case)
    np.testing.assert_allclose(many(inputs), one(inputs), rtol=1e-10, atol=1e-12)


# Keras' compiled loss cannot add penalties in float64 to its own in float32.
NO_DECAY = replace(NORM, options={**NORM.options, "weight_decay": 0.0})


@pytest.mark.parametrize("case", [CASES[0], NO_DECAY, CASES[7]], ids=[IDS[0], "densenet", IDS[7]])
def test_keras_fit_is_that_of_one_device(case):
    inputs, labels = batch_of(case, 7)
    found = []
    for model in (case.build(), placed(case, batch_norm="sync")):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
        model.fit(inputs, labels, batch_size=4, epochs=2, shuffle=False, verbose=0)  # batches of 4 and 3
        found.append({name: np.array(model.variable(name)) for name in model.variable_names})
        assert model.predict(inputs, batch_size=4, verbose=0).shape[0] == 7
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("words", [None, 9], ids=["features", "words"])
def test_keras_fit_takes_sequences_without_lengths_as_one_device_does(words):
    rng = np.random.default_rng(0)
    x = rng.normal(size=[4, 3, 2]).astype(np.float32) if words is None else rng.integers(0, words, [4, 3])
    options = {"num_classes": 4, "width": 2, "vocab_size": words, "hidden": 3, "bidirectional": False, "seed": 1}
    found = []
    mirrored = zoo.multi_gpu("sequence_tagger", devices=CPUS[:2], strategy="mirrored", **options)
    for model in (zoo.sequence_tagger(**options), mirrored):
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        model.fit(x, np.ones([4, 3]), batch_size=4, shuffle=False, verbose=0)
        found.append({name: np.array(model.variable(name)) for name in model.variable_names})
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("strategy", ["towers", "mirrored"])
@pytest.mark.parametrize("case", [CASES[0], CASES[7]], ids=[IDS[0], IDS[7]])
def test_optimizers_made_anywhere(case, strategy, tmp_path):
    """Compiled, and trained by the trainer, outside any scope; the file loads compiled."""
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    inputs, labels = batch_of(case, 8)
    found = []
    for model in (case.build("float32"), placed(case, strategy, "float32")):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(rate, momentum=0.9), loss, metrics=["accuracy"])
        model.fit(inputs, labels, batch_size=4, epochs=2, shuffle=False, verbose=0)
        assert model.evaluate(inputs, labels, batch_size=4, verbose=0)[1] >= 0
        model.save(tmp_path / "net.keras")
        assert keras.saving.load_model(tmp_path / "net.keras").optimizer.iterations == 4
        trainer = Trainer(model, optimizer=keras.optimizers.Adam(0.02))
        trainer.fit(tf.data.Dataset.from_tensors((inputs, labels)), steps=1, progress="none")
        found.append(np.array(model.variable(model.variable_names[0])))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strategy", ["towers", "mirrored"])
def test_the_trainer_takes_up_its_devices(strategy):
    case = CASES[0]
    data = case.data()
    values, _, _ = train(case, None, data, steps=2)
    model = placed(case, strategy)
    trainer = Trainer(model, optimizer="nesterov", learning_rate=0.05)
    trainer.fit(data, steps=2, progress="none")
    for name, value in values.items():
        np.testing.assert_allclose(np.array(model.variable(name)), value, rtol=1e-8, atol=1e-8)
    assert trainer.place is (model.towers or model.distribute_strategy)


def test_its_files_load_as_a_plain_model(tmp_path):
    case = CASES[0]
    many = placed(case, dtype="float32")
    many.save(tmp_path / "net.keras")
    loaded = zoo.load_model(tmp_path / "net.keras")
    assert loaded.towers is None
    inputs, _ = batch_of(case)
    np.testing.assert_allclose(loaded(inputs), many(inputs), rtol=1e-5, atol=1e-6)


def test_gradients_of_the_inputs_and_a_single_example():
    case = CASES[0]
    one, many = case.build(), placed(case, count=3)
    inputs, _ = batch_of(case)
    found = []
    for model in (one, many):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.square(model(inputs, training=True)))
        found.append(tape.gradient(loss, inputs))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-12)
    assert many(inputs[:1]).shape == (1, 10)


def test_fewer_gpus_than_asked_for():
    with pytest.warns(UserWarning, match="9 GPUs were asked for and there are 0.*running on 4 device"):
        model = zoo.multi_gpu("lenet5", num_gpus=9)
    assert model.towers.count == 4
    with pytest.raises(MissingDeviceError, match="2 GPUs were asked for and there are 0: found none"):
        zoo.multi_gpu(zoo.lenet5, num_gpus=2, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_devices() == CPUS
    for options, message in (
        ({"num_gpus": 0}, "counts from 1"),
        ({"devices": ["GPU:0"]}, "no device 'GPU:0'; there are CPU:0"),
        ({"devices": CPUS, "num_gpus": 2}, "not both"),
        ({"strategy": "ps"}, "towers or mirrored"),
        ({"devices": CPUS, "strategy": "mirrored", "reduction": "nccl"}, "NCCL joins GPUs"),
        ({"devices": CPUS, "strategy": "mirrored", "batch_norm": "sync"}, "trainer's option"),
    ):
        with pytest.raises(ValueError, match=message):
            zoo.multi_gpu("lenet5", **options)
