"""Brings weights trained under one convention to another: exact rewritings of what a network computes in inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from zoo.data.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from zoo.scoping import USUAL_PARTS, Parts
from zoo.weights.layer_order import units_of

Values = dict[str, np.ndarray]
Shapes = Mapping[str, Sequence[int]]


def drop_classes(
    values: Values, shapes: Shapes, offset: int | None, background: bool, parts: Parts = USUAL_PARTS
) -> int:
    """Drops the first columns of every classifier with as many classes more than the model's, and returns how many.

    ``offset`` says how many; None drops one if ``background``, the file's first class, is known to be that. ``values``
    is changed in place; ``parts`` says which of the model's scopes are heads.
    """
    drop, dropped = int(background) if offset is None else offset, 0
    for unit in units_of(shapes, parts):
        if unit.part == "trunk" or "bias" not in unit.arrays:
            continue
        names = [f"{unit.name}/weights", f"{unit.name}/biases"]
        wanted = shapes[names[1]][-1]
        found = {name: values[name] for name in names if name in values}
        if drop and found and all(array.shape[-1] == wanted + drop for array in found.values()):
            values.update({name: array[..., drop:] for name, array in found.items()})
            dropped = drop
    return dropped


def fold_input_transform(values: Values, shapes: Shapes) -> str:
    """Folds torchvision's ``transform_input`` into the first convolution, which must not pad, and returns its scope.

    It maps ImageNet-normalised inputs to [-1, 1] by ``a x + b`` a channel; ``W (a x + b) = (W a) x + W b``, and
    batch norm subtracts the constant ``W b`` together with its mean. ``values`` is changed in place; ValueError when
    the first convolution has no batch norm behind it, or not three channels.
    """
    first = next((unit.name for unit in units_of(shapes) if unit.kind == "kernel"), "")
    kernel, mean = f"{first}/weights", f"{first}/BatchNorm/moving_mean"
    if mean not in values or kernel not in values or values[kernel].shape[2] != 3:
        raise ValueError(
            f"transform_input='fold' needs a first convolution of 3 channels with batch norm. Received: {first!r}"
        )
    a = np.array(IMAGENET_STD) / 0.5
    b = (np.array(IMAGENET_MEAN) - 0.5) / 0.5
    weights = values[kernel].astype(np.float64)
    values[mean] = (values[mean] - np.einsum("hwio,i->o", weights, b)).astype(np.float32)
    values[kernel] = (weights * a[:, None]).astype(np.float32)
    return first


def fit_gamma(values: Values, shapes: Shapes) -> tuple[list[str], list[str]]:
    """Folds gammas that the model has no place for into the convolution before, and gives ones where it wants them.

    ``gamma (W x - mean) / sd = ((gamma W) x - gamma mean) / sd``: exact as long as the moving statistics are used.
    ``values`` is changed in place. Returns the gammas that were folded, and those that were set to one; ValueError for
    one whose batch norm does not follow a convolution of the same scope.
    """
    folded = [name for name in values if name.endswith("/BatchNorm/gamma") and name not in shapes]
    for name in folded:
        scope = name.removesuffix("/BatchNorm/gamma")
        if f"{scope}/weights" not in values or f"{scope}/BatchNorm/moving_mean" not in values:
            raise ValueError(
                f"{name} cannot be folded: there is no convolution {scope}/weights before it. "
                "Build the model with batch_norm_scale=True."
            )
        gamma = values.pop(name)
        for fold in (f"{scope}/weights", f"{scope}/BatchNorm/moving_mean"):
            values[fold] = values[fold] * gamma
    ones = [
        name
        for name, shape in shapes.items()
        if name.endswith("/gamma") and name not in values and f"{name.removesuffix('gamma')}beta" in values
    ]
    values.update({name: np.ones(shapes[name], np.float32) for name in ones})
    return folded, ones


def change_epsilon(values: Values, difference: float) -> None:
    """Adds to every moving variance what the model's batch norms add less: ``(v + d) + e2 = v + e1``.

    ``difference`` is the weights' epsilon less the model's. ValueError when a variance would become negative.
    """
    for name in [name for name in values if name.endswith("/moving_variance")]:
        moved = (values[name].astype(np.float64) + difference).astype(np.float32)
        if (moved < 0).any():
            raise ValueError(
                f"{name} is smaller than the difference of epsilons, {difference:g}: build the model with the "
                "batch_norm_epsilon of these weights."
            )
        values[name] = moved
