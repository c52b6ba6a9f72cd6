"""Inception-v3 equals keras.applications and torchvision on the same weights: outputs, all 18 end points, gradients."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import weights
from zoo.data.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from zoo.nets.inception_v3 import END_POINTS
from zoo.weights.layer_order import natural_key
from zoo.weights.tf1 import save_tf1


def distance(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.abs(a - b).max() / np.abs(b).max()


def images(batch=2, size=299):
    return np.random.default_rng(3).uniform(-1, 1, (batch, size, size, 3)).astype(np.float32)


def keras_model(shake=True, **options):
    """keras.applications.InceptionV3 with random weights and random moving statistics."""
    model = keras.applications.InceptionV3(weights=None, classifier_activation=None, **options)
    rng = np.random.default_rng(0)
    for variable in model.weights if shake else ():
        if "variance" in variable.path:
            variable.assign(rng.uniform(0.5, 2.0, variable.shape))
        elif "mean" in variable.path or "beta" in variable.path:
            variable.assign(rng.normal(0, 0.2, variable.shape))
    return model


def keras_end_points(model):
    """A Keras model of all the tensors that slim's 18 end points name, in their order."""
    by_class = {}
    for layer in sorted(model.layers, key=lambda layer: natural_key(layer.name)):
        by_class.setdefault(type(layer).__name__, []).append(layer.output)
    relu, pool = by_class["Activation"], by_class["MaxPooling2D"]
    stem = [relu[0], relu[1], relu[2], pool[0], relu[3], relu[4], pool[1]]
    mixed = [model.get_layer(f"mixed{i}").output for i in range(11)]
    return keras.Model(model.input, stem + mixed)


def keras_gradients(model, x, training=False):
    with tf.GradientTape() as tape:
        logits = model(x, training=training)
        loss = tf.reduce_mean(logits * logits)
    return logits, tape.gradient(loss, [v.value for v in model.trainable_variables])


@pytest.mark.slow
def test_equals_keras_applications(tmp_path):
    theirs, x = keras_model(), images()
    theirs.save_weights(tmp_path / "keras.weights.h5")
    mine = zoo.create("inception_v3", weights=tmp_path / "keras.weights.h5")
    assert distance(mine(x), theirs(x)) < 1e-5
    found = mine.end_points(x)
    for name, expected in zip(END_POINTS, keras_end_points(theirs)(x), strict=True):
        assert distance(found[name], expected) < 1e-5, name
    # and back: the file that zoo writes is Keras' own
    for ending in (".weights.h5", ".h5", ".keras"):
        weights.save(mine, tmp_path / f"back{ending}")
    again = keras.applications.InceptionV3(weights=None)
    again.load_weights(tmp_path / "back.weights.h5")
    assert all(np.array_equal(a, b) for a, b in zip(again.weights, theirs.weights, strict=True))
    for ending in (".weights.h5", ".h5", ".keras"):
        fresh = zoo.create("inception_v3", weights=tmp_path / f"back{ending}")
        assert all(np.array_equal(fresh.variable(n), mine.variable(n)) for n in mine.variable_names), ending


@pytest.mark.slow
def test_slim_names_and_keras_order_agree(tmp_path):
    """The checkpoint's logits without their background column are Keras' logits in Keras' order of classes."""
    theirs, x = keras_model(), images(1)
    theirs.save_weights(tmp_path / "keras.weights.h5")
    model = zoo.create("inception_v3", weights=tmp_path / "keras.weights.h5")
    arrays = {name: np.asarray(model.variable(name)) for name in model.variable_names}
    for name in ("InceptionV3/Logits/Conv2d_1c_1x1/weights", "InceptionV3/Logits/Conv2d_1c_1x1/biases"):
        arrays[name] = np.pad(arrays[name], [(0, 0)] * (arrays[name].ndim - 1) + [(1, 0)])
    path = save_tf1(arrays, tmp_path / "slim.ckpt")
    slim = zoo.create("inception_v3", num_classes=1001, aux_logits=False)
    weights.load(slim, path)
    assert slim.card["labels_offset"] == 1
    thousand = zoo.create("inception_v3", weights=path)
    assert distance(slim(x)[:, 1:], theirs(x)) < 1e-5
    assert distance(thousand(x), theirs(x)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("training", "size"), [(False, 75), (True, 139)])
def test_gradients_in_float64(tmp_path, training, size):
    """Training takes pictures of 139: at 75 the last statistics are over one pixel a picture, and amplify rounding."""
    x = images(4, size).astype(np.float64)
    keras.config.set_dtype_policy("float64")
    try:
        theirs = keras_model(input_shape=(size, size, 3), include_top=False, pooling="avg")
        theirs.save_weights(tmp_path / "keras.weights.h5")
        mine = zoo.create("inception_v3", num_classes=0, input_shape=(size, size, 3), dtype="float64")
    finally:
        keras.config.set_dtype_policy("float32")
    weights.load(mine, tmp_path / "keras.weights.h5")
    expected_output, expected = keras_gradients(theirs, x, training)
    with tf.GradientTape() as tape:
        output = mine(x, training=training)
        loss = tf.reduce_mean(output * output)
    found = tape.gradient(loss, [mine.variable(name).value for name in trainable_names(mine)])
    assert distance(output[:, 0, 0], expected_output) < 1e-12
    theirs_named = name_keras_gradients(theirs, expected, mine)
    for name, gradient in zip(trainable_names(mine), found, strict=True):
        assert gradient.dtype == tf.float64
        assert distance(gradient, theirs_named[name]) < 1e-8, name


def trainable_names(model):
    return [name for name in model.variable_names if model.variable(name).trainable]


def name_keras_gradients(theirs, gradients, mine):
    """Keras' gradients under zoo's names: convolutions and betas pair up in the order of creation."""
    named = {}
    paths = {v.path: g for v, g in zip(theirs.trainable_variables, gradients, strict=True)}
    for leaf, ours in (("kernel", "weights"), ("beta", "beta")):
        found = sorted((p for p in paths if p.endswith(leaf)), key=natural_key)
        names = [name for name in trainable_names(mine) if name.endswith(f"/{ours}")]
        named |= {name: paths[path] for name, path in zip(names, found, strict=True)}
    return named


def tfjs_arrays(folder):
    """Reads the real weights without zoo: name to array."""
    model = json.loads((folder / "model.json").read_text())
    data = b"".join((folder / path).read_bytes() for path in model["weightsManifest"][0]["paths"])
    arrays, at = {}, 0
    for spec in model["weightsManifest"][0]["weights"]:
        count = int(np.prod(spec["shape"]))
        q = np.frombuffer(data, np.uint8, count, at).reshape(spec["shape"])
        arrays[spec["name"]] = q * spec["quantization"]["scale"] + spec["quantization"]["min"]
        at += count
    return arrays


@pytest.mark.slow
def test_real_weights_equal_keras(test_data):
    folder = test_data / "inception_v3_tfjs"
    arrays = tfjs_arrays(folder)
    theirs = keras.applications.InceptionV3(weights=None, include_top=False, pooling="avg")
    layers = sorted((layer for layer in theirs.layers if layer.weights), key=lambda layer: natural_key(layer.name))
    for kind, names in (
        ("Conv2D", ["conv2d_{}/kernel"]),
        ("BatchNormalization", [f"batch_normalization_{{}}/{n}" for n in ("beta", "moving_mean", "moving_variance")]),
    ):
        for i, layer in enumerate(layer for layer in layers if type(layer).__name__ == kind):
            layer.set_weights([arrays[name.format(i + 1)].astype(np.float32) for name in names])
    mine, x = zoo.create("inception_v3", weights=folder), images()
    assert distance(mine.bottleneck(x), theirs(x)) < 1e-5
    found = mine.end_points(x)
    for name, expected in zip(END_POINTS, keras_end_points(theirs)(x), strict=True):
        assert distance(found[name], expected) < 1e-5, name


@pytest.fixture(scope="module")
def torchvision_model():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed", exc_type=ImportError)
    torch.manual_seed(0)
    model = models.inception_v3(weights=None, transform_input=True, aux_logits=True, init_weights=False).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.2)
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2.0)
    return model


def torch_outputs(model, normalised):
    """Logits, auxiliary logits and the mixed blocks of torchvision's network in inference, for NHWC inputs."""
    import torch

    seen = {}
    for name in ("Mixed_5b", "Mixed_5d", "Mixed_6a", "Mixed_6e", "Mixed_7a", "Mixed_7c"):
        getattr(model, name).register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out))
    with torch.no_grad():
        logits = model(torch.from_numpy(normalised.transpose(0, 3, 1, 2).copy()))
        aux = model.AuxLogits(seen["Mixed_6e"])
    maps = {name: value.permute(0, 2, 3, 1).numpy() for name, value in seen.items()}
    return logits.numpy(), aux.numpy(), maps


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_equals_torchvision(torchvision_model, tmp_path, kind):
    import torch
    from safetensors.torch import save_file

    path = tmp_path / f"inception.{kind}"
    state = torchvision_model.state_dict()
    torch.save(state, path) if kind == "pth" else save_file(state, path)
    x = images()  # in [-1, 1]
    normalised = ((x / 2 + 0.5 - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)).astype(np.float32)
    logits, aux, maps = torch_outputs(torchvision_model, normalised)
    model = zoo.create("inception_v3", weights=path)
    assert model.options == {"batch_norm_scale": True, "count_include_pad": True}
    found = model.end_points(x)
    assert distance(found["Logits"], logits) < 1e-4
    assert distance(found["AuxLogits"], aux) < 1e-4
    for name, expected in maps.items():
        assert distance(found[name], expected) < 1e-4, name
    if kind == "safetensors":
        return
    folded = zoo.create("inception_v3", count_include_pad=True)
    weights.load(folded, path, transform_input="fold")
    assert distance(folded(normalised), logits) < 1e-4
    weights.save(model, tmp_path / "back.safetensors", format="torchvision")
    from safetensors.torch import load_file

    back = load_file(tmp_path / "back.safetensors")
    assert set(back) == set(state)
    assert all(torch.equal(back[name], state[name]) for name in state if "num_batches" not in name)
