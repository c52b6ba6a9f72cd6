"""Weights of every format into a model, and out again: what is loaded, left alone, rewritten and reported."""

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from tensorflow.core.protobuf import saver_pb2
from weights.fixtures import images, keras_layers, same, shake, small, values, write_legacy_h5, write_tfjs

import zoo
from zoo import weights
from zoo.data.preprocessing import HALF, IMAGENET_MEAN, IMAGENET_STD, PRESETS
from zoo.weights.conventions import drop_classes
from zoo.weights.layer_order import units_of
from zoo.weights.loading import open_for
from zoo.weights.tf1 import save_tf1
from zoo.weights.torch_files import torch_state

HEADS = 12  # 10 variables of the auxiliary head, 2 of the classifier


@pytest.fixture(scope="module")
def model():
    return shake(small())


@pytest.fixture
def fresh(blank):
    """A model of the same shape with other weights."""
    return shake(blank, seed=9)


@pytest.fixture(scope="module")
def blank():
    return small(seed=2)


@pytest.fixture(scope="module")
def five():
    return small(num_classes=5, seed=3)


@pytest.fixture(scope="module")
def scaled():
    """A model whose batch norms have a gamma, as torchvision's."""
    return shake(small(batch_norm_scale=True, count_include_pad=True, seed=4))


def close(a, b, tolerance=1e-5):
    a, b = np.asarray(a), np.asarray(b)
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


def torch_file(model, path):
    arrays = values(model)
    safetensors.numpy.save_file(torch_state(arrays, units_of({k: v.shape for k, v in arrays.items()})), path)
    return path


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_slim_checkpoints_of_both_formats(model, fresh, tmp_path, version):
    arrays = values(model)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in arrays.items():
            tf.compat.v1.get_variable(name, initializer=value)
        tf.compat.v1.train.get_or_create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(write_version=getattr(saver_pb2.SaverDef, version))
        path = saver.save(session, str(tmp_path / "inception_v3.ckpt"))
    assert weights.sniff(path) == "tf1"
    report = weights.load(fresh, path)
    assert same(fresh, model)
    assert len(report.loaded) == 388
    assert not report.missing
    assert report.unexpected == {"global_step": "belongs to the training, not to the network"}


def test_background_class_is_dropped(model, tmp_path):
    arrays = values(model)
    for name in arrays:
        if name.endswith(("Conv2d_1c_1x1/weights", "Conv2d_2b_1x1/weights", "biases")):
            background = np.full((*arrays[name].shape[:-1], 1), 99, np.float32)
            arrays[name] = np.concatenate([background, arrays[name]], -1)
    path = save_tf1(arrays, tmp_path / "seven.ckpt")
    target = small(seed=5)
    report = weights.load(target, path)  # only of ImageNet's 1001 classes is the first known to be background
    assert set(report.missing.values()) == {"the file has 7 classes, the model 6"}
    report = weights.load(target, path, labels_offset=1)
    assert same(target, model)
    assert "labels_offset=1" in report.notes[0]


def test_the_background_of_imagenets_1001_classes_is_known():
    shapes = {"N/Logits/Conv/weights": (1, 1, 2, 1000), "N/Logits/Conv/biases": (1000,)}
    arrays = {
        "N/Logits/Conv/weights": np.arange(2002.0).reshape(1, 1, 2, 1001),
        "N/Logits/Conv/biases": np.arange(1001.0),
    }
    assert drop_classes(dict(arrays), shapes, None, False) == 0
    assert drop_classes(arrays, shapes, None, True) == 1
    np.testing.assert_array_equal(arrays["N/Logits/Conv/biases"], np.arange(1, 1001))
    assert arrays["N/Logits/Conv/weights"].shape == (1, 1, 2, 1000)


def test_exclude_restores_exactly_the_trunk(model, five, tmp_path):
    path = save_tf1(values(model), tmp_path / "model.ckpt")
    report = weights.load(five, path, exclude=["InceptionV3/Logits", "InceptionV3/AuxLogits"])
    assert len(report.loaded) == 376
    assert len(report.skipped) == HEADS
    assert not report.missing
    with pytest.raises(ValueError, match=r"'InceptionV3/AuxLogits/Logits' matches none.*did you mean"):
        weights.load(five, path, exclude=["InceptionV3/AuxLogits/Logits"])
    report = weights.load(five, path, include="Mixed_5*")
    assert len(report.loaded) == 4 * 21
    assert all("/Mixed_5" in name for name in report.loaded)


def test_a_new_head_stays_fresh_and_is_reported(model, five, tmp_path):
    path = save_tf1(values(model), tmp_path / "model.ckpt")
    before = values(five)
    report = weights.load(five, path)
    assert set(report.missing) == {
        f"InceptionV3/{head}/{leaf}"
        for head in ("Logits/Conv2d_1c_1x1", "AuxLogits/Conv2d_2b_1x1")
        for leaf in ("weights", "biases")
    }
    for name in report.missing:
        np.testing.assert_array_equal(five.variable(name), before[name])
    assert "the file has 6 classes, the model 5" in str(report)


@pytest.mark.parametrize(
    ("net", "options", "head"),
    [
        ("cifarnet", {"input_shape": (8, 8, 3)}, "softmax_linear"),
        ("lenet5", {"variant": "slim"}, "LeNet/fc4"),
        ("lenet5", {"variant": "original"}, "LeNet5/RBF"),
        ("lenet5", {}, "LeNet5/logits"),
        ("row_classifier", {"hidden": 4}, "RowClassifier/logits"),
    ],
)
def test_the_network_says_which_scope_is_its_head(net, options, head, tmp_path):
    ten = zoo.create(net, seed=1, **options)
    path = save_tf1(ten, tmp_path / "ten.ckpt")
    other = zoo.create(net, num_classes=5, seed=2, **options)
    before = values(other)
    report = weights.load(other, path)
    assert set(report.missing) == {name for name in before if name.startswith(f"{head}/")}
    assert same(other, ten, report.loaded) and report.loaded
    assert all(np.array_equal(other.variable(name), before[name]) for name in report.missing)
    spec = other.spec
    file, _ = open_for(spec, path, other.options, spec.builder.options())
    assert file.num_classes == (None if head.endswith("RBF") else 10)  # what `zoo predict` builds
    built = zoo.create(net, weights=path, num_classes=5, **options)
    assert same(built, ten, report.loaded)
    if zoo.create(net, **options).spec.headless:
        report = weights.load(zoo.create(net, **{**options, "num_classes": None}), path)
        assert set(report.unexpected.values()) == {"the model has no such classifier"}


def test_another_image_size_loads_the_trunk_and_says_why_the_aux_head_stays(model, tmp_path):
    path = save_tf1(values(model), tmp_path / "model.ckpt")
    larger = small(input_shape=(224, 224, 3), seed=6)
    report = weights.load(larger, path)
    assert same(larger, model, [name for name in model.variable_names if "AuxLogits" not in name])
    missing = {name: reason for name, reason in report.missing.items() if "Conv2d_2a_3x3" in name}
    assert set(missing.values()) == {"the file's auxiliary head is for another image size"}
    assert any("Conv2d_2a_1x1" in name for name in report.unexpected)


def test_another_network_is_refused_whole(model, fresh, tmp_path):
    arrays = {name.replace("InceptionV3/", "Old/"): value for name, value in values(model).items()}
    path = save_tf1(arrays, tmp_path / "old.ckpt")
    before = values(fresh)
    with pytest.raises(weights.WeightsMismatchError) as error:
        weights.load(fresh, path)
    assert len(error.value.missing) == 388
    assert "Old/Conv2d_1a_3x3/weights" in error.value.unexpected
    assert "missing (388), not in the file: InceptionV3/Conv2d_1a_3x3/weights" in str(error.value)
    assert all(np.array_equal(before[name], fresh.variable(name)) for name in before)
    wide = {
        name: np.zeros([*value.shape[:-1], value.shape[-1] + 1], np.float32) for name, value in values(model).items()
    }
    with pytest.raises(
        weights.WeightsMismatchError, match=r"the file has shape \[3, 3, 3, 5\], the model \[3, 3, 3, 4\]"
    ):
        weights.load(fresh, save_tf1(wide, tmp_path / "wide.ckpt"))


def test_moving_averages(model, fresh, tmp_path):
    arrays = values(model)
    average = "InceptionV3/Conv2d_1a_3x3/weights/ExponentialMovingAverage"
    arrays[average] = arrays["InceptionV3/Conv2d_1a_3x3/weights"] + 1
    path = save_tf1(arrays, tmp_path / "model.ckpt")
    weights.load(fresh, path, averages=False)
    assert same(fresh, model)
    report = weights.load(fresh, path)
    np.testing.assert_array_equal(fresh.variable("Conv2d_1a_3x3/weights"), arrays[average])
    assert report.notes == ["1 variables come from their moving averages (averages=False takes the raw ones)"]
    with pytest.raises(ValueError, match="holds no averages"):
        weights.load(fresh, save_tf1(values(model), tmp_path / "plain.ckpt"), averages=True)


@pytest.mark.parametrize(("first", "suffix"), [(1, ":0"), (0, ""), (95, ":0")])
def test_legacy_keras_h5_however_its_layers_are_numbered(model, fresh, tmp_path, first, suffix):
    write_legacy_h5(keras_layers(model, first), tmp_path / "weights.bin", suffix=suffix)
    report = weights.load(fresh, tmp_path / "weights.bin")
    assert len(report.loaded) == 378
    assert same(fresh, model, report.loaded)
    assert set(report.missing.values()) == {"not in the file"}
    assert fresh.card["moving_variance"] == "biased"
    assert fresh.card["preprocessing"] == PRESETS["inception_keras"].with_size((107, 107)).to_dict()


def test_keras_without_top(model, fresh, tmp_path):
    write_legacy_h5(keras_layers(model), tmp_path / "notop.h5", top=False)
    report = weights.load(fresh, tmp_path / "notop.h5")
    assert len(report.loaded) == 376
    assert len(report.missing) == HEADS
    assert "missing (12), not in the file: InceptionV3/AuxLogits (10), InceptionV3/Logits (2)" in str(report)


@pytest.mark.parametrize("bits", [8, 16])
def test_tensorflowjs_quantised(model, fresh, tmp_path, bits):
    meant = write_tfjs(keras_layers(model), tmp_path / "js", bits)
    weights.load(fresh, tmp_path / "js" / "model.json")
    np.testing.assert_array_equal(fresh.variable("Conv2d_1a_3x3/weights"), meant["conv2d_1/kernel"])
    np.testing.assert_array_equal(fresh.variable("Mixed_7c/Branch_3/Conv2d_0b_1x1/weights"), meant["conv2d_94/kernel"])
    np.testing.assert_array_equal(
        fresh.variable("Mixed_5b/Branch_1/Conv2d_0b_5x5/BatchNorm/beta"), meant["batch_normalization_8/beta"]
    )
    np.testing.assert_array_equal(fresh.variable("Logits/Conv2d_1c_1x1/biases"), meant["predictions/bias"])


def test_gamma_is_kept_or_folded(scaled, tmp_path):
    path, x = torch_file(scaled, tmp_path / "torch.safetensors"), images()
    kept = small(batch_norm_scale=True, count_include_pad=True, seed=5)
    report = weights.load(kept, path)
    assert same(kept, scaled)
    assert report.format == "safetensors, torchvision"
    folded = small(count_include_pad=True, seed=6)
    report = weights.load(folded, path)
    assert "gammas were folded" in " ".join(report.notes)
    close(folded.end_points(x)["Logits"], scaled.end_points(x)["Logits"])
    close(folded.end_points(x)["AuxLogits"], scaled.end_points(x)["AuxLogits"])


def test_transform_input_is_folded_or_left_to_the_preprocessing(scaled, tmp_path):
    path, x = torch_file(scaled, tmp_path / "torch.safetensors"), images()
    target = small(batch_norm_scale=True, count_include_pad=True, seed=5)
    weights.load(target, path)  # the network takes [-1, 1], as torchvision's does behind its transform
    assert target.card["preprocessing"]["mean"] == list(HALF)
    assert same(target, scaled)
    weights.load(target, path, transform_input="fold")
    assert target.card["preprocessing"]["mean"] == list(IMAGENET_MEAN)
    normalised = (x / 2 + 0.5 - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)
    close(target(normalised), scaled(x))
    weights.load(target, path, transform_input="none")
    assert same(target, scaled)
    with pytest.raises(ValueError, match=r"'preprocessing', 'fold' or 'none'. Received: 'maybe'"):
        weights.load(target, path, transform_input="maybe")


def test_pooling_that_differs_is_said(scaled, fresh, tmp_path, caplog):
    report = weights.load(fresh, torch_file(scaled, tmp_path / "torch.safetensors"))
    assert "count_include_pad=True, the model has False" in report.notes[-1]
    assert "count_include_pad=True" in caplog.text


def test_epsilon_is_kept_exactly(model, tmp_path):
    path, x = tmp_path / "model.safetensors", images()
    weights.save(model, path)
    target = small(batch_norm_epsilon=1e-5, seed=5)
    report = weights.load(target, path)
    assert "epsilon 0.001 to the model's 1e-05" in " ".join(report.notes)
    close(target(x), model(x))


def test_builder_takes_the_options_that_weights_need(scaled, tmp_path):
    path = torch_file(scaled, tmp_path / "torch.safetensors")
    options = {"num_classes": 6, "depth_multiplier": 0.125, "min_depth": 4, "input_shape": (107, 107, 3)}
    built = zoo.create("inception_v3", weights=path, **options)
    assert built.options["batch_norm_scale"] is True
    assert built.options["count_include_pad"] is True
    assert same(built, scaled)
    assert built.card["preprocessing"]["size"] == [107, 107]
    write_legacy_h5(keras_layers(scaled_without_gamma(scaled)), tmp_path / "keras.h5")
    built = zoo.create("inception_v3", weights=str(tmp_path / "keras.h5"), **options)
    assert not [name for name in built.variable_names if "AuxLogits" in name]


def scaled_without_gamma(scaled):
    class View:
        variable_names = [name for name in scaled.variable_names if not name.endswith("gamma")]
        variable = staticmethod(scaled.variable)

    return View


def test_card_travels_in_keras_files(model, tmp_path):
    path = tmp_path / "model.safetensors"
    weights.save(model, path)
    target = small(seed=5)
    weights.load(target, path)
    target.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.card == target.card
    assert again.card["preprocessing"]["size"] == [107, 107]
    for file in ("model.keras",):
        other = small(seed=7)
        weights.load(other, tmp_path / file)
        assert same(other, model)


@pytest.mark.parametrize(
    ("format", "name"), [("zoo", "a.safetensors"), ("slim", "a.ckpt"), ("torchvision", "a.safetensors")]
)
def test_round_trips_are_bit_equal(model, fresh, tmp_path, format, name):
    weights.save(model, tmp_path / name, format=format)
    report = weights.load(fresh, tmp_path / name)
    assert len(report.loaded) == 388
    assert same(fresh, model)
    assert not [path for path in tmp_path.iterdir() if "tmp" in path.name]


def test_torchvision_round_trip_with_gamma(scaled, tmp_path):
    weights.save(scaled, tmp_path / "t.safetensors", format="torchvision")
    target = small(batch_norm_scale=True, count_include_pad=True, seed=8)
    weights.load(target, tmp_path / "t.safetensors")
    assert same(target, scaled)


def test_saving_refuses_what_it_cannot_write(model, tmp_path):
    with pytest.raises(ValueError, match="follows from the ending"):
        weights.save(model, tmp_path / "weights.bin")
    with pytest.raises(ValueError, match="only the whole network with its published widths"):
        weights.save(model, tmp_path / "thin.weights.h5")
    assert not list(tmp_path.iterdir())


def test_unknown_weights_name_the_ways(tmp_path):
    with pytest.raises(ValueError, match=r"inception_v3 has no weights 'nope'.*come with zoo.*published name.*no file"):
        zoo.create("inception_v3", weights="nope")


def test_torchvisions_layout_says_where_outputs_will_differ(model, scaled, tmp_path):
    assert any("counts the padding" in n for n in weights.save(model, tmp_path / "t.safetensors", format="torchvision"))
    assert len(weights.save(scaled, tmp_path / "s.safetensors", format="torchvision")) == 1  # it counts it too
    again = small(weights=tmp_path / "t.safetensors", count_include_pad=False)
    assert same(model, again)
    np.testing.assert_array_equal(again(images()), model(images()))
