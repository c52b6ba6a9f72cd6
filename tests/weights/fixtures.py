"""Small models with noticeable weights, and files in other people's formats to load."""

import json

import numpy as np

import zoo
from zoo.weights.layer_order import natural_key

OPTIONS = {"depth_multiplier": 0.125, "min_depth": 4, "input_shape": (107, 107, 3)}


def small(num_classes=6, seed=1, **options):
    """A thin Inception-v3."""
    return zoo.create("inception_v3", num_classes=num_classes, seed=seed, **{**OPTIONS, **options})


def shake(model, seed=0):
    """Gives every vector of a model random values, so that a mistake in any of them shows."""
    rng = np.random.default_rng(seed)
    for name in model.variable_names:
        variable = model.variable(name)
        if name.endswith(("moving_variance", "gamma")):
            variable.assign(rng.uniform(0.5, 2.0, variable.shape))
        elif not name.endswith("weights"):
            variable.assign(rng.normal(0, 0.2, variable.shape))
    return model


def values(model):
    """Full name to array."""
    return {name: np.asarray(model.variable(name)) for name in model.variable_names}


def same(a, b, names=None):
    """Whether two models' variables are bit-equal."""
    return all(np.array_equal(a.variable(name), b.variable(name)) for name in names or a.variable_names)


def images(batch=2, size=107):
    return np.random.default_rng(5).uniform(-1, 1, (batch, size, size, 3)).astype(np.float32)


def keras_layers(model, first=1):
    """The trunk and head of a model as Keras would auto-number its layers: name to list of (leaf, array)."""
    found, arrays = {}, values(model)
    convs = [n.removesuffix("/weights") for n in arrays if n.endswith("/weights") and "/AuxLogits/" not in n]
    for i, scope in enumerate(convs):
        if f"{scope}/biases" in arrays:
            found["predictions"] = [("kernel", arrays[f"{scope}/weights"][0, 0]), ("bias", arrays[f"{scope}/biases"])]
            continue
        number = f"_{i + first}" if i + first else ""
        found[f"conv2d{number}"] = [("kernel", arrays[f"{scope}/weights"])]
        norm = [("beta", "beta"), ("moving_mean", "moving_mean"), ("moving_variance", "moving_variance")]
        found[f"batch_normalization{number}"] = [(leaf, arrays[f"{scope}/BatchNorm/{mine}"]) for leaf, mine in norm]
    return found


def write_legacy_h5(layers, path, top=True, suffix=":0"):
    """Writes keras.applications' legacy layout, with the layers in a scrambled order as by depth."""
    import h5py

    names = [name for name in layers if top or name != "predictions"]
    names = names[::2] + names[1::2]
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = np.array([name.encode() for name in ["input_1", *names]])
        file.create_group("input_1").attrs["weight_names"] = np.array([], "S1")
        for name in names:
            group = file.create_group(name)
            group.attrs["weight_names"] = np.array([f"{name}/{leaf}{suffix}".encode() for leaf, _ in layers[name]])
            for leaf, array in layers[name]:
                group[f"{name}/{leaf}{suffix}"] = array


def write_tfjs(layers, folder, bits=8, shards=3):
    """Writes a TensorFlow.js layers model, quantised; returns what it must read as, by name."""
    kind = {8: np.uint8, 16: np.uint16}[bits]
    specs, data, meant = [], b"", {}
    for layer in sorted(layers, key=natural_key):
        for leaf, array in layers[layer]:
            low, high = float(array.min()), float(array.max())
            scale = (high - low) / (2**bits - 1) or 1.0
            q = np.round((array.astype(np.float64) - low) / scale).astype(kind)
            quantization = {"min": low, "scale": scale, "dtype": kind.__name__}
            specs.append({"name": f"{layer}/{leaf}", "shape": list(array.shape), "dtype": "float32"})
            specs[-1]["quantization"] = quantization
            data += q.tobytes()
            meant[f"{layer}/{leaf}"] = (q.astype(np.float64) * scale + low).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    cut = -(-len(data) // shards)
    paths = [f"group1-shard{i + 1}of{shards}" for i in range(shards)]
    for i, name in enumerate(paths):
        (folder / name).write_bytes(data[i * cut : (i + 1) * cut])
    config = [{"config": {"name": "batch_normalization_1", "momentum": 0.99, "epsilon": 0.001}}]
    topology = {"model_config": {"config": {"layers": config}}}
    manifest = [{"paths": paths, "weights": specs}]
    (folder / "model.json").write_text(json.dumps({"modelTopology": topology, "weightsManifest": manifest}))
    return meant
