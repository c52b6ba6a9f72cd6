"""DenseNets of other libraries on the same weights."""

import functools

import keras
import numpy as np
import pytest
from keras.src.applications.densenet import DenseNet
from safetensors.numpy import save_file

import zoo
from zoo.data.preprocessing import IMAGENET_MEAN, PRESETS
from zoo.weights.tf1 import save_tf1

SIZE = 64


def shake(arrays, random):
    """Random parameters of batch norm, so that nothing of them can be left out unseen."""
    return [
        random.uniform(0.5, 1.5, a.shape).astype("float32")
        if name.endswith(("gamma", "variance", "weight", "running_var"))
        else random.normal(0, 0.2, a.shape).astype("float32")
        for name, a in arrays
    ]


SMALL = {"block_config": (1, 2, 1, 1), "num_classes": 7}


@pytest.mark.parametrize(
    ("net", "options"),
    [
        ("densenet121", SMALL),  # the quick one: Keras' own code with fewer layers
        *(pytest.param(net, {}, marks=pytest.mark.slow) for net in ("densenet121", "densenet169", "densenet201")),
    ],
)
def test_keras_applications(net, options, tmp_path):
    keras.utils.set_random_seed(0)
    make = getattr(keras.applications, net.replace("densenet", "DenseNet"))
    if options:
        make = functools.partial(DenseNet, list(options["block_config"]), classes=options["num_classes"])
    theirs = make(weights=None, input_shape=(SIZE, SIZE, 3), classifier_activation=None)
    random = np.random.default_rng(0)
    for layer in theirs.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.set_weights(shake([(w.name, w) for w in layer.weights], random))
    theirs.save_weights(tmp_path / "theirs.weights.h5")
    ours = zoo.create(net, input_shape=(SIZE, SIZE, 3), weights=tmp_path / "theirs.weights.h5", **options)
    assert ours.options["batch_norm_epsilon"] == 1.001e-5
    assert ours.card["preprocessing"]["mean"] == list(IMAGENET_MEAN)
    images = random.normal(size=(2, SIZE, SIZE, 3)).astype("float32")
    wanted = theirs.predict(images, verbose=0)
    assert np.abs(ours.predict(images, verbose=0) - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "kind"),
    [
        *((net, "old pth") for net in ("densenet121", "densenet161", "densenet169", "densenet201")),
        ("densenet121", "pth"),
        ("densenet121", "safetensors"),
    ],
)
def test_torchvision(net, kind, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    try:
        import torchvision.models
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision is not usable: {error}")
    torch.manual_seed(0)
    theirs = getattr(torchvision.models, net)(weights=None).eval()
    random = np.random.default_rng(0)
    norms = [m for m in theirs.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    with torch.no_grad():
        for norm in norms:
            own = {k: v for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
            for (_, tensor), value in zip(own.items(), shake(list(own.items()), random), strict=True):
                tensor.copy_(torch.from_numpy(value))
    state = theirs.state_dict()
    if kind == "old pth":  # as the published files still have it: norm.1 for norm1
        state = {
            key.replace("norm1.", "norm.1.")
            .replace("norm2.", "norm.2.")
            .replace("conv1.", "conv.1.")
            .replace("conv2.", "conv.2."): v
            for key, v in state.items()
        }
    if kind == "safetensors":
        save_file({key: tensor.numpy() for key, tensor in state.items()}, tmp_path / "theirs")
    else:
        torch.save(state, tmp_path / "theirs")
    ours = zoo.create(net, input_shape=(SIZE, SIZE, 3), weights=tmp_path / "theirs")
    assert ours.card["preprocessing"]["mean"] == list(IMAGENET_MEAN)
    images = random.normal(size=(2, SIZE, SIZE, 3)).astype("float32")
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    assert np.abs(ours.predict(images, verbose=0) - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.slow
def test_slim_checkpoint(tmp_path):
    """The names are slim's own; its epsilon and its preprocessing come with them."""
    made = zoo.create("densenet121", num_classes=10, input_shape=(SIZE, SIZE, 3), seed=3, batch_norm_epsilon=1.1e-5)
    arrays = {name: np.asarray(made.variable(name)) for name in made.variable_names}
    path = save_tf1({**arrays, "global_step": np.int64(7)}, tmp_path / "tf-densenet121.ckpt")
    ours = zoo.create("densenet121", num_classes=10, input_shape=(SIZE, SIZE, 3), weights=path)
    assert ours.options["batch_norm_epsilon"] == 1.1e-5
    assert ours.card["preprocessing"] == PRESETS["imagenet_slim"].with_size((SIZE, SIZE)).to_dict()
    images = np.random.default_rng(0).normal(size=(2, SIZE, SIZE, 3)).astype("float32")
    np.testing.assert_array_equal(ours(images), made(images))
