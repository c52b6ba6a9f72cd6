"""The Trainer's own checkpoints as weights: raw or averaged, by name and by the command, with the options they had."""

import json

import keras
import numpy as np
import pytest

import zoo
from zoo import weights
from zoo.data.images import encode_png
from zoo.training import Trainer, read_checkpoint, write_checkpoint
from zoo.weights.safetensors_files import DamagedCheckpointError

OPTIONS = {"num_classes": 3, "dropout_keep_prob": 0.9}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained model with averages, its run folder, and some pictures."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    images = np.random.default_rng(0).random((12, 32, 32, 1), "float32")
    model = zoo.lenet5(seed=1, **OPTIONS)
    model.card = {**model.card, "class_names": ["ant", "bee", "cat"]}
    trainer = Trainer(model, optimizer="momentum", learning_rate=0.05, averages=0.5, global_batch=4)
    trainer.fit((images, np.arange(12) % 3), steps=4, folder=folder, progress="none", summaries="none")
    return trainer, folder / "model.ckpt-4", images


def test_the_averages_are_taken_and_the_raw_weights_on_demand(run):
    trainer, path, images = run
    raw = trainer.model.predict(images, verbose=0)
    with trainer.averages.in_weights():
        averaged = trainer.model.predict(images, verbose=0)
    assert np.abs(raw - averaged).max() > 1e-4
    model = zoo.lenet5(weights=str(path))
    assert model.options.items() >= OPTIONS.items()
    assert model.card["class_names"] == ["ant", "bee", "cat"]
    np.testing.assert_allclose(model.predict(images, verbose=0), averaged, rtol=1e-6)
    report = weights.load(model, path, averages=False)
    assert len(report.loaded) == len(model.variable_names)
    np.testing.assert_allclose(model.predict(images, verbose=0), raw, rtol=1e-6)


def test_predict_takes_a_checkpoint(run, tmp_path, zoo_command):
    _, path, images = run
    (tmp_path / "p.png").write_bytes(encode_png(np.repeat((images[0] * 255).astype("uint8"), 3, 2)))
    said = zoo_command("predict", "lenet5", tmp_path / "p.png", "--weights", path, "--json")
    assert said.code == 0, said.err
    assert "cat" in said.out
    said = zoo_command("predict", "lenet5", tmp_path / "p.png", "--weights", path.parent)
    assert said.code == 2
    assert f"is a training run: name a checkpoint of it, such as {path}" in said.err


def test_a_checkpoint_of_before_has_no_card_but_the_options(run, tmp_path):
    _, path, images = run
    found = read_checkpoint(path)
    state = {name: value for name, value in found.state.items() if name != "card"}
    old = write_checkpoint(tmp_path / "model.ckpt-4", found.arrays, state)
    one, other = (zoo.lenet5(weights=str(file)).predict(images, verbose=0) for file in (old, path))
    np.testing.assert_array_equal(one, other)


def test_what_cannot_be_read_is_named(run, tmp_path):
    _, path, _ = run
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    data = np.zeros((4, 6), "float32"), np.zeros(4, "int64")
    Trainer(model, global_batch=4).fit(data, steps=1, folder=tmp_path / "keras", progress="none", summaries="none")
    with pytest.raises(ValueError, match=r"plain Keras model .* restores it"):
        weights.open_weights(tmp_path / "keras" / "model.ckpt-1")
    damaged = tmp_path / "model.ckpt-4"
    content = path.read_bytes()
    damaged.write_bytes(content[:-3] + bytes([content[-3] ^ 8]) + content[-2:])
    with pytest.raises(DamagedCheckpointError, match=r"model\.ckpt-4 is damaged"):
        weights.open_weights(damaged)
    assert json.loads(json.dumps(read_checkpoint(path).state["card"]))["net"] == "lenet5"
