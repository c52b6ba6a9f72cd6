"""PyTorch's weights of torchvision's networks: ``.pth`` files without running them, and safetensors, both ways."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np

from zoo.files import ZipReader, current_limits, reading
from zoo.weights.layer_order import LEAVES, Unit

# Parameter of a PyTorch module -> role; ``weight`` is a kernel or, of a vector, gamma.
_ROLES = {"bias": "bias", "running_mean": "mean", "running_var": "variance"}

# The modules of torchvision's Inception-v3 in zoo's order of creation: block kind -> its convolutions.
_BLOCKS = {
    "5": "branch1x1 branch5x5_1 branch5x5_2 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3 branch_pool",
    "6a": "branch3x3 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3",
    "6": "branch1x1 branch7x7_1 branch7x7_2 branch7x7_3 branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 "
    "branch7x7dbl_5 branch_pool",
    "7a": "branch3x3_1 branch3x3_2 branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4",
    "7": "branch1x1 branch3x3_1 branch3x3_2a branch3x3_2b branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3a "
    "branch3x3dbl_3b branch_pool",
}
_STEM = ["Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "Conv2d_3b_1x1", "Conv2d_4a_3x3"]
_AUX = ["AuxLogits.conv0", "AuxLogits.conv1"]


def inception_modules() -> list[str]:
    """Returns the names of torchvision's convolution modules, trunk then auxiliary head, in zoo's order of creation."""
    names = list(_STEM)
    for block in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c"):
        names += [f"Mixed_{block}.{conv}" for conv in _BLOCKS.get(block, _BLOCKS[block[0]]).split()]
    return names + _AUX


def read_pth(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the state dictionary of a PyTorch file with ``weights_only=True``, which runs no code of the file.

    It stands alone or under ``state_dict`` or ``model``; the layout stays PyTorch's. ModuleNotFoundError without
    PyTorch; ValueError when the file holds other objects than tensors, or is damaged.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Reading {path} needs PyTorch: pip install 'scoped-zoo[torch]', or convert the file to safetensors "
            "where PyTorch is installed."
        ) from error
    with reading(path, "a PyTorch file"):
        if zipfile.is_zipfile(path):
            ZipReader(path).close()  # compares what it declares with what it holds
    size = os.path.getsize(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        if error.errno is not None:
            raise
        raise _no_state(path, error) from error
    except Exception as error:  # pickle, zip and PyTorch raise many kinds
        raise _no_state(path, error) from error
    with reading(path, "a PyTorch state dictionary"):
        for key in ("state_dict", "model"):
            if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
                state = state[key]
        if not isinstance(state, Mapping) or not all(
            isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
        ):
            raise ValueError(f"{path} holds no state dictionary: a mapping of parameter name to tensor is needed")
        current_limits().check(
            sum(tensor.numel() * tensor.element_size() for tensor in state.values()), size, path, "its tensors together"
        )
        return {name: (t.float() if t.is_floating_point() else t).numpy() for name, t in state.items()}


def _no_state(path: str | os.PathLike[str], error: Exception) -> ValueError:
    """Words what PyTorch found, without its advice to run the file's code."""
    refused = isinstance(error, pickle.UnpicklingError)
    found = "its pickle is damaged or holds other objects" if refused else f"{type(error).__name__}, it is damaged"
    return ValueError(
        f"{path} is no plain PyTorch state dictionary ({found}); zoo reads tensors only, never pickled code"
    )


def is_torch_state(names: Sequence[str]) -> bool:
    """Says whether these are parameter names of PyTorch: dotted, with a leaf that PyTorch uses."""
    leaves = {name.rpartition(".")[2] for name in names if "/" not in name}
    return "weight" in leaves and leaves <= {"weight", "num_batches_tracked", *_ROLES}


def units_from_torch(state: Mapping[str, np.ndarray]) -> list[Unit]:
    """Groups the state dictionary of a network that zoo knows into layers in TensorFlow's layout, in zoo's order.

    PyTorch's kernels are [out, in, h, w] and [out, in]; a leading ``module.`` and DenseNet's old spelling (``norm.1``)
    are understood. ValueError for modules of other networks than torchvision's Inception-v3 and DenseNets, or some
    missing in between: by their order alone, layers of one shape could be swapped and nobody would notice.
    """
    units: dict[str, Unit] = {}
    for full, array in state.items():
        name = re.sub(r"\.(norm|conv)\.(\d)\.", r".\1\2.", full.removeprefix("module."))
        module, _, leaf = name.rpartition(".")
        if leaf == "num_batches_tracked":
            continue
        unit = units.setdefault(module, Unit(module, part=_part(module)))
        if leaf == "weight":
            unit.arrays["gamma" if array.ndim == 1 else "kernel"] = _to_tf(array)
        else:
            unit.arrays[_ROLES.get(leaf, leaf)] = array
    for unit in units.values():
        if unit.kind == "norm" and "bias" in unit.arrays:
            unit.arrays["beta"] = unit.arrays.pop("bias")
    heads = [unit for unit in units.values() if unit.part == "head"]
    if "Conv2d_1a_3x3.conv" in units:
        known = [f"{module}.{kind}" for module in inception_modules() for kind in ("conv", "bn")] + ["AuxLogits.fc"]
    else:
        known = densenet_modules(list(units))
    _check_modules(units, known, {unit.name for unit in heads})
    return [units[name] for name in known if name in units] + heads


def densenet_modules(names: Sequence[str]) -> list[str]:
    """Returns the names of torchvision's modules for a DenseNet with the blocks in `names`, in zoo's order."""
    sizes: dict[int, int] = {}
    for name in names:
        if found := re.fullmatch(r"features\.denseblock([1-9])\.denselayer(\d{1,3})\.conv1", name):
            block, layer = int(found[1]), int(found[2])
            sizes[block] = max(sizes.get(block, 0), layer)
    steps = [1, 2] if any(name.endswith(".conv2") for name in names) else [1]
    last = next((name for name in names if re.fullmatch(r"features\.norm[1-9]", name)), "features.norm5")
    modules = ["features.conv0", "features.norm0"]
    for block in range(1, max(sizes, default=0) + 1):
        for layer in range(1, sizes.get(block, 0) + 1):
            prefix = f"features.denseblock{block}.denselayer{layer}"
            modules += [f"{prefix}.{kind}{step}" for step in steps for kind in ("norm", "conv")]
        if block < max(sizes):
            modules += [f"features.transition{block}.{kind}" for kind in ("norm", "conv")]
    return [*modules, last]


def _check_modules(units: Mapping[str, Unit], known: Sequence[str], heads: set[str]) -> None:
    """Refuses modules that no known network has, and gaps before the last of its trunk that is there."""
    aux = {name for name in known if _part(name) == "aux"}
    trunk = [name for name in known if name not in aux]
    there = [name in units for name in trunk]
    end = len(there) - there[::-1].index(True) if any(there) else 0
    missing = [name for name in trunk[:end] if name not in units]
    missing += [name for name in known if name in aux and name not in units and aux & units.keys()]
    unknown = [name for name in units if name not in known and name not in heads]
    unknown += [u.name for u in units.values() if u.name not in unknown and not u.arrays.keys() <= LEAVES.keys()]
    if end and not unknown and not missing:
        return
    wrong = {"modules of another network": unknown, "missing": missing, "nothing but a head": [] if end else heads}
    found = "; ".join(f"{what}: {', '.join(sorted(names)[:4])}" for what, names in wrong.items() if names)
    raise ValueError(
        "Of PyTorch's networks zoo knows the names of torchvision's Inception-v3 and DenseNets; layers of others could "
        f"only be paired by their order, and those of one shape be swapped in silence. Received {found}. "
        "Give the arrays the names of your model (model.variable_names), kernels as array.transpose(2, 3, 1, 0) and "
        "dense layers as array.T, and load them: zoo.weights.restore_tf1(model, arrays)."
    )


def torch_state(tensors: Mapping[str, np.ndarray], units: Sequence[Unit]) -> dict[str, np.ndarray]:
    """Gives Inception-v3's weights (by zoo's names, and as layers) torchvision's names and layout.

    Returns a state dictionary of ``torchvision.models.inception_v3``: gammas of 1 where the model has none, and
    ``num_batches_tracked`` as torchvision counts it, from 0. ValueError when the model is not a whole Inception-v3.
    """
    modules, state = inception_modules(), {}
    convs = [unit for unit in units if unit.kind == "kernel" and "bias" not in unit.arrays]
    heads = [unit for unit in units if unit.kind == "kernel" and "bias" in unit.arrays]
    if len(convs) not in (len(modules), len(modules) - len(_AUX)):
        raise ValueError(
            f"torchvision's layout is known for the whole Inception-v3, whose trunk has {len(modules) - len(_AUX)} "
            f"convolutions. Received a model with {len(convs)}."
        )
    for unit, module in zip(convs, modules[: len(convs)], strict=True):  # without the auxiliary head's, the last
        state[f"{module}.conv.weight"] = _to_torch(tensors[f"{unit.name}/weights"])
        norm = f"{unit.name}/BatchNorm"
        beta = tensors[f"{norm}/beta"]
        state[f"{module}.bn.weight"] = tensors.get(f"{norm}/gamma", np.ones_like(beta))
        state[f"{module}.bn.bias"] = beta
        state[f"{module}.bn.running_mean"] = tensors[f"{norm}/moving_mean"]
        state[f"{module}.bn.running_var"] = tensors[f"{norm}/moving_variance"]
        state[f"{module}.bn.num_batches_tracked"] = np.zeros([], np.int64)
    for unit in heads:
        name = "AuxLogits.fc" if unit.part == "aux" else "fc"
        state[f"{name}.weight"] = _to_torch(tensors[f"{unit.name}/weights"])[:, :, 0, 0]
        state[f"{name}.bias"] = tensors[f"{unit.name}/biases"]
    return state


def _part(module: str) -> str:
    if module.startswith("AuxLogits."):
        return "aux"
    return "head" if module.partition(".")[0] in ("fc", "classifier") else "trunk"  # fc.1: somebody's own, of layers


def _to_tf(array: np.ndarray) -> np.ndarray:
    """[out, in, h, w] -> [h, w, in, out]; [out, in] -> [in, out]."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def _to_torch(array: np.ndarray) -> np.ndarray:
    """[h, w, in, out] -> [out, in, h, w]."""
    return np.ascontiguousarray(array.transpose(3, 2, 0, 1))
