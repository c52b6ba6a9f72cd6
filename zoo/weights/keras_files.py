"""Weight files of Keras: ``.keras``, ``.weights.h5`` and the legacy ``.h5``, read as layers in the order of creation.

Keras numbers unnamed layers as they are made (``conv2d_17``), but lists them in files by their depth in the graph, and
``.weights.h5`` calls them by their place in that list. Their own numbers give the order of creation back.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from zoo.files import ZipReader, parse_json, reading
from zoo.hdf5 import H5Content, read_h5
from zoo.weights.layer_order import Unit, natural_key

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
    """Reads the layers that have weights from a Keras file of a functional or sequential model; nothing in it is run.

    Returns them in the order of creation, and the layers' configurations by name (empty when the file has none).
    ValueError when the file, ``.keras``, ``.weights.h5`` or legacy ``.h5``, is damaged or none of a Keras model.
    """
    return units_of_keras(read_h5(path))


def units_of_keras(content: H5Content) -> tuple[list[Unit], dict[str, Any]]:
    """As ``read_keras``, of a file that was read already."""
    with reading(content.path, "a Keras file"):
        configs = _layer_configs(content.path)
        root = "model_weights" if "model_weights" in content.attrs else ""
        if content.names("layer_names", root) is not None:
            units = _legacy_units(content, root)
        else:
            units = _units_by_place(content, list(configs))
        if not units:
            raise ValueError("it holds no layers with weights; zoo reads functional and sequential Keras models")
        return in_creation_order(units), configs


def zoo_variables(content: H5Content) -> dict[str, np.ndarray]:
    """The variables by full name of a ``zoo.Model`` saved as ``.keras`` or ``.weights.h5``; empty for other files."""
    if {"layers", "model_weights"} & content.attrs.keys() or content.names("layer_names") is not None:
        return {}
    found = {}
    for name, array in content.arrays.items():
        scope, _, leaf = name.rpartition("/")
        if scope.endswith("vars") and not leaf.isdigit():
            found[f"{scope.removesuffix('vars')}{leaf}"] = array
    return found


def units_from_weights(weights: Mapping[str, np.ndarray]) -> list[Unit]:
    """Groups weights named ``layer/kernel`` (a trailing ``:0`` is ignored) into layers in the order of creation."""
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


def make_twin(name: str, num_classes: int | None) -> keras.Model:
    """Builds a network of ``keras.applications`` with fresh weights: probabilities, or features without classes."""
    head = {"include_top": False} if num_classes is None else {"include_top": True, "classes": num_classes}
    return getattr(keras.applications, name)(weights=None, **head)


def fill_twin(twin: keras.Model, units: Sequence[Unit]) -> None:
    """Sets the weights of Keras' own network, as ``make_twin`` builds it, from layers in the order of creation.

    ValueError when there are more or fewer layers, or their sizes differ.
    """
    layers = {layer.name: layer for layer in twin.layers if layer.weights}
    order = in_creation_order(
        [Unit(name, _by_role([np.asarray(w) for w in layer.weights])) for name, layer in layers.items()]
    )
    for kind in ("kernel", "norm"):
        theirs = [unit for unit in order if unit.kind == kind]
        ours = [unit for unit in units if unit.kind == kind]
        if len(theirs) != len(ours) or any(
            own.arrays[role].size != array.size
            for unit, own in zip(theirs, ours, strict=True)
            for role, array in unit.arrays.items()
        ):
            raise ValueError(
                f"Keras' {twin.name} has {len(theirs)} layers of kind {kind!r}, the model {len(ours)}, or their sizes "
                "differ: only the whole network with its published widths can be written as Keras'."
            )
        for unit, own in zip(theirs, ours, strict=True):
            layers[unit.name].set_weights([own.arrays[role].reshape(a.shape) for role, a in unit.arrays.items()])


def _layer_configs(path: str) -> dict[str, Any]:
    """The layers' configurations by name in a ``.keras`` archive; empty for other files."""
    if not zipfile.is_zipfile(path):
        return {}
    with ZipReader(path) as archive:
        model = parse_json(archive.read("config.json"), path)
    layers = model["config"].get("layers", [])
    return {layer["config"]["name"]: layer["config"] for layer in layers if "name" in layer["config"]}


def _legacy_units(content: H5Content, root: str) -> list[Unit]:
    units = []
    for layer in content.names("layer_names", root) or ():
        unit = Unit(layer)
        group = f"{root}/{layer}" if root else layer
        for name in content.names("weight_names", group) or ():
            leaf = name.removesuffix(":0").rpartition("/")[2]
            if leaf in _ROLES:
                unit.arrays[_ROLES[leaf]] = content.arrays[f"{group}/{name}"]
        if unit.arrays:
            units.append(unit)
    return units


def _units_by_place(content: H5Content, layer_names: Sequence[str]) -> list[Unit]:
    """Reads ``layers/<class>_<place>/vars/<i>``; the layers' own names come from the file or its configuration."""
    root = next((key for key in ("layers", "_layer_checkpoint_dependencies") if key in content.attrs), None)
    of_class: dict[str, list[str]] = {}
    for name in layer_names:
        of_class.setdefault(re.sub(r"_\d+$", "", name), []).append(name)
    stored: dict[str, dict[int, np.ndarray]] = {}
    for full, array in content.arrays.items():
        parts = full.split("/")
        if len(parts) == 4 and parts[0] == root and parts[2] == "vars" and parts[3].isdigit():
            stored.setdefault(parts[1], {})[int(parts[3])] = array
    units, named = [], True
    for key in sorted(stored, key=natural_key):
        arrays = [stored[key][i] for i in sorted(stored[key])]
        name = content.attrs[f"{root}/{key}/vars"].get("name", "")
        if not name:
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
    return dict(zip(roles, arrays, strict=False))  # a layer without a bias has a kernel only
