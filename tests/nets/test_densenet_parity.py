"""DenseNets of other libraries on the same weights."""

import keras
import numpy as np
import pytest

import zoo
from zoo.weights import load

pytestmark = pytest.mark.slow

SIZE = 64


def shake(arrays, random):
    """Random parameters of batch norm, so that nothing of them can be left out unseen."""
    return [
        random.uniform(0.5, 1.5, a.shape).astype("float32")
        if name.endswith(("gamma", "variance", "weight", "running_var"))
        else random.normal(0, 0.2, a.shape).astype("float32")
        for name, a in arrays
    ]


@pytest.mark.parametrize("net", ["densenet121", "densenet169", "densenet201"])
def test_keras_applications(net, tmp_path):
    keras.utils.set_random_seed(0)
    make = getattr(keras.applications, net.replace("densenet", "DenseNet"))
    theirs = make(weights=None, input_shape=(SIZE, SIZE, 3), classifier_activation=None)
    random = np.random.default_rng(0)
    for layer in theirs.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.set_weights(shake([(w.name, w) for w in layer.weights], random))
    theirs.save_weights(tmp_path / "theirs.weights.h5")
    ours = zoo.create(net, input_shape=(SIZE, SIZE, 3), batch_norm_epsilon=1.001e-5)
    load(ours, tmp_path / "theirs.weights.h5")
    images = random.normal(size=(2, SIZE, SIZE, 3)).astype("float32")
    wanted = theirs.predict(images, verbose=0)
    assert np.abs(ours.predict(images, verbose=0) - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("old_spelling", [False, True])
@pytest.mark.parametrize("net", ["densenet121", "densenet161", "densenet169", "densenet201"])
def test_torchvision(net, old_spelling, tmp_path):
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
    if old_spelling:  # as the published files still have it: norm.1 for norm1
        state = {
            key.replace("norm1.", "norm.1.")
            .replace("norm2.", "norm.2.")
            .replace("conv1.", "conv.1.")
            .replace("conv2.", "conv.2."): v
            for key, v in state.items()
        }
    torch.save(state, tmp_path / "theirs.pth")
    ours = zoo.create(net, input_shape=(SIZE, SIZE, 3))
    load(ours, tmp_path / "theirs.pth")
    images = random.normal(size=(2, SIZE, SIZE, 3)).astype("float32")
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    assert np.abs(ours.predict(images, verbose=0) - wanted).max() < 1e-4 * np.abs(wanted).max()
