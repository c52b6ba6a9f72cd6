"""``zoo weights`` and ``zoo predict``: what they print, which files they skip, how they end."""

import json

import numpy as np
import pytest
from PIL import Image

import zoo
from zoo import weights

OPTIONS = {"depth_multiplier": 0.125, "min_depth": 4, "aux_logits": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights of a thin Inception-v3 with three classes, and pictures: two good ones, one cut, one that is none."""
    place = tmp_path_factory.mktemp("predict")
    model = zoo.create("inception_v3", num_classes=3, input_shape=(75, 75, 3), seed=1, **OPTIONS)
    weights.save(model, place / "thin.safetensors")
    (place / "labels.txt").write_text("ant\nbee\ncat\n")
    pictures = place / "pictures" / "deeper"
    pictures.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("a.png", "b.jpg"):
        Image.fromarray(rng.integers(0, 255, (90, 120, 3), np.uint8)).save(pictures / name)
    whole = (pictures / "a.png").read_bytes()
    (pictures / "cut.png").write_bytes(whole[: len(whole) // 2])
    (place / "pictures" / "notes.txt").write_text("no picture")
    return place


def predict(zoo_command, folder, *words):
    options = [word for key, value in OPTIONS.items() for word in ("-o", f"{key}={value}")]
    return zoo_command("predict", "inception_v3", "--weights", folder / "thin.safetensors", *options, *words)


def test_predict_prints_json_skips_bad_files_and_ends_with_1(zoo_command, folder):
    run = predict(zoo_command, folder, folder / "pictures", "--labels", folder / "labels.txt", "--top", "2", "--json")
    assert run.code == 1
    found = json.loads(run.out)
    assert [entry["file"].rpartition("/")[2] for entry in found] == ["a.png", "b.jpg", "cut.png"]
    for entry in found[:2]:
        assert len(entry["predictions"]) == 2
        assert {p["class"] for p in entry["predictions"]} <= {"ant", "bee", "cat"}
        first, second = (p["probability"] for p in entry["predictions"])
        assert first >= second > 0
    assert "cut" in found[2]["error"]
    assert "skipped" in run.err
    assert "cut.png" in run.err


def test_predict_prints_a_table_and_ends_with_0(zoo_command, folder):
    picture = folder / "pictures" / "deeper" / "a.png"
    run = predict(zoo_command, folder, picture)
    assert run.code == 0
    assert "class 0" in run.out
    assert "%" in run.out
    assert "a.png" in run.out


def test_the_file_says_which_options_it_was_made_with(zoo_command, folder):
    picture = folder / "pictures" / "deeper" / "a.png"
    run = zoo_command("predict", "inception_v3", "--weights", folder / "thin.safetensors", picture, "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out) == json.loads(predict(zoo_command, folder, picture, "--json").out)
    model = zoo.inception_v3(weights=folder / "thin.safetensors", dropout_keep_prob=0.5)
    made_with = weights.open_weights(folder / "thin.safetensors").own_card.more["options"]
    assert made_with == {"num_classes": 3, **OPTIONS}
    assert model.options.items() >= {**made_with, "dropout_keep_prob": 0.5}.items()


def test_predict_agrees_with_the_model(zoo_command, folder):
    picture = folder / "pictures" / "deeper" / "b.jpg"
    run = predict(zoo_command, folder, picture, "--json")
    from zoo.data.images import decode
    from zoo.data.preprocessing import Preprocessing

    model = zoo.create("inception_v3", num_classes=3, weights=folder / "thin.safetensors", **OPTIONS)
    x = Preprocessing.from_dict(model.card["preprocessing"])(decode(picture.read_bytes()))
    logits = model(x[None]).numpy()[0]
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    for p in json.loads(run.out)[0]["predictions"]:
        assert abs(p["probability"] - expected[p["index"]]) < 1e-5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.png"], "missing.png: no such file or folder"),
        (["--labels", "LABELS", "PICTURE"], "names 2 classes, but the network has 3"),
    ],
)
def test_predict_refuses_with_2(zoo_command, folder, tmp_path, words, message):
    (tmp_path / "labels.txt").write_text("one\ntwo\n")
    paths = {"LABELS": tmp_path / "labels.txt", "PICTURE": folder / "pictures" / "deeper" / "a.png"}
    run = predict(zoo_command, folder, *[paths.get(word, word) for word in words])
    assert run.code == 2
    assert message in run.err
    assert "Traceback" not in run.err


def test_list_shows_the_sources(zoo_command):
    run = zoo_command("weights", "list", "inception*", "--json")
    assert run.code == 0
    names = [row["name"] for row in json.loads(run.out)]
    assert names == ["inception_v3.keras", "inception_v3.keras_notop", "inception_v3.slim", "inception_v3.torchvision"]
    assert zoo_command("weights", "list").out.count("densenet") == 10
    assert zoo_command("weights", "list", "vgg*").code == 2


def test_fetch_names_the_nearest_and_verify_an_empty_cache(zoo_command, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    run = zoo_command("weights", "fetch", "inception_v3.slin")
    assert run.code == 2
    assert "did you mean inception_v3.slim" in run.err
    run = zoo_command("weights", "verify")
    assert run.code == 0
    assert "Nothing was fetched yet" in run.out


def test_convert_writes_a_checkpoint(zoo_command, folder, tmp_path):
    options = [word for key, value in OPTIONS.items() for word in ("-o", f"{key}={value}")]
    run = zoo_command("weights", "convert", folder / "thin.safetensors", tmp_path / "thin.ckpt", *options, "--json")
    assert run.code == 0
    assert json.loads(run.out)["loaded"] == 378
    back = weights.open_weights(tmp_path / "thin.ckpt")
    assert back.num_classes == 3


def test_convert_keeps_an_auxiliary_head_of_another_size(zoo_command, tmp_path):
    model = zoo.inception_v3(num_classes=3, depth_multiplier=0.125, min_depth=4, input_shape=(107, 107, 3), seed=1)
    weights.save(model, tmp_path / "aux.safetensors")
    run = zoo_command("weights", "convert", tmp_path / "aux.safetensors", tmp_path / "aux.ckpt", "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out)["missing"] == {}
    back = weights.open_weights(tmp_path / "aux.ckpt").names
    assert all(np.array_equal(back[name], model.variable(name)) for name in model.variable_names)
