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
                stored: Any = io.BytesIO(archive.read("model.weights.h5"))
        else:
            stored = os.fspath(path)
        with h5py.File(stored, "r") as file:
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
        if unit.kind == "kernel" and np.ndim(unit.arrays.get("kernel")) == 2:
            unit.part = "head"
    return ordered


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
            base, place = re.fullmatch(r"(.*?)(?:_(\d+))?", key).groups()
            known = of_class.get(base, [])
            named = int(place or 0) < len(known)
            name = known[int(place or 0)] if named else key
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
