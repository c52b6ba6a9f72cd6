"""The weights that come with zoo: right, checked, and inside the wheel."""

import json
import zipfile

import keras
import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder

import zoo
from zoo.data import digits, mnist
from zoo.registry import get_net
from zoo.weights import bundled

CARDS = sorted(bundled.folder().glob("*.json"))


def test_digits_weights_reach_the_accuracy_on_their_card():
    model = zoo.lenet5(weights="digits")
    test = digits.load("random").test
    accuracy = (np.argmax(model.predict(test.images, verbose=0), -1) == test.labels).mean()
    assert accuracy >= 0.99
    assert round(accuracy, 4) == bundled.card("lenet5", "digits")["accuracy"]


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_every_card_is_complete(path):
    card = json.loads(path.read_text())
    needed = {"net", "options", "data", "recipe", "seed", "accuracy", "sha256", "licence", "versions"}
    assert needed <= card.keys()
    if path.stem != "inception_v3_x025":  # the trunk of zoo.transfer, which is asked for by another name
        assert path.stem.removeprefix(card["net"] + "-") in bundled.names(card["net"])


DIGITS = [path.stem.removesuffix("-digits") for path in CARDS if path.stem.endswith("-digits")]


@pytest.mark.parametrize("net", DIGITS)
def test_a_card_says_what_its_pictures_look_like_and_other_ones_are_noticed_once(net, caplog):
    told = bundled.card(net, "digits")["pictures"]
    assert told.keys() == {"what", "size", "range", "brightness", "contrast", "detail"}
    train, test = digits.load("random", told["size"][0])
    assert bundled.pictures_of(np.array_split(train.images, 3), told["what"]) == told
    model = zoo.create(net, weights="digits", input_shape=tuple(told["size"]))
    check = lambda x, **options: (setattr(model, "card", model.card), model.check_once(x, **options))  # noqa: E731
    for number in range(0, len(test.images), 20):  # alone, and together
        check(test.images[number : number + 1])
    check(test.images)
    assert not caplog.records
    other = mnist.sample(max(told["size"][0], 28)).test.images
    for strange in (other, 1 - test.images, np.zeros_like(test.images[:1]), test.images * 0.3):
        check(strange)
        assert "look unlike the pictures that these weights were trained on, scikit-learn's" in caplog.text
        caplog.clear()
    check(other, looks=False)
    assert not caplog.records


def test_predict_warns_of_strange_pictures_once_and_fit_of_none(caplog):
    other = mnist.sample().test
    model = zoo.lenet5(weights="digits")
    for _ in range(2):
        model.predict(other.images[:8], verbose=0)
    assert caplog.text.count("look unlike") == 1
    caplog.clear()
    model = zoo.lenet5(weights="digits")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(other.images[:8], other.labels[:8], verbose=0)
    model.predict(other.images[:8], verbose=0)
    assert "look unlike" not in caplog.text


def test_unknown_weights_are_refused():
    with pytest.raises(ValueError, match=r"lenet5 has no weights 'imagenet'\. Those that come with zoo are: 'digits'"):
        zoo.lenet5(weights="imagenet")


def test_a_folder_of_that_name_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images.gz").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"lenet5 has no weights 'mnist'\..*There is a folder of that name here, but no"
    ):
        zoo.lenet5(weights="mnist")
    (tmp_path / "digits").mkdir()  # a name that there is comes first
    assert zoo.lenet5(weights="digits").card["recipe"]


@pytest.mark.parametrize("weights", [True, False, 1, 3.5, ["digits"]])
def test_weights_that_are_no_name(weights):
    with pytest.raises(
        ValueError, match=r"lenet5: weights is the name.*got .*that come with zoo are: 'digits'; publish"
    ):
        zoo.lenet5(weights=weights)


def test_published_names_are_told():
    with pytest.raises(ValueError, match="published ones: 'keras', 'keras_notop', 'slim', 'torchvision'"):
        zoo.inception_v3(weights=True)


def test_weights_of_other_options_do_not_fit():
    with pytest.raises(ValueError, match=r"LeNet5/logits/biases: the model has \[7\], the checkpoint \[10\]"):
        zoo.lenet5(num_classes=7, weights="digits")
    with pytest.raises(ValueError, match="Build the model with the"):
        zoo.lenet5(variant="original", weights="digits")


def test_options_that_change_what_is_computed_are_marked_in_the_registry():
    with pytest.raises(ValueError, match=r"were made with activation=None. Received: activation='tanh'"):
        zoo.lenet5(activation="tanh", weights="digits")
    for name in zoo.list_nets():
        net = get_net(name)
        assert set(net.spec.computing) <= net.options().keys()


def test_a_changed_file_is_refused(tmp_path, monkeypatch):
    for name in ("lenet5-digits.safetensors", "lenet5-digits.json"):
        (tmp_path / name).write_bytes((bundled.folder() / name).read_bytes())
    monkeypatch.setattr(bundled, "folder", lambda: tmp_path)
    zoo.lenet5(weights="digits")
    path = tmp_path / "lenet5-digits.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"its SHA-256 is .* but its card says"):
        zoo.lenet5(weights="digits")


def test_save_and_load_again(tmp_path, monkeypatch):
    model = zoo.lenet5(num_classes=3)
    about = {"net": "lenet5", "options": {"num_classes": 3}}
    bundled.save(model, tmp_path / "lenet5-three.safetensors", about)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lenet5-three.json", "lenet5-three.safetensors"]
    monkeypatch.setattr(bundled, "folder", lambda: tmp_path)
    again = zoo.lenet5(num_classes=3, weights="three")
    for name in model.variable_names:
        assert np.array_equal(again.variable(name), model.variable(name))


def test_the_wheel_carries_the_weights(tmp_path):
    root = bundled.folder().parent
    if not (root / "pyproject.toml").is_file():
        pytest.skip("not a checkout: there is nothing to build the wheel from")
    wheel = next(WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"]))
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        assert (
            file.read("zoo/_weights/lenet5-digits.safetensors")
            == (bundled.folder() / "lenet5-digits.safetensors").read_bytes()
        )
    assert {"zoo/_weights/lenet5-digits.json", "zoo/py.typed", "zoo/nets/lenet5.py"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]
