"""Weight files of Keras: ``.keras``, ``.weights.h5`` and the legacy ``.h5``, read as layers in the order of creation.

Keras numbers unnamed layers as they are made (``conv2d_17``), but lists them in files by their depth in the graph, and
``.weights.h5`` calls them by their place in that list. Their own numbers give the order of creation back.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import keras
import numpy as np

from zoo.weights.units import Unit, natural_key

# Leaf of a weight's name in legacy files, and in TensorFlow.js models -> role.
_ROLES = {
    "kernel": "kernel",
    "bias": "bias",
    "gamma": "gamma",
    "beta": "beta",
    "moving_mean": "mean",
    "moving_variance": "variance",
}
_NUMBERED = re.compile(r"(conv2d|batch_normalization|dense)(_\d+)?")
INCEPTION_CONVS = 94


def read_keras(path: str | os.PathLike[str]) -> tuple[list[Unit], dict[str, Any]]:
    """Reads the layers that have weights from a Keras file; nothing in the file is run.

    Args:
        path: A ``.keras`` archive, a ``.weights.h5`` or legacy ``.h5`` file, of a functional model.

    Returns:
        The layers in the order of creation, and the layers' configurations by name (empty when the file has none).

    Raises:
        ValueError: The file is damaged, or not a Keras file of a functional or sequential model.
    """
    configs: list[dict[str, Any]] = []
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                config = json.loads(archive.read("config.json"))
            configs = [layer["config"] for layer in config["config"].get("layers", [])]
        with _open_h5(path) as file:
            root = _inside(file, "model_weights") if "model_weights" in file else file
            if "layer_names" in root.attrs or "layer_names0" in root.attrs:
                units = _legacy_units(root)
            else:
                units = _units_by_place(root, [layer["name"] for layer in configs])
    except (OSError, KeyError, zipfile.BadZipFile, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} cannot be read as a Keras file ({error}); it is damaged, or of another kind"
        ) from error
    if not units:
        raise ValueError(f"{path} holds no layers with weights; zoo reads functional and sequential Keras models")
    return in_creation_order(units), {layer["name"]: layer for layer in configs if "name" in layer}


def read_zoo_h5(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the variables of a ``zoo.Model`` that was saved as ``.keras`` or ``.weights.h5``.

    Args:
        path: The file.

    Returns:
        Full variable name to array; empty when the file is no zoo model's.
    """
    found: dict[str, np.ndarray] = {}

    def visit(name: str, item: Any) -> None:
        scope, _, leaf = name.rpartition("/")
        if isinstance(item, h5py.Dataset) and scope.endswith("vars") and not leaf.isdigit():
            found[f"{scope.removesuffix('vars')}{leaf}"] = np.asarray(_inside(item.file, name))

    try:
        with _open_h5(path) as file:
            if "layers" not in file and "model_weights" not in file and "layer_names" not in file.attrs:
                file.visititems(visit)
    except OSError as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from error
    return found


def units_from_weights(weights: Mapping[str, np.ndarray]) -> list[Unit]:
    """Groups weights named ``layer/kernel`` into layers in the order of creation.

    Args:
        weights: Weight name to array; a trailing ``:0`` is ignored.
    """
    units: dict[str, Unit] = {}
    for name, array in weights.items():
        layer, _, leaf = name.removesuffix(":0").rpartition("/")
        if leaf in _ROLES:
            units.setdefault(layer, Unit(layer)).arrays[_ROLES[leaf]] = array
    return in_creation_order(list(units.values()))


def in_creation_order(units: Sequence[Unit]) -> list[Unit]:
    """Sorts auto-numbered layers by number, keeps named ones where they are, and marks the dense ones as head."""
    numbered = sorted((u for u in units if _NUMBERED.fullmatch(u.name)), key=lambda unit: natural_key(unit.name))
    ordered = numbered + [unit for unit in units if not _NUMBERED.fullmatch(unit.name)]
    for unit in ordered:
        if unit.kind == "kernel" and unit.arrays["kernel"].ndim == 2:
            unit.part = "head"
    return ordered


def make_twin(net: str, num_classes: int | None) -> Any:
    """Builds Keras' own network of the same name, with fresh weights.

    Args:
        net: ``"inception_v3"``, or ``"densenet121"``, ``169`` or ``201``.
        num_classes: Width of the classifier; None for the network without one.

    Returns:
        A functional Keras model that gives probabilities.

    Raises:
        ValueError: Keras has no such network.
    """
    name = {
        "inception_v3": "InceptionV3",
        "densenet121": "DenseNet121",
        "densenet169": "DenseNet169",
        "densenet201": "DenseNet201",
    }.get(net)
    if name is None:
        raise ValueError(f"keras.applications has no network like {net!r}; write safetensors or a slim checkpoint")
    head = {"include_top": False} if num_classes is None else {"include_top": True, "classes": num_classes}
    return getattr(keras.applications, name)(weights=None, **head)


def fill_twin(twin: Any, units: Sequence[Unit]) -> None:
    """Sets the weights of Keras' own network.

    Args:
        twin: The network, as ``make_twin`` builds it.
        units: Layers with their arrays, in the order of creation.

    Raises:
        ValueError: There are more or fewer layers, or their shapes differ.
    """
    layers = {layer.name: layer for layer in twin.layers if layer.weights}
    order = in_creation_order(
        [Unit(name, _by_role([np.asarray(w) for w in layer.weights])) for name, layer in layers.items()]
    )
    for kind in ("kernel", "norm"):
        theirs = [unit for unit in order if unit.kind == kind]
        ours = [unit for unit in units if unit.kind == kind]
        pairs = list(zip(theirs, ours, strict=False))
        if len(theirs) != len(ours) or any(
            own.arrays[role].size != array.size for unit, own in pairs for role, array in unit.arrays.items()
        ):
            raise ValueError(
                f"Keras' {twin.name} has {len(theirs)} layers of kind {kind!r}, the model {len(ours)}, or their sizes "
                "differ: only the whole network with its published widths can be written as Keras'."
            )
        for unit, own in pairs:
            layers[unit.name].set_weights([own.arrays[role].reshape(a.shape) for role, a in unit.arrays.items()])


def _legacy_units(root: Any) -> list[Unit]:
    units = []
    for layer in _names(root, "layer_names"):
        unit = Unit(layer)
        group = _inside(root, layer)
        for name in _names(group, "weight_names"):
            leaf = name.removesuffix(":0").rpartition("/")[2]
            if leaf in _ROLES:
                unit.arrays[_ROLES[leaf]] = np.asarray(_inside(group, name))
        if unit.arrays:
            units.append(unit)
    return units


def _names(group: Any, key: str) -> list[str]:
    """Reads a list of names that Keras splits into numbered attributes when it is long."""
    parts = [group.attrs[key]] if key in group.attrs else []
    while f"{key}{len(parts)}" in group.attrs:
        parts.append(group.attrs[f"{key}{len(parts)}"])
    return [name.decode() if isinstance(name, bytes) else str(name) for part in parts for name in part]


def _units_by_place(file: Any, layer_names: Sequence[str]) -> list[Unit]:
    """Reads ``layers/<class>_<place>/vars/<i>``; the layers' own names come from the file or its configuration."""
    places = [key for key in ("layers", "_layer_checkpoint_dependencies") if key in file]
    if not places:
        return []
    layers = _inside(file, places[0])
    of_class: dict[str, list[str]] = {}
    for name in layer_names:
        of_class.setdefault(re.sub(r"_\d+$", "", name), []).append(name)
    units, named = [], True
    for key in sorted(layers, key=natural_key):
        if "vars" not in layers[key] or not len(layers[key]["vars"]):
            continue
        stored = _inside(layers, f"{key}/vars")
        arrays = [np.asarray(_inside(stored, i)) for i in sorted(stored, key=int)]
        name = stored.attrs.get("name")
        if name is None:
            base, _, number = key.rpartition("_") if key[-1].isdigit() else (key, "", "0")
            known = of_class.get(base, [])
            named = int(number) < len(known)
            name = known[int(number)] if named else key
        units.append(Unit(str(name), _by_role(arrays)))
    return units if named else _by_twin(units)


def _by_twin(units: list[Unit]) -> list[Unit]:
    """Numbers Inception-v3's layers of a file that only knows their places, as Keras' own Inception-v3 numbers them."""
    if sum(unit.name.startswith("conv2d") for unit in units) != INCEPTION_CONVS:
        return units
    twin = keras.applications.InceptionV3(weights=None, include_top=False, input_shape=(75, 75, 3))
    for base in ("conv2d", "batch_normalization"):
        places = [layer.name for layer in twin.layers if re.fullmatch(rf"{base}(_\d+)?", layer.name)]
        rank = {name: i for i, name in enumerate(sorted(places, key=natural_key))}
        mine = [unit for unit in units if re.fullmatch(rf"{base}(_\d+)?", unit.name)]
        for unit, name in zip(mine, places, strict=True):
            unit.name = f"{base}_{rank[name]}"
    return units


def _by_role(arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Names a layer's arrays, which Keras only numbers: kernel and bias, or batch norm's three or four vectors."""
    roles = ["kernel", "bias"] if arrays[0].ndim > 1 else ["gamma", "beta", "mean", "variance"][-len(arrays) :]
    return dict(zip(roles, arrays, strict=False))


def _open_h5(path: str | os.PathLike[str]) -> h5py.File:
    """Opens an HDF5 file, or the one inside a ``.keras`` archive."""
    if not zipfile.is_zipfile(path):
        return h5py.File(os.fspath(path), "r")
    with zipfile.ZipFile(path) as archive:
        return h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r")


def _inside(group: Any, path: str) -> Any:
    """Follows a path inside an HDF5 file; links and data that lead to other files are refused."""
    found = group
    for part in path.split("/"):
        if not isinstance(found.get(part, getlink=True), h5py.HardLink):
            raise ValueError(
                f"{group.file.filename}: {found.name}/{part} is missing or a link, which zoo does not follow"
            )
        found = found[part]
    if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        raise ValueError(f"{group.file.filename}: {found.name} keeps its data in another file, which zoo does not open")
    return found
